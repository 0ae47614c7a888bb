"""Meng et al.'s figures (2024) of models' ranks: by layer, over the loss, over fine-tuning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from maskpolicy.plots import Lines, Series
from maskpolicy.ranks import Ranks


@dataclass(frozen=True, eq=False)
class Model:
    """One model whose ranks are wanted: `task` and `steps` are of its fine-tuning, if any."""

    run: str
    label: str  # of its line
    task: str = ""
    steps: int = 0
    kept_at: int = 0  # the steps of pre-training after which it was kept; 0: all
    loss: float | None = None  # of the last steps of the pre-training that it comes from

    @property
    def name(self) -> str:
        """What it is called in the table."""
        return f"{self.label} at {self.kept_at}" if self.kept_at else self.label


Measured: TypeAlias = Sequence[tuple[Model, Ranks]]


def panels(measured: Measured, several: bool) -> list[Lines]:
    """Return figures 1b and 5a over layers, both over the loss, and 5b over fine-tuning.

    `several`: models of several runs are among them, so that labels name the run too.
    """
    whole = [(model, found) for model, found in measured if not model.task and not model.kept_at]
    base = [(_name(model, several), found) for model, found in whole]
    tuned = sorted({model.task for model, _ in measured if model.task})
    layers = "layer"
    masks = [_line(name, [one["mask"] for one in found.layers]) for name, found in base]
    gaps = [
        _line(name, [one["real_without"] - one["real_with"] for one in found.layers])
        for name, found in base
    ]
    return [
        Lines("<mask> tokens (1b)", layers, "effective rank", masks),
        Lines("real tokens: without masks less with (5a)", layers, "effective rank", gaps),
        *_over_loss(measured, several),
        *(_over_tuning(measured, task) for task in tuned),
    ]


def _over_loss(measured: Measured, several: bool) -> list[Lines]:
    """Return the last layer's ranks over the loss, where models were kept on the way."""
    lines: dict[str, list[tuple[float, Ranks]]] = {}
    for model, ranks in measured:
        if not model.task and model.loss is not None:
            lines.setdefault(_name(model, several), []).append((model.loss, ranks))
    if all(len(points) < 2 for points in lines.values()):
        return []
    found = []
    for title, name in (
        ("<mask> tokens", "mask"),
        ("real tokens, no masks present", "real_without"),
    ):
        series = []
        for label, points in lines.items():
            points = sorted(points, key=lambda point: point[0])
            last = [ranks.layers[-1][name] for _, ranks in points]
            series.append(Series(label, last, [loss for loss, _ in points]))
        found.append(
            Lines(f"{title}, last layer", "loss of pre-training", "effective rank", series)
        )
    return found


def _over_tuning(measured: Measured, task: str) -> Lines:
    """Return the last layer's rank on real tokens over the steps of fine-tuning; means of seeds."""
    points: dict[str, dict[int, list[int]]] = {}
    for model, found in measured:
        if model.task in ("", task) and not model.kept_at:
            of = points.setdefault(model.label, {}).setdefault(model.steps, [])
            of.append(found.layers[-1]["real_without"])
    series = [
        Series(label, [sum(y) / len(y) for _, y in sorted(line.items())], sorted(line))
        for label, line in points.items()
    ]
    title = f"real tokens, last layer, {task} (5b)"
    return Lines(title, "steps of fine-tuning", "effective rank", series)


def _line(name: str, values: Sequence[int]) -> Series:
    return Series(name, list(values), list(range(len(values))))


def _name(model: Model, several: bool) -> str:
    return f"{model.label} ({model.run})" if several and model.label != model.run else model.label
