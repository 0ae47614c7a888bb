"""Compare two rows on one task, paired by seed and example, and test the difference if valid."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TypeAlias

import numpy as np

from maskpolicy.core.types import Json
from maskpolicy.leaderboard import stats
from maskpolicy.leaderboard.results.cell import Result, Run
from maskpolicy.leaderboard.results.predictions import CellAnswers
from maskpolicy.leaderboard.stats import Difference
from maskpolicy.plugins.registry import DENOISING_KEYS

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
    "the metric is a figure over all examples, such as a correlation or corpus BLEU, so there are "
    "no scores of single examples to pair"
)
ONE_GROUP = "all examples share one paragraph or document"
SAME = "the difference is the same for every seed and every group of examples"
_MOST = 1000.0  # points of a detectable difference; more than 100 cannot occur
NO_ANSWERS = "the folder of results has no predictions"
DIGITS = 4  # after the point, in JSON files
FEWEST = 3  # seeds, each with its own intermediate run, that a test needs
Reader = Callable[[Result], CellAnswers | None]
Cells = Mapping[int, Result | None]
"""The cells of one row and task, by seed."""


def points(number: float, sign: str = "") -> str:
    """Return a number with one decimal, made of DIGITS, so that JSON files give the same text."""
    return f"{round(number, DIGITS):{sign}.1f}"


@dataclass(frozen=True)
class Estimate:
    """A mean difference over examples in points, with its unadjusted 95% confidence interval."""

    difference: float
    low: float
    high: float
    p: float  # two-sided, before adjustment
    groups: int
    detectable: float  # the difference that this leaderboard finds with a probability of 80%

    @property
    def interval(self) -> str:
        """The interval in words, e.g. "-1.0 to +2.0"."""
        return f"{points(self.low, '+')} to {points(self.high, '+')}"

    @property
    def finds(self) -> str:
        """The detectable difference in words; one of more than 100 points cannot occur."""
        return f"±{points(self.detectable)}" if self.detectable <= 100 else "none"


@dataclass(frozen=True)
class Comparison:
    """The comparison of two rows on one task or average; `reason` is why there is no test."""

    seeds: int  # shared by both rows
    estimate: Estimate | None = None  # set by `assess_family`
    p_holm: float | None = None  # adjusted over all tests of the family
    p_failing: float | None = None  # the same if runs either learn or fail, see `stats.FAILING`
    reason: str | None = None
    pair: Difference | None = field(default=None, compare=False, repr=False)
    paired: tuple[int, ...] = field(default=(), compare=False, repr=False)  # the shared seeds
    draws_general: bool = False  # whether each seed has its own general model

    @property
    def counts_for_ranks(self) -> bool:
        """Whether the rows are known to differ significantly or not; equal rows do not."""
        return self.estimate is not None or self.reason == SAME

    @property
    def is_significant(self) -> bool:
        """Whether the adjusted p-value is below `stats.LEVEL`."""
        return self.p_holm is not None and self.p_holm < stats.LEVEL

    @property
    def needs_steady_runs(self) -> bool:
        """Whether the difference is marked, but would not be if runs either learn or fail."""
        return self.is_significant and (self.p_failing or 0.0) >= stats.LEVEL


def condition(comparisons: Iterable[Comparison | None]) -> str:
    """Return what the tests generalise to and what they hold fixed; "" without tests."""
    kinds = {each.draws_general for each in comparisons if each is not None and each.estimate}
    return generality(kinds) if kinds else ""


def generality(kinds: Collection[bool]) -> str:
    """Return what tests generalise to; `kinds`: whether each seed has its own general model."""
    return _BOTH if len(kinds) > 1 else _DRAWN if any(kinds) else _FIXED


def compare(
    row: Cells, base: Cells, read: Reader, rows: tuple[str, str] = ("row", "baseline")
) -> Comparison:
    """Pair two rows on one task by seed and example; `assess_family` then tests the family.

    `row` and `base` map seeds to results; `rows` are names unique within the family. A test needs
    at least FEWEST seeds, each with its own intermediate run: the data cannot show the variance
    that a shared run adds. The same holds for general models, unless all seeds share one, which
    the test then holds fixed.
    """
    return weigh([(1.0, row), (-1.0, base)], read, rows)


def weigh(parts: Sequence[tuple[float, Cells]], read: Reader, rows: tuple[str, str]) -> Comparison:
    """Compare a weighted sum of rows on one task with 0; the weights have the sum 0.

    As `compare`, whose weights are 1 and -1.
    """
    found = matched([cells for _, cells in parts])
    of_rows = list(zip(*found, strict=True))
    reason = next(filter(None, map(_shared, of_rows)), None) or _shared_general(found)
    if reason is None and len(found) < FEWEST:
        both = "both" if len(parts) == 2 else "all"
        count = f"{len(found)} seed{'s'[: len(found) != 1]}"
        reason = f"{count} in {both} rows: a test needs {FEWEST}"
    if reason is not None:
        return Comparison(len(found), reason=reason)
    scored = [cell.metrics for cells in found for cell in cells if cell.metrics is not None]
    if len({(one.metric, one.version) for one in scored}) > 1:
        return Comparison(len(found), reason="the rows were scored by different metrics")
    if any(one.mean is not None for one in scored):
        return Comparison(len(found), reason=WHOLE)
    answers = [[read(cell) for cell in cells] for cells in of_rows]
    known = [[one for one in row if one is not None] for row in answers]
    if any(len(row) < len(found) for row in known):
        return Comparison(len(found), reason=NO_ANSWERS)
    first = known[0][0]
    if any(one.examples != first.examples for row in known for one in row):
        return Comparison(len(found), reason="the rows answered different examples")
    if not first.groups.any():
        return Comparison(len(found), reason=ONE_GROUP)
    weights = [weight for weight, _ in parts]
    scores = [np.stack([cell.scores for cell in row]) for row in known]
    weighted = list(zip(weights, scores, strict=True))
    difference = stats.weighted(weighted, first.groups, rows)
    if not difference.varies:
        return Comparison(len(found), reason=SAME)
    drawn = len({_general(cells[0]) for cells in found}) > 1
    paired = tuple(cells[0].seed for cells in found)
    return Comparison(len(found), pair=difference, paired=paired, draws_general=drawn)


def average(members: Sequence[Comparison | None]) -> Comparison:
    """Return the comparison of two rows on the average of several tasks, one for each member."""
    pairs = [each.pair for each in members if each is not None and each.pair is not None]
    seeds = {each.paired for each in members if each is not None}
    if len(pairs) < len(members) or len(seeds) > 1:
        return Comparison(0, reason="not all of its tasks could be tested for the same seeds")
    paired = seeds.pop()
    drawn = all(each.draws_general for each in members if each is not None)
    mean = stats.average(pairs)
    return Comparison(len(paired), pair=mean, paired=paired, draws_general=drawn)


def assess_family(comparisons: Sequence[Comparison | None]) -> list[Comparison | None]:
    """Return the comparisons with estimates and p-values adjusted over all tests (Holm)."""
    tested = [each.pair for each in comparisons if each and each.pair]
    failing = stats.assess_family(tested, stats.FAILING)
    verdicts = zip(stats.assess_family(tested), failing, strict=True)
    assessed: list[Comparison | None] = []
    for each in comparisons:
        if each and each.pair:
            verdict, worse = next(verdicts)
            (estimate,) = estimates(each.pair, verdict, len(tested))
            p_holm, p_failing = float(verdict.p_holm), float(worse.p_holm)
            one = replace(each, estimate=estimate, p_holm=p_holm, p_failing=p_failing)
            assessed.append(one)
        else:
            assessed.append(each)
    return assessed


def estimates(pair: Difference, verdict: stats.Verdict, tests: int) -> list[Estimate]:
    """Return the estimate of each pair of a difference in a family of `tests`."""
    mean, error, p = map(np.atleast_1d, (100 * pair.mean, 100 * verdict.error, verdict.p))
    half = stats.interval(0.0, 1.0, verdict.freedom)[1] * error
    low, high = np.clip((mean - half, mean + half), -100, 100)
    finds = np.minimum(_MOST, error * stats.detectable(verdict.freedom, tests))
    numbers = (mean, low, high, p, finds)
    return [
        Estimate(difference, start, end, p_value, pair.groups, finds)
        for difference, start, end, p_value, finds in np.transpose(numbers).tolist()
    ]


def matched(rows: Sequence[Cells]) -> list[tuple[Result, ...]]:
    """Return the results of each seed that has a score in all rows."""
    found = []
    for seed in sorted(set.intersection(*(set(row) for row in rows))):
        cells = [cell for row in rows if (cell := row[seed]) is not None and cell.metrics]
        if len(cells) == len(rows):
            found.append(tuple(cells))
    return found


def _shared(cells: Sequence[Result]) -> str | None:
    """Return a reason if seeds share an intermediate run; rows without that stage share none."""
    staged = [cell.config for cell in cells if "intermediate" in cell.config]
    known = {config.get("intermediate_seed", 0) for config in staged}
    if not known or len(known) == len(cells):
        return None
    if len(known) == 1:
        what = "all seeds share one intermediate run: its noise is part of the difference"
    else:
        what = f"{len(cells)} seeds share {len(known)} intermediate runs, whose variance is unknown"
    return f"{what}; a test needs {FEWEST} seeds or more, with an intermediate run each"


def _general(cell: Result) -> int:
    """Return the number of the general model that a cell starts from."""
    return int(cell.config.get("general_seed", 0))


def _shared_general(matched: Sequence[tuple[Result, ...]]) -> str | None:
    """Return a reason if only some seeds share a general model, or if the rows' models differ.

    Two machines may compute one general model with different weights.
    """
    for cells in matched:
        if len(set(map(_general, cells))) > 1 or len({c.weights for c in cells if c.weights}) > 1:
            return "the two rows start from different general models"
    models = {_general(cells[0]) for cells in matched}
    known = {(_general(cells[0]), cells[0].weights) for cells in matched if cells[0].weights}
    again = len(known) > len({number for number, _ in known})
    if len(models) < len(matched) and (len(models) > 1 or again):
        several = " that were computed with different weights" if again else ""
        return (
            f"{len(matched)} seeds share {len(models)} general model{'s'[: len(models) != 1]}"
            f"{several}: a test cannot see their variance"
        )
    return None


@dataclass(frozen=True)
class Versus:
    """The comparison `row` minus `other` on one column: a task, or the average of a group."""

    column: str
    row: str
    other: str
    comparison: Comparison


@dataclass(frozen=True)
class Standing:
    """The ranks that a row may have, `low` to `high`; 1 is the best."""

    low: int
    high: int

    @property
    def is_tied_with_best(self) -> bool:
        """Whether no row is significantly better."""
        return self.low == 1

    def __str__(self) -> str:
        """Return the ranks as text, e.g. 1-3."""
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"


def versus(
    rows: Mapping[str, Mapping[str, Cells]], groups: Mapping[str, Sequence[str]], read: Reader
) -> list[Versus]:
    """Compare all pairs of rows on all tasks and averages, as one family of tests.

    `rows` maps a label and a task to cells by seed; `groups` maps an average to its tasks. An
    average is tested only if all of its tasks are, for the same seeds.
    """
    found = []
    for row, other in combinations(rows, 2):
        tasks = [task for task in rows[row] if task in rows[other]]
        pairs = {
            task: compare(rows[row][task], rows[other][task], read, (row, other)) for task in tasks
        }
        found += [Versus(task, row, other, each) for task, each in pairs.items()]
        for group, members in groups.items():
            mean = average([pairs.get(task) for task in members])
            found.append(Versus(group, row, other, mean))
    judged = assess_family([each.comparison for each in found])
    return [
        Versus(each.column, each.row, each.other, comparison)
        for each, comparison in zip(found, judged, strict=True)
        if comparison is not None
    ]


def standings(
    found: Sequence[Versus], scored: Mapping[str, Collection[str]]
) -> dict[str, dict[str, Standing]]:
    """Return, by column and row, the ranks that no significant difference excludes.

    `scored` maps a column to the labels of the rows with a score there; other rows do not count.
    A row without any test counts, but gets no ranks; nor does a column without tests. Where all
    scores of two rows differ by the same number, they count as not separable.

    A row ranks below all rows that are significantly better and above all that are significantly
    worse. Because the pairs are one family, all true ranks lie in these intervals at once in 95 of
    100 experiments (Al Mohamad, van Zwet, Solari and Goeman 2022, Bernoulli 28).
    """
    columns: dict[str, list[Versus]] = {}
    for each in found:
        columns.setdefault(each.column, []).append(each)
    return {
        column: _ranks(pairs, scored[column])
        for column, pairs in columns.items()
        if any(each.comparison.counts_for_ranks for each in pairs)
    }


def _ranks(pairs: Sequence[Versus], scored: Collection[str]) -> dict[str, Standing]:
    tests = [each for each in pairs if each.comparison.counts_for_ranks]
    named = dict.fromkeys(label for each in tests for label in (each.row, each.other))
    labels = [label for label in named if label in scored]
    better = dict.fromkeys(labels, 0)  # rows that are significantly better
    worse = dict.fromkeys(labels, 0)
    for each in tests:
        if each.comparison.estimate and each.comparison.is_significant:
            first, second = each.row, each.other
            if each.comparison.estimate.difference < 0:
                first, second = second, first
            better[second] += 1
            worse[first] += 1
    return {label: Standing(1 + better[label], len(scored) - worse[label]) for label in labels}


LabelledRow: TypeAlias = tuple[Sequence[str], Json]
"""The labels of a row, and the settings of one of its cells."""


def baseline_candidates(name: str, rows: Sequence[LabelledRow]) -> list[int]:
    """Return the indices of the rows that a baseline's `name` may mean.

    These are the rows with this label; otherwise those of the policy `name`; otherwise those whose
    labels begin with it. Rows of the last two kinds may only differ in trainings and objective.
    """

    def which(holds: Callable[[Sequence[str], Json], bool]) -> list[int]:
        return [index for index, row in enumerate(rows) if holds(*row)]

    called = which(lambda labels, _: name in labels)
    if called:
        return called
    of_policy = which(
        lambda labels, config: bool(labels) and config.get("policy", {}).get("name") == name
    )
    rivals = of_policy or which(
        lambda labels, _: any(label.startswith(f"{name} ") for label in labels)
    )
    fields = [
        {key: value for key, value in rows[index][1]["policy"].items() if key not in DENOISING_KEYS}
        for index in rivals
    ]
    return rivals if all(each == fields[0] for each in fields) else []


def nearest_baseline(name: str, rows: Sequence[LabelledRow], to: Json) -> int | None:
    """Return the index of the baseline `name` for a row with the settings `to`; None without one.

    It is the first row with this label, or else the candidate that is most like the row.
    """
    found = baseline_candidates(name, rows)
    if not found or name in rows[found[0]][0]:
        return next(iter(found), None)
    return max(found, key=lambda index: _likeness(rows[index][1], to))


def baseline_of(run: Run, label: str) -> str:
    """Return the label of the row of a run that the row `label` is compared with.

    It is the name in the run's settings if no row has this name.
    """
    configs = {result.policy: result.config for result in reversed(run.results)}
    if label not in configs:
        return run.baseline
    known = [row for row in run.rows if row in configs]
    place = nearest_baseline(run.baseline, [([row], configs[row]) for row in known], configs[label])
    return run.baseline if place is None else known[place]


def baselines_of(runs: Sequence[Run]) -> dict[tuple[str, str], str]:
    """Return by the name of a run and the label of a row what `baseline_of` says of them."""
    return {(run.name, row): baseline_of(run, row) for run in runs for row in run.rows}


def _likeness(base: Json, row: Json) -> int:
    """Return how many of a baseline's own settings a row shares, minus those that it does not."""
    same = [
        row.get(stage, {}).get(key) == value
        for stage, values in base.get("trainings", {}).items()
        for key, value in values.items()
    ]
    mine, other = (each.get("policy", {}) for each in (base, row))
    same += [mine.get(key) == other.get(key) for key in DENOISING_KEYS]
    return sum(1 if equal else -1 for equal in same)
