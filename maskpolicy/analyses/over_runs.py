"""Means of numbers over intermediate runs, with intervals and tests, and over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from maskpolicy.analyses.plots import Lines, Series
from maskpolicy.core.types import Json
from maskpolicy.leaderboard import stats
from maskpolicy.leaderboard.comparisons import FEWEST, baselines_of
from maskpolicy.leaderboard.results.cell import Run

Place = TypeVar("Place", bound=Hashable)
RowPlace = TypeVar("RowPlace", bound=tuple[Any, ...])
TESTED = ("low", "high", "p (Holm)", "detectable")
"""Columns of a test: the 95% interval, the adjusted p, and the smallest mean that it detects."""


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


def over_seeds(seeds: Sequence[Sequence[float]]) -> dict[str, Json]:
    """Return the columns of scores in percent, from those of the examples (0 to 1) by seed."""
    means = [100 * statistics.fmean(scores) for scores in seeds]
    return {
        "score": statistics.fmean(means) if means else None,
        "std": statistics.stdev(means) if len(means) > 1 else None,
        "examples": len(seeds[0]) if seeds else 0,
        "seeds": len(means),
    }


def tested(found: Mapping[Place, Sequence[float]]) -> dict[Place, dict[str, Json]]:
    """Test whether each place's mean differs from 0, as one family; return the columns `TESTED`.

    `found` has one number for each run. Places with fewer than three runs, or with the same number
    in all runs, have no test and are left out. `detectable` is None where p is below the level.
    """
    places = [
        place
        for place, values in found.items()
        if len(values) >= FEWEST and not stats.are_equal(np.array(values))
    ]
    verdicts = [stats.replicated(np.array([found[place]]))[0] for place in places]
    adjusted = stats.holm([float(each.p) for each in verdicts])
    tests: dict[Place, dict[str, Json]] = {}
    for place, verdict, p in zip(places, verdicts, adjusted, strict=True):
        reach = float(verdict.error) * stats.detectable(verdict.freedom, len(places))
        held = (*interval(found[place]), float(p), None if p < stats.LEVEL else reach)
        tests[place] = dict(zip(TESTED, held, strict=True))
    return tests


def percent(share: float | None) -> float | None:
    """Return a share in percent; None for an unknown one."""
    return None if share is None else 100 * share


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


def differences(
    numbers: Mapping[RowPlace, Mapping[int, float]], runs: Sequence[Run]
) -> dict[RowPlace, dict[str, Json]]:
    """Return the mean differences `against_baselines`, tested as one family, as columns.

    Those of the interval are not `low` and `high`, which are those of the row's own number.
    """
    pairs = against_baselines(numbers, runs)
    tests = tested(pairs)
    names = {"low": "difference low", "high": "difference high"}
    return {
        place: {"difference": statistics.fmean(each)}
        | {names.get(name, name): value for name, value in tests.get(place, {}).items()}
        for place, each in pairs.items()
    }


def staged(runs: Sequence[Run]) -> set[tuple[str, str]]:
    """Return run and label of each row with an intermediate stage."""
    return {(run.name, r.policy) for run in runs for r in run.results if "intermediate" in r.config}


def without_baseline(runs: Sequence[Run]) -> list[str]:
    """Return a note for each run with rows whose baseline has no intermediate stage."""
    with_stage, rows = staged(runs), baselines_of(runs).items()
    bases = {(run, base) for (run, row), base in rows if (run, row) in with_stage} - with_stage
    return [
        f"{run}: has no differences, because the baseline {base} has no intermediate stage: set "
        "baseline: ROW in the experiment"
        for run, base in sorted(bases)
    ]


def series(
    label: str, rows: Sequence[Mapping[str, Json]], value: str, x: Sequence[float] = ()
) -> Series:
    """Return a line, or bars, of the column `value` with the bounds in `low` and `high`."""
    low, high = ([row[end] for row in rows] for end in ("low", "high"))
    known = any(bound is not None for bound in low)
    y = [row[value] for row in rows]
    return Series(label, y, x, low if known else (), high if known else ())


def label(row: Mapping[str, Json], several: bool) -> str:
    """Return the label of a table's row, with its run if there are several runs."""
    return f"{row['policy']} ({row['run']})" if several else str(row["policy"])


def panels(
    rows: Sequence[Mapping[str, Json]], by: str, x: str, axis: str, value: str, several: bool
) -> Iterator[Lines]:
    """Yield a panel for each value of the column `by`: a line for each policy over the column `x`.

    `axis` says what `x` is. Rows without `x` are left out.
    """
    for title in dict.fromkeys(row[by] for row in rows):
        lines: dict[str, list[Mapping[str, Json]]] = {}
        for row in rows:
            if row[by] == title and row.get(x) is not None:
                lines.setdefault(label(row, several), []).append(row)
        drawn = [
            series(name, line, value, [float(row[x]) for row in line])
            for name, line in lines.items()
        ]
        yield Lines(title, axis, f"{value} (%)", drawn)
