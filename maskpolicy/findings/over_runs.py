"""Means of numbers that each intermediate run has, with intervals and tests over runs."""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from maskpolicy.leaderboard import stats
from maskpolicy.leaderboard.comparisons import FEWEST
from maskpolicy.plots import Series
from maskpolicy.types import Json

Place = TypeVar("Place", bound=Hashable)
TESTED = ("low", "high", "p (Holm)", "detectable")
"""Columns of a test: the 95% interval, the adjusted p, and the mean that the test would find."""


def interval(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the ends of Student's 95% interval of a mean; None for a single value."""
    if len(values) < 2:
        return None, None
    error = statistics.stdev(values) / len(values) ** 0.5
    return stats.interval(statistics.fmean(values), error, len(values) - 1)


def summary(numbers: Mapping[int, float]) -> dict[str, Json]:
    """Return the mean of the numbers of runs, its 95% interval, and the number of runs."""
    values = list(numbers.values())
    low, high = interval(values)
    return {"mean": statistics.fmean(values), "low": low, "high": high, "runs": len(values)}


def tested(found: Mapping[Place, Sequence[float]]) -> dict[Place, dict[str, Json]]:
    """Test whether each place's mean differs from 0, as one family; return the columns `TESTED`.

    `found` has one number for each run. A place with fewer than three runs, or with the same number
    in all of them, has no test; it is left out. `detectable` is None where p is below the level.
    """
    places = [
        place for place, values in found.items() if len(values) >= FEWEST and np.ptp(values) > 0
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


def series(
    label: str, rows: Sequence[Mapping[str, Json]], value: str, x: Sequence[float] = ()
) -> Series:
    """Return a line, or bars, of the column `value` with the bounds in `low` and `high`."""
    low, high = ([row[end] for row in rows] for end in ("low", "high"))
    known = all(bound is not None for bound in low)
    y = [row[value] for row in rows]
    return Series(label, y, x, low if known else (), high if known else ())
