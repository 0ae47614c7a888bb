"""Ranks as numbers of intermediate runs, their means, and tests over runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from maskpolicy.findings import over_runs
from maskpolicy.findings.representations import Ranks
from maskpolicy.findings.representations.figures import GAP, Measured, MeasuredModel
from maskpolicy.types import Json

COLUMNS = (
    *("run", "policy", "tau", "centred", "set", "layer", "mean", "low", "high", "runs"),
    *("p (Holm)", "detectable"),
)
RISE, NEAREST = "last less first", "last, less the baseline's at the nearest loss"
_SETS = ("mask", "real_without", "gap")
_KEYS = COLUMNS[:6]
Bases: TypeAlias = Mapping[tuple[str, str], str]
"""By run and row, the row that it is compared with."""


def values(measured: Measured, taus: Sequence[float], bases: Bases) -> list[dict[str, Json]]:
    """Return the numbers of each pre-trained model at the end of its stage.

    `layer` is a layer's number; RISE, the last layer's rank less that of the input layer; or
    NEAREST: the gap in the last layer less that of the baseline's model, kept on the way or at the
    end, of the same intermediate run and the nearest loss.
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
        place = tuple(number[name] for name in _KEYS)
        groups.setdefault(place, {})[number["stage"]] = number["value"]
    compared = {
        place: list(found.values())
        for place, found in groups.items()
        if place[-1] == NEAREST or (place[-2:] == ("mask", RISE))
    }
    tests = over_runs.tested(compared)
    return [
        {
            **dict(zip(_KEYS, place, strict=True)),
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
    for name in _SETS:
        ranks = _ranks(found, name, tau, centred)
        for layer, rank in enumerate(ranks):
            yield {"set": name, "layer": layer, "value": rank}
        yield {"set": name, "layer": RISE, "value": ranks[-1] - ranks[0]}
    if near is not None:
        gaps = [_ranks(each, "gap", tau, centred)[-1] for each in (found, near)]
        yield {"set": "gap", "layer": NEAREST, "value": gaps[0] - gaps[1]}


def _ranks(found: Ranks, name: str, tau: float, centred: bool) -> list[int]:
    more, less = GAP
    return [
        layer[more] - layer[less] if name == "gap" else layer[name]
        for layer in found.layers(tau, centred)
    ]


def _nearest(model: MeasuredModel, pretrained: Measured, bases: Bases) -> Ranks | None:
    """Return the ranks of the baseline's model of the same run whose loss is nearest."""
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
