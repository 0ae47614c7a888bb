"""The leaderboard as data: scores, rows, and values computed from them."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from maskpolicy.core import metrics
from maskpolicy.core.errors import listed
from maskpolicy.core.types import Json
from maskpolicy.experiment.definition import WORLD
from maskpolicy.leaderboard import comparisons
from maskpolicy.leaderboard.comparisons import Comparison, Standing, Versus
from maskpolicy.leaderboard.joined_rows import Gap
from maskpolicy.leaderboard.results.cell import Result, Run

VERSION = 1
_SAME = 2e-4  # points; `stored_board` rounds scores to four digits
WORK = ("passages", "passages_without_span", "hidden_tokens", "source_tokens", "target_tokens")


@dataclass(frozen=True)
class Score:
    """One row's score on one task, in percent.

    `seeds` maps a seed to its score, or to None if it failed or only the baseline has it.
    """

    metric: str
    seeds: Mapping[int, float | None]
    n: int  # test examples
    delta: float | None = None  # mean difference to the baseline over shared seeds
    comparison: Comparison | None = None  # with the baseline; None for the baseline itself
    parts: Mapping[str, float] = field(default_factory=dict)  # further figures, e.g. F1

    @property
    def values(self) -> list[float]:
        """The scores of all seeds that have one."""
        return [value for value in self.seeds.values() if value is not None]

    @property
    def mean(self) -> float:
        """The mean of `values`."""
        return statistics.fmean(self.values)

    @property
    def std(self) -> float | None:
        """The sample standard deviation over seeds (n - 1); None for one seed."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    @property
    def is_significant(self) -> bool:
        """Whether the test is significant and its estimate has the sign of `delta`."""
        if not (self.comparison and self.comparison.is_significant and self.comparison.estimate):
            return False
        return bool(self.delta and self.comparison.estimate.difference * self.delta > 0)

    @property
    def is_complete(self) -> bool:
        """Whether every seed of this row and of the baseline has a score."""
        return len(self.values) == len(self.seeds)


@dataclass(frozen=True)
class BoardRow:
    """One policy with the settings of one experiment."""

    label: str
    config: Json  # the policy's block
    scores: Mapping[str, Score | None]  # by task; None if there is no score
    work: Json = None
    cells: Mapping[tuple[str, int], Result] = field(default_factory=dict)  # by task and seed
    gaps: tuple[Gap, ...] = ()
    against: str = ""  # label of its baseline, which is of the same run if possible
    averages: Mapping[str, Comparison] = field(default_factory=dict)  # by group, if tested

    @property
    def trainings(self) -> Json:
        """What the row has instead of the file's settings, by training, and for its corpus."""
        cell = next(iter(self.cells.values()), None)
        return {} if cell is None else cell.config.get("trainings", {})

    @property
    def own_settings(self) -> dict[str, Json]:
        """`trainings` by setting, e.g. {"intermediate.lr": 0.001}."""
        return {
            f"{stage}.{key}": value
            for stage, values in self.trainings.items()
            for key, value in values.items()
        }

    @property
    def tuning(self) -> dict[str, Json]:
        """What the row chose on dev, by task: see `Result.tuning`; {} if it is not tuned."""
        found = {task: cell.tuning for (task, _), cell in self.cells.items()}
        return {task: about for task, about in found.items() if about is not None}

    @property
    def comparisons(self) -> dict[str, Comparison | None]:
        """The comparisons with the baseline, by task and average."""
        scores = {task: one.comparison if one else None for task, one in self.scores.items()}
        return {**scores, **{average_label(group): one for group, one in self.averages.items()}}

    @property
    def is_baseline(self) -> bool:
        """Whether this row is a baseline."""
        return self.label == self.against

    @property
    def tokens(self) -> int | None:
        """The source and target tokens of one intermediate run, if both were counted."""
        work = self.work or {}
        if "source_tokens" not in work or "target_tokens" not in work:
            return None
        return int(work["source_tokens"]) + int(work["target_tokens"])


MASKED = {  # titles of what a row masked, with what is divided by what, and how it is written
    "spans per passage": ("spans", "passages", ".2f"),
    "tokens per span": ("hidden_tokens", "spans", ".2f"),
    "masked tokens per passage": ("hidden_tokens", "passages", ".2f"),
    "share of tokens masked": ("hidden_tokens", "all_tokens", ".1%"),
    "target tokens per passage": ("target_tokens", "passages", ".2f"),
    "passages without a span": ("passages_without_span", "passages", ".1%"),
}


def masked(row: BoardRow) -> tuple[str, ...]:
    """Return what a row masked in its intermediate stage, as MASKED; () if nothing was counted.

    All tokens are those that training read; results of earlier versions do not have their number.
    """
    work = dict(row.work or {})
    if "passage_tokens" in work:
        work["all_tokens"] = work["passage_tokens"] - work.get("cut_tokens", 0)
    texts = []
    for part, whole, form in MASKED.values():
        share = work[part] / work[whole] if work.get(whole) and part in work else None
        texts.append("–" if share is None else f"{share:{form}}")
    return tuple(texts) if row.work else ()


@dataclass(frozen=True)
class ColumnFacts:
    """The test examples of one column."""

    task: str  # its label
    sources: tuple[str, ...]  # world, hub or files; several only on a mixed board
    n: tuple[int, ...]  # number of test examples; several only on a mixed board

    @property
    def is_invented(self) -> bool:
        """Whether the questions are about the embedded world."""
        return WORLD in self.sources

    @property
    def title(self) -> str:
        """The column's title, marked if the questions are not the data set's own."""
        return f"{self.task} ({WORLD})" if self.is_invented else self.task

    @property
    def size(self) -> str:
        """The number of test examples, e.g. "n = 300"."""
        return f"n = {' or '.join(map(str, self.n))}" if self.n else ""


@dataclass(frozen=True)
class Guess:
    """The score of a majority guess on one task (`maskpolicy.data.majority`)."""

    percent: float
    rule: str


@dataclass(frozen=True)
class Given:
    """The texts of a board of given scores, which another program computed."""

    above: tuple[str, ...]  # sentences above the table: what the tests generalise to and find
    facts: Mapping[str, str]
    unit: str = "seed"  # what a run of a system is called: seed or run
    paired: bool = True  # whether runs of one name are the same run of two systems


@dataclass(frozen=True)
class Board:
    """A whole leaderboard.

    `groups` maps a name to two or more tasks whose scores are averaged.
    """

    baseline: str  # the first one, if joined runs have several
    tasks: tuple[str, ...]
    rows: tuple[BoardRow, ...]
    notes: tuple[str, ...]
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    majority: Mapping[str, Guess] = field(default_factory=dict)  # by task, where known
    pairs: tuple[Versus, ...] = ()  # all pairs of rows on all tasks and averages, one family
    compared_with: str = ""  # the baseline, or all baselines, in words
    runs: tuple[Run, ...] = ()  # the runs with at least one cell on the board
    given: Given | None = None  # of scores that no run computed

    @property
    def noun(self) -> str:
        """What a row is called."""
        return "policy" if self.given is None else "system"

    @property
    def unit(self) -> str:
        """What the single scores of a cell are of."""
        return "seed" if self.given is None else self.given.unit

    def shown(self, spread: str) -> str:
        """Return what a cell shows: one score, or the mean of several and their `spread`."""
        if self.seeds != 1:
            return f"{spread} over {self.unit}s"
        return "one seed" if self.given is None else "one run of each system"

    @cached_property
    def standings(self) -> Mapping[str, Mapping[str, Standing]]:
        """The possible ranks of each row, by task or average and then by row."""
        scored = {
            column: {row.label for row in self.rows if self.has_score(row, column)}
            for column in self._members
        }
        return comparisons.standings(self.pairs, scored)

    def has_score(self, row: BoardRow, column: str) -> bool:
        """Whether a row has a score on a task, or on all tasks of an average."""
        return all(row.scores.get(task) for task in self._members[column])

    @cached_property
    def _members(self) -> Mapping[str, tuple[str, ...]]:
        """The tasks of each column, averages included."""
        averages = {average_label(group): tasks for group, tasks in self.groups.items()}
        return {**{task: (task,) for task in self.tasks}, **averages}

    @cached_property
    def _scores(self) -> list[Score]:
        return [score for row in self.rows for score in row.scores.values() if score]

    @property
    def seeds(self) -> int:
        """The largest number of seeds of any score."""
        return max((len(score.seeds) for score in self._scores), default=0)

    @property
    def tests(self) -> int:
        """The number of differences to the baseline that were tested, as one family."""
        compared = (each for row in self.rows for each in row.comparisons.values())
        return sum(bool(each and each.estimate) for each in compared)

    @property
    def over(self) -> str:
        """What the tests treat as random, in words."""
        compared = (score.comparison for score in self._scores)
        most = max((each.seeds for each in compared if each and each.estimate), default=0)
        return f"{self.unit}s and examples" if most > 1 else "examples"

    @property
    def condition(self) -> str:
        """What the tests generalise to and what they hold fixed; "" without tests.

        Of given scores, this stands above the table.
        """
        if self.given is not None:
            return ""
        return comparisons.condition(score.comparison for score in self._scores)

    @cached_property
    def untested(self) -> tuple[str, ...]:
        """For each reason why tests are missing, "tasks: reason".

        If only some rows lack the test on a task, their labels follow the task.
        """
        rows_by_reason: dict[str, dict[str, list[str]]] = {}
        compared: Counter[str] = Counter()
        for row in self.rows:
            for column, comparison in row.comparisons.items():
                compared[column] += comparison is not None
                if comparison and comparison.reason:
                    tasks = rows_by_reason.setdefault(comparison.reason, {})
                    tasks.setdefault(column, []).append(row.label)
        reasons = []
        for reason, tasks in rows_by_reason.items():
            whole = {task for task, rows in tasks.items() if len(rows) == compared[task]}
            names = [
                self.title(task) + ("" if task in whole else f" ({', '.join(rows)})")
                for task, rows in tasks.items()
            ]
            where = "all tasks" if whole >= {*self.tasks} and self.tasks[1:] else ", ".join(names)
            reasons.append(f"{where}: {reason}")
        return tuple(reasons)

    @property
    def about_tests(self) -> list[str]:
        """What the tests generalise to, if there are any, and why tests are missing."""
        missing = (f"No test on {reason}." for reason in self.untested)
        return [*filter(None, [self.condition]), *missing]

    @property
    def gaps(self) -> tuple[str, ...]:
        """The notes on missing scores: see `missing`."""
        return tuple(missing(self.rows, self.unit))

    def column(self, task: str) -> ColumnFacts:
        """Return where the test examples of a task come from, and their number."""
        cells = [cell for row in self.rows for (of, _), cell in row.cells.items() if of == task]
        sizes = {cell.metrics.n for cell in cells if cell.metrics is not None}
        sources = {cell.origin for cell in cells}
        return ColumnFacts(task, tuple(sorted(sources)), tuple(sorted(sizes)))

    def title(self, name: str) -> str:
        """Return the title of a column, for a task or an average."""
        return self.column(name).title if name in self.tasks else name

    def metric(self, task: str) -> str:
        """Return the display name of a task's metric."""
        scores = (row.scores[task] for row in self.rows)
        return next((metrics.title(score.metric) for score in scores if score), "no score")

    def average(self, row: BoardRow, group: str) -> float | None:
        """Return the mean over a group's tasks, or None if a score or seed is missing."""
        scores = [row.scores.get(task) for task in self.groups[group]]
        if any(score is None or not score.is_complete for score in scores):
            return None
        return statistics.fmean(score.mean for score in scores if score is not None)

    def average_delta(self, row: BoardRow, group: str) -> float | None:
        """Return the mean difference to the baseline over a group's tasks, or None without one.

        If it is tested, it is that of the seeds that both rows have on all tasks.
        """
        test = row.averages.get(group)
        if test and test.estimate:
            return test.estimate.difference
        scores = map(row.scores.get, self.groups[group])
        deltas = [None if score is None else score.delta for score in scores]
        known = [delta for delta in deltas if delta is not None]
        return (
            statistics.fmean(known) if len(known) == len(deltas) and not row.is_baseline else None
        )

    def majority_average(self, group: str) -> float | None:
        """Return the mean majority score over a group's tasks, or None if one is unknown."""
        known = [self.majority[task] for task in self.groups[group] if task in self.majority]
        if len(known) < len(self.groups[group]):
            return None
        return statistics.fmean(guess.percent for guess in known)

    def best(self) -> dict[str, set[str]]:
        """Return by task the row that is ahead of each other one; the set may be empty.

        Incomplete rows are ignored. Two rows are compared over the seeds that they share, and
        systems of given scores that share none over the seeds of each.
        """
        return {task: self._best(task) for task in self.tasks}

    def _best(self, task: str) -> set[str]:
        scores = {row.label: row.scores[task] for row in self.rows}
        complete = {label: score for label, score in scores.items() if score and score.is_complete}
        leaders = {
            label
            for label, score in complete.items()
            if all(self._is_ahead(score, of) for other, of in complete.items() if other != label)
        }
        return leaders if len(complete) > 1 else set()

    def _is_ahead(self, score: Score, other: Score) -> bool:
        """Return whether one complete score is higher than another one."""
        shared = score.seeds.keys() & other.seeds.keys()
        if self.given is None or (shared and self.given.paired):
            gaps = [(score.seeds[seed] or 0.0) - (other.seeds[seed] or 0.0) for seed in shared]
            return bool(gaps) and statistics.fmean(gaps) > _SAME
        return score.mean - other.mean > _SAME


def average_label(group: str) -> str:
    """Return the title of the column with the average of a group of tasks."""
    return f"mean of {group}"


def missing(rows: Sequence[BoardRow], unit: str = "seed") -> list[str]:
    """Return a note for each reason why scores are missing, then for each row that lacks seeds."""
    gaps, lacking = [], []
    for row in rows:
        own = {seed for _, seed in row.cells}
        absent = sorted({gap.seed for gap in row.gaps if gap.seed is not None} - own)
        gaps += [(row.label, gap) for gap in row.gaps if gap.seed not in absent]
        if absent:
            lacks = f"{row.label} lacks {counted(absent)} of its baseline {row.against}"
            lacking.append(f"{lacks}: differences are means over the shared seeds")
    return [*by_reason(gaps, unit), *lacking]


def by_reason(gaps: Iterable[tuple[str, Gap]], unit: str = "seed") -> list[str]:
    """Return a note for each reason why scores of rows, named by their labels, are missing."""
    reasons: dict[str, dict[tuple[str, str], list[int]]] = {}  # then by row and task: seeds
    for label, gap in gaps:
        seeds = reasons.setdefault(gap.reason, {}).setdefault((label, gap.task), [])
        seeds.extend([] if gap.seed is None else [gap.seed])
    notes = []
    for reason, cells in reasons.items():
        places = [
            f"{label}, {task}{f', {counted(seeds, unit)}' if seeds else ''}"
            for (label, task), seeds in cells.items()
        ]
        count = sum(max(1, len(seeds)) for seeds in cells.values())
        several = f"{count} scores are missing: {reason} ({listed(places, '; ')})"
        notes.append(several if len(places) > 1 else f"{places[0]}: {reason}")
    return notes


def counted(numbers: Sequence[int], unit: str = "seed") -> str:
    """Return e.g. "seed 1" or "seeds 1, 2"."""
    return f"{unit}{'s'[: len(numbers) != 1]} {', '.join(map(str, numbers))}"
