"""Meng et al.'s figures (2024) of models' ranks: by layer, over the loss, over fine-tuning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from maskpolicy.findings.representations import Ranks
from maskpolicy.plots import Lines, Series

_RANK = "effective rank"
GAP = ("all_with_masks", "all_without")
"""Token sets whose difference in rank is positive if masks use dimensions of their own."""


@dataclass(frozen=True, eq=False)
class MeasuredModel:
    """One measured model."""

    run: str
    label: str  # of its row
    line: str  # equal for models that form one line over loss or over fine-tuning
    task: str = ""  # of its fine-tuning, "" for a pre-trained model
    steps: int = 0  # of its fine-tuning
    kept_at: int = 0  # steps of pre-training, for a checkpoint; 0: all
    loss: float | None = None  # mean over the last steps of its pre-training

    @property
    def name(self) -> str:
        """Its name in the table."""
        return f"{self.label} at {self.kept_at}" if self.kept_at else self.label


Measured: TypeAlias = Sequence[tuple[MeasuredModel, Ranks]]
Points: TypeAlias = list[tuple[float, Ranks]]


def panels(measured: Measured, taus: Sequence[float] = (0.9,)) -> list[Lines]:
    """Return figures 1a, 1b and 5a over layers, then ranks over the loss, and 5b over fine-tuning.

    There is a figure 5a for each of `taus`; the others use the first.
    """
    names = _names(measured)
    whole = [
        (names[model.line], found)
        for model, found in measured
        if not model.task and not model.kept_at
    ]

    def lines(title: str, *tokens: str, tau: float = taus[0]) -> Lines:
        """Return the rank of a token set over layers, less that of a second set if given."""
        series = []
        for name, found in whole:
            layers = found.layers(tau)
            values = [one[tokens[0]] - sum(one[less] for less in tokens[1:]) for one in layers]
            series.append(Series(name, values, list(range(len(values)))))
        return Lines(title, "layer", _RANK, series)

    return [
        lines("all tokens, masks present (1a)", "all_with_masks"),
        lines("all tokens, no masks (1a)", "all_without"),
        lines("<mask> tokens (1b)", "mask"),
        *(lines(f"with masks less without (5a), {tau:g}", *GAP, tau=tau) for tau in taus),
        *_over_loss(measured, names, taus[0]),
        *_over_tuning(measured, names, taus[0]),
    ]


def _names(measured: Measured) -> dict[str, str]:
    """Return the label of each line, with its run if two lines share a label."""
    first = {model.line: model for model, _ in reversed(measured)}
    labels = [model.label for model in first.values()]
    return {
        line: model.label if labels.count(model.label) == 1 else f"{model.label} ({model.run})"
        for line, model in first.items()
    }


def _over_loss(measured: Measured, names: Mapping[str, str], tau: float) -> list[Lines]:
    """Return the last layer's ranks over the pre-training loss, if there are checkpoints."""
    lines: dict[str, Points] = {}
    for model, found in measured:
        if not model.task and model.loss is not None:
            lines.setdefault(names[model.line], []).append((model.loss, found))
    if all(len(points) < 2 for points in lines.values()):
        return []
    return [
        Lines(
            f"{title}, last layer",
            "loss of pre-training",
            _RANK,
            [_means(name, points, tokens, tau) for name, points in lines.items()],
        )
        for title, tokens in (
            ("<mask> tokens", "mask"),
            ("real tokens, no masks present", "real_without"),
        )
    ]


def _over_tuning(measured: Measured, names: Mapping[str, str], tau: float) -> list[Lines]:
    """Return for each task the last layer's rank of real tokens over steps of fine-tuning."""
    panels = []
    for task in sorted({model.task for model, _ in measured if model.task}):
        lines: dict[str, Points] = {}
        for model, found in measured:
            if model.task in ("", task) and not model.kept_at:
                lines.setdefault(names[model.line], []).append((model.steps, found))
        series = [_means(name, points, "real_without", tau) for name, points in lines.items()]
        title = f"real tokens, last layer, {task} (5b)"
        panels.append(Lines(title, "steps of fine-tuning", _RANK, series))
    return panels


def _means(name: str, points: Points, tokens: str, tau: float) -> Series:
    """Return the last layer's rank of a token set over x; ranks at the same x are averaged."""
    found: dict[float, list[int]] = {}
    for place, ranks in points:
        found.setdefault(place, []).append(ranks.layers(tau)[-1][tokens])
    places = sorted(found)
    return Series(name, [sum(found[x]) / len(found[x]) for x in places], places)
