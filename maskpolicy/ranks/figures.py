"""Meng et al.'s figures (2024) of models' ranks: by layer, over the loss, over fine-tuning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from maskpolicy.plots import Lines, Series
from maskpolicy.ranks import Ranks

_RANK = "effective rank"


@dataclass(frozen=True, eq=False)
class Model:
    """One model whose ranks are wanted: `task` and `steps` are of its fine-tuning, if any."""

    run: str
    label: str  # of its row
    line: str  # what it has in common with those that it is compared with over loss or tuning
    task: str = ""
    steps: int = 0
    kept_at: int = 0  # the steps of pre-training after which it was kept; 0: all
    loss: float | None = None  # of the last steps of the pre-training that it comes from

    @property
    def name(self) -> str:
        """What it is called in the table."""
        return f"{self.label} at {self.kept_at}" if self.kept_at else self.label


Measured: TypeAlias = Sequence[tuple[Model, Ranks]]
Points: TypeAlias = list[tuple[float, Ranks]]


def panels(measured: Measured) -> list[Lines]:
    """Return figures 1b and 5a over layers, both over the loss, and 5b over fine-tuning."""
    names = _names(measured)
    whole = [
        (names[model.line], found.layers)
        for model, found in measured
        if not model.task and not model.kept_at
    ]
    masks = [_line(name, [one["mask"] for one in layers]) for name, layers in whole]
    gaps = [
        _line(name, [one["real_without"] - one["real_with"] for one in layers])
        for name, layers in whole
    ]
    return [
        Lines("<mask> tokens (1b)", "layer", _RANK, masks),
        Lines("real tokens: without masks less with (5a)", "layer", _RANK, gaps),
        *_over_loss(measured, names),
        *_over_tuning(measured, names),
    ]


def _names(measured: Measured) -> dict[str, str]:
    """Return for each line its label, with the run where another line has the same."""
    first = {model.line: model for model, _ in reversed(measured)}
    labels = [model.label for model in first.values()]
    return {
        line: model.label if labels.count(model.label) == 1 else f"{model.label} ({model.run})"
        for line, model in first.items()
    }


def _over_loss(measured: Measured, names: Mapping[str, str]) -> list[Lines]:
    """Return the last layer's ranks over the loss, where models were kept on the way."""
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
            [_means(name, points, tokens) for name, points in lines.items()],
        )
        for title, tokens in (
            ("<mask> tokens", "mask"),
            ("real tokens, no masks present", "real_without"),
        )
    ]


def _over_tuning(measured: Measured, names: Mapping[str, str]) -> list[Lines]:
    """Return for each task the last layer's rank on real tokens over the steps of fine-tuning."""
    panels = []
    for task in sorted({model.task for model, _ in measured if model.task}):
        lines: dict[str, Points] = {}
        for model, found in measured:
            if model.task in ("", task) and not model.kept_at:
                lines.setdefault(names[model.line], []).append((model.steps, found))
        series = [_means(name, points, "real_without") for name, points in lines.items()]
        title = f"real tokens, last layer, {task} (5b)"
        panels.append(Lines(title, "steps of fine-tuning", _RANK, series))
    return panels


def _means(name: str, points: Points, tokens: str) -> Series:
    """Return the last layer's rank of a set of tokens over places; means where one has several."""
    found: dict[float, list[int]] = {}
    for place, ranks in points:
        found.setdefault(place, []).append(ranks.layers[-1][tokens])
    places = sorted(found)
    return Series(name, [sum(found[x]) / len(found[x]) for x in places], places)


def _line(name: str, values: Sequence[int]) -> Series:
    return Series(name, list(values), list(range(len(values))))
