"""Means of numbers that each intermediate run has, with intervals and tests over runs."""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from maskpolicy.analyses.plots import Series
from maskpolicy.core.types import Json
from maskpolicy.leaderboard import stats
from maskpolicy.leaderboard.baselines import baselines_of
from maskpolicy.leaderboard.comparisons import FEWEST
from maskpolicy.leaderboard.results.cell import Run

Place = TypeVar("Place", bound=Hashable)
RowPlace = TypeVar("RowPlace", bound=tuple[Any, ...])
TESTED = ("low", "high", "p (Holm)", "detectable")
"""Columns of a test: the 95% interval, the adjusted p, and the mean that the test would find."""


def interval(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the ends of Student's 95% interval of a mean; None for a single value."""
    if len(values) < 2:
        return None, None
    error = statistics.stdev(values) / len(values) ** 0.5
    return stats.interval(statistics.fmean(values), error, len(values) - 1)


def mean(name: str, values: Iterable[float]) -> dict[str, Json]:
    """Return the mean of the values of runs as the column `name`, with its 95% interval."""
    known = list(values)
    low, high = interval(known)
    return {name: statistics.fmean(known), "low": low, "high": high}


def tested(found: Mapping[Place, Sequence[float]]) -> dict[Place, dict[str, Json]]:
    """Test whether each place's mean differs from 0, as one family; return the columns `TESTED`.

    `found` has one number for each run. A place with fewer than three runs, or with the same number
    in all of them, has no test; it is left out. `detectable` is None where p is below the level.
    """
    places = [
        place
        for place, values in found.items()
        if len(values) >= FEWEST and not stats.are_equal(np.array(values))
    ]
    verdicts = [stats.replicated(np.array([found[place]]))[0] for place in places]
    adjusted = stats.holm([float(each.p) for each in verdicts]) if verdicts else ()
    tests: dict[Place, dict[str, Json]] = {}
    for place, verdict, p in zip(places, verdicts, adjusted, strict=True):
        error = float(verdict.error)
        ends = stats.interval(statistics.fmean(found[place]), error, verdict.freedom)
        reach = error * stats.detectable(verdict.freedom, len(places))
        held = (*ends, float(p), None if p < stats.LEVEL else reach)
        tests[place] = dict(zip(TESTED, held, strict=True))
    return tests


def of_difference(test: Mapping[str, Json]) -> dict[str, Json]:
    """Return the columns of a test under the names that a table with other intervals has."""
    ends = ("low", "high")
    return {f"difference {name}" if name in ends else name: test[name] for name in test}


def paired(mine: Mapping[int, float], other: Mapping[int, float]) -> list[float]:
    """Return the differences of two rows' numbers in the runs that both have, in order."""
    return [mine[run] - other[run] for run in sorted(mine.keys() & other.keys())]


def against_baselines(
    numbers: Mapping[RowPlace, Mapping[int, float]], runs: Sequence[Run]
) -> dict[RowPlace, list[float]]:
    """Return the differences to the baseline at the same place, one for each run that both have.

    A place is the name of a run of the experiment, a row, and what the numbers are of. Places of
    baselines, and those that share no intermediate run with the baseline's, are left out.
    """
    bases = baselines_of(runs)
    known: dict[tuple[Any, ...], Mapping[int, float]] = dict(numbers.items())
    pairs: dict[RowPlace, list[float]] = {}
    for place, mine in numbers.items():
        run, row, *what = place
        base = bases[run, row]
        other = known.get((run, base, *what), {})
        if base != row and mine.keys() & other.keys():
            pairs[place] = paired(mine, other)
    return pairs


def series(
    label: str, rows: Sequence[Mapping[str, Json]], value: str, x: Sequence[float] = ()
) -> Series:
    """Return a line, or bars, of the column `value` with the bounds in `low` and `high`."""
    low, high = ([row[end] for row in rows] for end in ("low", "high"))
    known = all(bound is not None for bound in low)
    y = [row[value] for row in rows]
    return Series(label, y, x, low if known else (), high if known else ())
