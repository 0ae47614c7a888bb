"""Compare two rows on one task, paired by seed and example, and test the difference if valid."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from maskpolicy.leaderboard import stats
from maskpolicy.leaderboard.stats import Difference
from maskpolicy.results.cell import Result
from maskpolicy.results.predictions import CellAnswers

_FIXED = (
    "The test generalises to other seeds and other examples of the same kind. It holds the "
    "pre-trained model, the corpus and the world or data set fixed and does not cover others."
)
_DRAWN = (
    "The test generalises to other general models, other seeds and other examples of the same "
    "kind, because each seed has its own general model. It holds the corpus and the world or data "
    "set fixed and does not cover others."
)
_BOTH = (
    "The tests generalise to other seeds and other examples of the same kind, and, where each seed "
    "has its own general model, to other general models; the other tests hold it fixed. All hold "
    "the corpus and the world or data set fixed and do not cover others."
)
WHOLE = (
    "the metric is a correlation or a mean of two figures over all examples, so there are no "
    "scores of single examples to pair"
)
NO_ANSWERS = "the folder of results has no predictions"
FEWEST = 3  # seeds, each with its own intermediate run, that a test needs
Reader = Callable[[Result], CellAnswers | None]
Cells = Mapping[int, Result | None]
"""The cells of one row and task, by seed."""


@dataclass(frozen=True)
class Estimate:
    """A mean difference over examples in points, with its unadjusted 95% confidence interval."""

    difference: float
    low: float
    high: float
    p: float  # two-sided, before adjustment
    groups: int
    detectable: float  # the difference that this leaderboard finds with a probability of 80%


@dataclass(frozen=True)
class Comparison:
    """The comparison of two rows on one task or average; `reason` is why there is no test."""

    seeds: int  # shared by both rows
    estimate: Estimate | None = None  # set by `assess_family`
    p_holm: float | None = None  # adjusted over all tests of the family
    reason: str | None = None
    pair: Difference | None = field(default=None, compare=False, repr=False)
    is_average: bool = False  # over tasks
    paired: tuple[int, ...] = field(default=(), compare=False, repr=False)  # the shared seeds
    draws_general: bool = False  # whether each seed has its own general model
    lacks_runs: bool = False  # whether more seeds with their own intermediate runs allow a test

    @property
    def is_significant(self) -> bool:
        """Whether the adjusted p-value is below `stats.LEVEL`."""
        return self.p_holm is not None and self.p_holm < stats.LEVEL


def condition(comparisons: Iterable[Comparison | None]) -> str:
    """Return what the tests generalise to and what they hold fixed; "" without tests."""
    kinds = {each.draws_general for each in comparisons if each is not None and each.estimate}
    if not kinds:
        return ""
    return _BOTH if len(kinds) > 1 else _DRAWN if kinds.pop() else _FIXED


def compare(
    row: Cells, base: Cells, read: Reader, rows: tuple[str, str] = ("row", "baseline")
) -> Comparison:
    """Pair two rows on one task by seed and example; `assess_family` then tests the family.

    `row` and `base` map seeds to results; `rows` are names unique within the family. A test needs
    at least FEWEST seeds, each with its own intermediate run: the data cannot show the variance
    that a shared run adds. The same holds for general models, unless all seeds share one, which
    the test then holds fixed.
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
    known = [(mine, other) for mine, other in answers if mine is not None and other is not None]
    if len(known) < len(pairs):
        return Comparison(len(pairs), reason=NO_ANSWERS)
    first = known[0][0]
    if any(one.examples != first.examples for pair in known for one in pair):
        return Comparison(len(pairs), reason="the rows answered different examples")
    if not first.groups.any():
        return Comparison(len(pairs), reason="all examples share one paragraph or document")
    mine, other = (np.stack([cell.scores for cell in row]) for row in zip(*known, strict=True))
    if not np.ptp(mine - other):
        reason = "the difference is the same for every seed and example"
        return Comparison(len(pairs), reason=reason)
    difference = stats.pair(mine, other, first.groups, rows)
    drawn = len({_general(cell) for cell, _ in pairs}) > 1
    paired = tuple(cell.seed for cell, _ in pairs)
    return Comparison(len(pairs), pair=difference, paired=paired, draws_general=drawn)


def average(members: Sequence[Comparison | None]) -> Comparison:
    """Return the comparison of two rows on the average of several tasks, one for each member."""
    pairs = [each.pair for each in members if each is not None and each.pair is not None]
    seeds = {each.paired for each in members if each is not None}
    if len(pairs) < len(members) or len(seeds) > 1:
        return Comparison(0, reason="not all of its tasks could be tested for the same seeds")
    paired = seeds.pop()
    drawn = all(each.draws_general for each in members if each is not None)
    mean = stats.average(pairs)
    return Comparison(len(paired), pair=mean, is_average=True, paired=paired, draws_general=drawn)


def assess_family(comparisons: Sequence[Comparison | None]) -> list[Comparison | None]:
    """Return the comparisons with estimates and p-values adjusted over all tests (Holm)."""
    tested = {
        index: each
        for index, each in enumerate(comparisons)
        if each is not None and each.pair is not None
    }
    order = sorted(tested, key=lambda index: tested[index].is_average)
    single = [each.pair for each in tested.values() if each.pair and not each.is_average]
    means = [each.pair for each in tested.values() if each.pair and each.is_average]
    verdicts = dict(zip(order, stats.assess_family(single, means), strict=True))
    return [
        replace(
            each,
            estimate=_estimate(each.pair, verdicts[index], len(tested)),
            p_holm=float(verdicts[index].p_holm),
        )
        if each and each.pair
        else each
        for index, each in enumerate(comparisons)
    ]


def _estimate(pair: Difference, verdict: stats.Verdict, tests: int) -> Estimate:
    mean, error = 100 * float(pair.mean), 100 * float(verdict.error)
    low, high = stats.interval(mean, error, verdict.freedom)
    detectable = error * stats.detectable(verdict.freedom, tests)
    return Estimate(mean, low, high, float(verdict.p), pair.groups, detectable)


def _pairs(row: Cells, base: Cells) -> list[tuple[Result, Result]]:
    """Return the pair of results of each seed that has a score in both rows."""
    pairs = []
    for seed in sorted(row.keys() & base.keys()):
        mine, other = row[seed], base[seed]
        if mine and other and mine.metrics and other.metrics:
            pairs.append((mine, other))
    return pairs


def _shared(cells: Sequence[Result]) -> str | None:
    """Return a reason if seeds share an intermediate run; rows without that stage share none."""
    staged = [cell.config for cell in cells if "intermediate" in cell.config]
    known = {config.get("intermediate_seed", 0) for config in staged}
    if not known or len(known) == len(cells):
        return None
    if len(known) == 1:
        return "all seeds share one intermediate run: its noise is part of the difference"
    return (
        f"{len(cells)} seeds share {len(known)} intermediate runs: a test cannot see their variance"
    )


def _general(cell: Result) -> int:
    """Return the number of the general model that a cell starts from."""
    return int(cell.config.get("general_seed", 0))


def _shared_general(pairs: Sequence[tuple[Result, Result]]) -> str | None:
    """Return a reason if only some seeds share a general model, or if the rows' models differ."""
    if any(_general(mine) != _general(other) for mine, other in pairs):
        return "the two rows start from different general models"
    models = {_general(mine) for mine, _ in pairs}
    if 1 < len(models) < len(pairs):
        return (
            f"{len(pairs)} seeds share {len(models)} general models: "
            "a test cannot see their variance"
        )
    return None
