"""A cell against the baseline's: paired by seed and example, tested where that says something."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from maskpolicy.leaderboard import stats
from maskpolicy.leaderboard.stats import Difference
from maskpolicy.results.cell import Result
from maskpolicy.results.predictions import CellAnswers

_FIXED = (
    "The test answers for other seeds and other examples of the same kind. It holds the "
    "pre-trained model, the corpus and the world or data set fixed, and says nothing about others."
)
_DRAWN = (
    "The test answers for other general models, other seeds and other examples of the same kind, "
    "because each seed has a general model of its own. It holds the corpus and the world or data "
    "set fixed, and says nothing about others."
)
_BOTH = (
    "The tests answer for other seeds and other examples of the same kind, and, where each seed "
    "has a general model of its own, for other general models; the other tests hold it fixed. All "
    "hold the corpus and the world or data set fixed, and say nothing about others."
)
WHOLE = (
    "the metric is a correlation or a mean of two figures over all examples, so it has no score "
    "for each example to pair"
)
NO_ANSWERS = "no predictions lie beside the results"
FEWEST = 3  # seeds with an intermediate run of their own, for a mark of significance
Reader = Callable[[Result], CellAnswers | None]
Cells = Mapping[int, Result | None]
"""The cells of one row and task, by seed."""


@dataclass(frozen=True)
class Estimate:
    """A mean difference over examples in points, with its own 95% interval."""

    difference: float
    low: float
    high: float
    p: float  # of a difference as large as this one, if there is none
    groups: int
    detectable: float  # the difference that this leaderboard finds with a probability of 80%


@dataclass(frozen=True)
class Comparison:
    """One cell against the baseline; without a test, `reason` says why."""

    seeds: int  # in both rows
    found: Estimate | None = None  # once its family was judged
    p_holm: float | None = None  # adjusted over all tests of the family
    reason: str | None = None
    pair: Difference | None = field(default=None, compare=False, repr=False)
    is_average: bool = False  # over tasks
    paired: tuple[int, ...] = field(default=(), compare=False, repr=False)  # the seeds
    draws_general: bool = False  # whether each seed has a general model of its own
    lacks_runs: bool = False  # whether more seeds with intermediate runs of their own would help

    @property
    def is_significant(self) -> bool:
        """Whether the difference stands after the adjustment."""
        return self.p_holm is not None and self.p_holm < stats.LEVEL


def condition(comparisons: Iterable[Comparison | None]) -> str:
    """Return what the tests among these comparisons answer for, "" if there are none."""
    kinds = {each.draws_general for each in comparisons if each is not None and each.found}
    if not kinds:
        return ""
    return _BOTH if len(kinds) > 1 else _DRAWN if kinds.pop() else _FIXED


def compare(
    row: Cells, base: Cells, read: Reader, rows: tuple[str, str] = ("row", "baseline")
) -> Comparison:
    """Pair a row with the baseline on one task; `judge` tests it among its family.

    `rows` are two names of which no other row of the family has one.
    There is no test unless every seed has its own intermediate run and there are three or more:
    the luck of a shared run is part of the difference, and nothing in the data shows how large.
    The same holds for general models, unless all seeds rest on one: then the test holds it fixed.
    """
    pairs = _pairs(row, base)
    reason = _shared([mine for mine, _ in pairs]) or _shared([other for _, other in pairs])
    lacks_runs = reason is not None
    reason = reason or _shared_general(pairs)
    if reason is None and len(pairs) < FEWEST:
        reason = f"{len(pairs)} seed{'s'[: len(pairs) != 1]} in both rows: a test needs {FEWEST}"
        lacks_runs = True
    if reason is not None:
        return Comparison(len(pairs), reason=reason, lacks_runs=lacks_runs)
    scored = [cell.metrics for pair in pairs for cell in pair if cell.metrics is not None]
    if len({(one.metric, one.version) for one in scored}) > 1:
        return Comparison(len(pairs), reason="the rows were scored by different metrics")
    if any(one.mean is not None for one in scored):
        return Comparison(len(pairs), reason=WHOLE)
    answers = [(read(mine), read(other)) for mine, other in pairs]
    found = [(mine, other) for mine, other in answers if mine is not None and other is not None]
    if len(found) < len(pairs):
        return Comparison(len(pairs), reason=NO_ANSWERS)
    first = found[0][0]
    if any(one.examples != first.examples for pair in found for one in pair):
        return Comparison(len(pairs), reason="the rows were not asked the same examples")
    if not first.groups.any():
        return Comparison(len(pairs), reason="all examples share one paragraph or document")
    mine, other = (np.stack([cell.scores for cell in row]) for row in zip(*found, strict=True))
    if not np.ptp(mine - other):
        reason = "the difference is the same for every seed and example"
        return Comparison(len(pairs), reason=reason)
    made = stats.pair(mine, other, first.groups, rows)
    drawn = len({_general(cell) for cell, _ in pairs}) > 1
    paired = tuple(cell.seed for cell, _ in pairs)
    return Comparison(len(pairs), pair=made, paired=paired, draws_general=drawn)


def average(members: Sequence[Comparison | None]) -> Comparison:
    """Return the comparison of two rows on the average of several tasks."""
    pairs = [each.pair for each in members if each is not None and each.pair is not None]
    seeds = {each.paired for each in members if each is not None}
    if len(pairs) < len(members) or len(seeds) > 1:
        return Comparison(0, reason="not all of its tasks could be tested for the same seeds")
    paired = seeds.pop()
    drawn = all(each.draws_general for each in members if each is not None)
    made = stats.average(pairs)
    return Comparison(len(paired), pair=made, is_average=True, paired=paired, draws_general=drawn)


def judge(comparisons: Sequence[Comparison | None]) -> list[Comparison | None]:
    """Return the comparisons of one family with their tests, p-values adjusted for all of them."""
    tested = {
        index: each
        for index, each in enumerate(comparisons)
        if each is not None and each.pair is not None
    }
    order = sorted(tested, key=lambda index: tested[index].is_average)
    single = [each.pair for each in tested.values() if each.pair and not each.is_average]
    means = [each.pair for each in tested.values() if each.pair and each.is_average]
    verdicts = dict(zip(order, stats.judge(single, means), strict=True))
    return [
        _judged(each, verdicts[index], len(tested)) if each and index in tested else each
        for index, each in enumerate(comparisons)
    ]


def _judged(comparison: Comparison, verdict: stats.Verdict, tests: int) -> Comparison:
    pair = comparison.pair
    if pair is None:
        return comparison
    mean, error = 100 * float(pair.mean), 100 * float(verdict.error)
    low, high = stats.interval(mean, error, verdict.freedom)
    found = Estimate(
        mean,
        low,
        high,
        float(verdict.p),
        pair.groups,
        error * stats.detectable(verdict.freedom, tests),
    )
    return replace(comparison, found=found, p_holm=float(verdict.p_holm))


def _pairs(row: Cells, base: Cells) -> list[tuple[Result, Result]]:
    """Return the cells of the seeds that have a score in both rows."""
    found = []
    for seed in sorted(row.keys() & base.keys()):
        mine, other = row[seed], base[seed]
        if mine and other and mine.metrics and other.metrics:
            found.append((mine, other))
    return found


def _shared(cells: Sequence[Result]) -> str | None:
    """Say so if seeds share an intermediate run; a row without that stage has none to share."""
    staged = [cell.config for cell in cells if "intermediate" in cell.config]
    known = {config.get("intermediate_seed", 0) for config in staged}
    if not known or len(known) == len(cells):
        return None
    if len(known) == 1:
        return "one intermediate run for all seeds: its luck is part of the difference"
    return f"{len(cells)} seeds share {len(known)} intermediate runs: luck that a test cannot see"


def _general(cell: Result) -> int:
    """Return the number of the general model behind a cell."""
    return int(cell.config.get("general_seed", 0))


def _shared_general(pairs: Sequence[tuple[Result, Result]]) -> str | None:
    """Say so if some seeds share a general model and others do not, or if the rows share none."""
    if any(_general(mine) != _general(other) for mine, other in pairs):
        return "the two rows start from different general models"
    found = {_general(mine) for mine, _ in pairs}
    if 1 < len(found) < len(pairs):
        return f"{len(pairs)} seeds share {len(found)} general models: luck that a test cannot see"
    return None
