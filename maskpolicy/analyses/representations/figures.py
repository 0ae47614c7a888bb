"""Meng et al.'s figures (2024) of models' ranks: by layer, over the loss, over fine-tuning."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeAlias

from maskpolicy.analyses import over_runs
from maskpolicy.analyses.plots import Lines, Series
from maskpolicy.analyses.representations import Ranks
from maskpolicy.core.types import Json

_RANK = "effective rank"


@dataclass(frozen=True, eq=False)
class MeasuredModel:
    """One measured model."""

    run: str
    label: str  # of its row, with the number of its intermediate run if there are several
    line: str  # the same for models that form one line over loss or over fine-tuning
    row: str  # the label of its row; the name of a model that belongs to no run
    task: str = ""  # of its fine-tuning, "" for a pre-trained model
    steps: int = 0  # of its fine-tuning
    kept_at: int = 0  # steps of pre-training, for a checkpoint; 0: all
    loss: float | None = None  # mean over the last steps of its pre-training
    stage: int = 0  # number of its intermediate run

    @property
    def name(self) -> str:
        """Its name in the table."""
        return f"{self.label} at {self.kept_at}" if self.kept_at else self.label


Measured: TypeAlias = Sequence[tuple[MeasuredModel, Ranks]]
Points: TypeAlias = list[tuple[int, int, float, Ranks]]
"""The points of a line: steps, which runs share, the place on the axis, and the ranks there."""


def panels(measured: Measured, taus: Sequence[float] = (0.9,)) -> list[Lines]:
    """Return figures 1a, 1b and 5a over layers, then ranks over the loss, and 5b over fine-tuning.

    There is a figure 5a for each of `taus`; the others use the first. Lines are means over the
    intermediate runs of a row, with Student's 95% interval.
    """
    names = _names(measured)
    whole: dict[str, list[Ranks]] = {}
    for model, found in measured:
        if not model.task and not model.kept_at:
            whole.setdefault(names[model.line], []).append(found)

    def lines(title: str, tokens: str, tau: float = taus[0]) -> Lines:
        """Return the rank of a token set, or the gap, over layers."""
        series = []
        for name, runs in whole.items():
            of_runs = [_ranks(found, tokens, tau) for found in runs]
            series.append(_line(name, enumerate(zip(*of_runs, strict=True))))
        return Lines(title, "layer", _RANK, series)

    return [
        lines("all tokens, masks present (1a)", "all_with_masks"),
        lines("all tokens, no masks (1a)", "all_without"),
        lines("<mask> tokens (1b)", "mask"),
        *(lines(f"with masks less without (5a), {tau:g}", "gap", tau) for tau in taus),
        *_over_loss(measured, names, taus[0]),
        *_over_tuning(measured, names, taus[0]),
    ]


def _names(measured: Measured) -> dict[str, str]:
    """Return the name of each line: its row, with the run if several runs have this row."""
    first = {model.line: model for model, _ in reversed(measured)}
    rows = {(model.row, model.run) for model in first.values()}
    labels = [row for row, _ in rows]
    return {
        line: model.row if labels.count(model.row) == 1 else f"{model.row} ({model.run})"
        for line, model in first.items()
    }


def _over_loss(measured: Measured, names: Mapping[str, str], tau: float) -> list[Lines]:
    """Return the last layer's ranks over the pre-training loss, if there are checkpoints."""
    lines: dict[str, Points] = {}
    for model, found in measured:
        if not model.task and model.loss is not None:
            point = (model.kept_at, model.stage, model.loss, found)
            lines.setdefault(names[model.line], []).append(point)
    if all(len({steps for steps, *_ in points}) < 2 for points in lines.values()):
        return []
    sets = {"<mask> tokens": "mask", "real tokens, no masks present": "real_without"}
    panels = []
    for title, tokens in sets.items():
        series = [_means(name, points, tokens, tau) for name, points in lines.items()]
        panels.append(Lines(f"{title}, last layer", "loss of pre-training", _RANK, series))
    return panels


def _over_tuning(measured: Measured, names: Mapping[str, str], tau: float) -> list[Lines]:
    """Return for each task the last layer's rank of real tokens over steps of fine-tuning."""
    panels = []
    for task in sorted({model.task for model, _ in measured if model.task}):
        lines: dict[str, Points] = {}
        for model, found in measured:
            if model.task in ("", task) and not model.kept_at:
                point = (model.steps, model.stage, float(model.steps), found)
                lines.setdefault(names[model.line], []).append(point)
        series = [_means(name, points, "real_without", tau) for name, points in lines.items()]
        title = f"real tokens, last layer, {task} (5b)"
        panels.append(Lines(title, "steps of fine-tuning", _RANK, series))
    return panels


def _means(name: str, points: Points, tokens: str, tau: float) -> Series:
    """Return the last layer's rank of a token set over x, and its mean after equal steps.

    The seeds of fine-tuning of one intermediate run are averaged first.
    """
    found: dict[int, dict[int, list[tuple[float, int]]]] = {}
    for steps, stage, place, ranks in points:
        of_run = found.setdefault(steps, {}).setdefault(stage, [])
        of_run.append((place, ranks.layers(tau)[-1][tokens]))
    averaged = [
        (
            fmean(place for group in of_runs.values() for place, _ in group),
            [fmean(rank for _, rank in group) for group in of_runs.values()],
        )
        for of_runs in found.values()
    ]
    return _line(name, sorted(averaged, key=lambda point: point[0]))


def _line(name: str, points: Iterable[tuple[float, Sequence[float]]]) -> Series:
    """Return the means of ranks over x, with an interval of each point that has several ranks."""
    places, ranks = zip(*points, strict=True)
    means = [over_runs.mean("rank", each) for each in ranks]
    return over_runs.series(name, means, "rank", places)


COLUMNS = (
    *("run", "policy", "tau", "centred", "set", "layer", "mean", "low", "high", "runs"),
    *("p (Holm)", "detectable"),
)
RISE, NEAREST = "last less first", "last, less the baseline's at the nearest loss"
_SETS_OF_NUMBERS = ("mask", "real_without", "gap")
_PLACE_COLUMNS = COLUMNS[:6]
Bases: TypeAlias = Mapping[tuple[str, str], str]
"""By run and row, the row that it is compared with."""


def values(measured: Measured, taus: Sequence[float], bases: Bases) -> list[dict[str, Json]]:
    """Return the numbers of each pre-trained model at the end of its stage.

    `layer` is the number of a layer; RISE: the rank of the last layer minus that of the input
    layer; or NEAREST: the gap in the last layer minus the gap in the baseline's model, or its
    checkpoint, of the same intermediate run with the nearest loss.
    """
    pretrained = [(model, found) for model, found in measured if not model.task]
    made = []
    for model, found in pretrained:
        if model.kept_at:
            continue
        head = {"run": model.run, "policy": model.row, "stage": model.stage}
        near = _nearest(model, pretrained, bases)
        for tau in taus:
            for centred in (False, True):
                about = {**head, "tau": tau, "centred": centred}
                made += [{**about, **each} for each in _numbers(found, tau, centred, near)]
    return made


def table(numbers: Sequence[Mapping[str, Json]]) -> list[dict[str, Json]]:
    """Return the mean of each number over runs; rises and differences are tested as one family."""
    groups: dict[tuple[Json, ...], dict[int, float]] = {}
    for number in numbers:
        place = tuple(number[name] for name in _PLACE_COLUMNS)
        groups.setdefault(place, {})[number["stage"]] = number["value"]
    compared = {
        place: list(found.values())
        for place, found in groups.items()
        if place[-1] == NEAREST or (place[-2:] == ("mask", RISE))
    }
    tests = over_runs.tested(compared)
    return [
        {
            **dict(zip(_PLACE_COLUMNS, place, strict=True)),
            **over_runs.mean("mean", found.values()),
            "runs": len(found),
            **tests.get(place, {}),
        }
        for place, found in groups.items()
    ]


def _numbers(
    found: Ranks, tau: float, centred: bool, near: Ranks | None
) -> Iterator[dict[str, Json]]:
    """Yield the ranks of each layer, their rise, and the difference of gaps."""
    for name in _SETS_OF_NUMBERS:
        ranks = _ranks(found, name, tau, centred)
        for layer, rank in enumerate(ranks):
            yield {"set": name, "layer": layer, "value": rank}
        yield {"set": name, "layer": RISE, "value": ranks[-1] - ranks[0]}
    if near is not None:
        gaps = [_ranks(each, "gap", tau, centred)[-1] for each in (found, near)]
        yield {"set": "gap", "layer": NEAREST, "value": gaps[0] - gaps[1]}


def _ranks(found: Ranks, name: str, tau: float, centred: bool = False) -> list[int]:
    """Return the ranks of a token set, or the gap, by layer."""
    return [layer[name] for layer in found.layers(tau, centred)]


def _nearest(model: MeasuredModel, pretrained: Measured, bases: Bases) -> Ranks | None:
    """Return the ranks of the baseline's model, of the same run, with the nearest loss."""
    base = bases.get((model.run, model.row))
    if model.loss is None or base in (None, model.row):
        return None
    loss = model.loss
    near = [
        (abs(other.loss - loss), ranks)
        for other, ranks in pretrained
        if (other.run, other.row, other.stage) == (model.run, base, model.stage)
        and other.loss is not None
    ]
    return min(near, key=lambda each: each[0])[1] if near else None
