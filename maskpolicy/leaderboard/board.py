"""A leaderboard as data: scores, rows, and what is derived from them alone."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from maskpolicy import metrics
from maskpolicy.leaderboard import comparisons, standings
from maskpolicy.leaderboard.comparisons import Comparison
from maskpolicy.leaderboard.joining import Gap
from maskpolicy.leaderboard.standings import Standing, Versus
from maskpolicy.results.cell import Result, Run
from maskpolicy.types import Json

VERSION = 1
_SAME = 9  # digits after which two means are one
WORK = ("passages", "passages_without_span", "hidden_tokens", "target_tokens")


@dataclass(frozen=True)
class Score:
    """One row's score on one task, in percent.

    `seeds` holds None for a seed that failed, and for one that only the baseline has.
    """

    metric: str
    seeds: Mapping[int, float | None]
    n: int  # test examples
    delta: float | None = None  # mean difference to the baseline over the seeds of both
    comparison: Comparison | None = None  # with the baseline; None: the baseline itself
    parts: Mapping[str, float] = field(default_factory=dict)  # figures beside the score, as F1

    @property
    def values(self) -> list[float]:
        """The scores that are there."""
        return [value for value in self.seeds.values() if value is not None]

    @property
    def mean(self) -> float:
        """The mean over the seeds that are there."""
        return statistics.fmean(self.values)

    @property
    def std(self) -> float | None:
        """The standard deviation over seeds with n - 1; None for a single one."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    @property
    def is_significant(self) -> bool:
        """Whether the test finds a difference in the direction of the one that is shown."""
        found = self.comparison and self.comparison.is_significant and self.comparison.found
        return bool(found and self.delta and found.difference * self.delta > 0)

    @property
    def is_complete(self) -> bool:
        """Whether there is a score for each seed of this row and of the baseline."""
        return len(self.values) == len(self.seeds)


@dataclass(frozen=True)
class Row:
    """One policy as one experiment used it."""

    label: str
    config: Json  # the policy's block
    scores: Mapping[str, Score | None]  # by task; None: there is none
    work: Json = None
    cells: Mapping[tuple[str, int], Result] = field(default_factory=dict)  # by task and seed
    gaps: tuple[Gap, ...] = ()
    against: str = ""  # the row it is compared with: the baseline, of its own run if that has one

    @property
    def is_baseline(self) -> bool:
        """Whether other rows are compared with this one."""
        return self.label == self.against


@dataclass(frozen=True)
class Guess:
    """What a guess without a model reaches on one task (`maskpolicy.majority`)."""

    percent: float
    rule: str


@dataclass(frozen=True)
class Board:
    """A whole leaderboard; `groups` are two or more tasks whose scores may be averaged."""

    baseline: str  # the first one where rows of several runs have several
    tasks: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    majority: Mapping[str, Guess] = field(default_factory=dict)  # by task, as far as it is known
    pairs: tuple[Versus, ...] = ()  # all pairs of rows on all tasks and averages, one family
    compared_with: str = ""  # the baseline in words, which tell if there are several
    runs: tuple[Run, ...] = ()  # those that the scores come from

    @cached_property
    def standings(self) -> Mapping[str, Mapping[str, Standing]]:
        """By task or average, and by row: the ranks that the row may have."""
        scored = {
            column: {row.label for row in self.rows if self.has_score(row, column)}
            for column in self._members
        }
        return standings.standings(self.pairs, scored)

    def has_score(self, row: Row, column: str) -> bool:
        """Return whether a row has a score on a task, or on all tasks of an average."""
        return all(row.scores.get(task) for task in self._members[column])

    @cached_property
    def _members(self) -> Mapping[str, tuple[str, ...]]:
        """The tasks of each column, averages included."""
        averages = {average_label(group): tasks for group, tasks in self.groups.items()}
        return {**{task: (task,) for task in self.tasks}, **averages}

    @property
    def seeds(self) -> int:
        """The most seeds that a score has."""
        scores = (score for row in self.rows for score in row.scores.values() if score)
        return max((len(score.seeds) for score in scores), default=0)

    @property
    def tests(self) -> int:
        """The number of differences that were tested, one family."""
        scores = (score for row in self.rows for score in row.scores.values() if score)
        return sum(bool(score.comparison and score.comparison.found) for score in scores)

    @property
    def condition(self) -> str:
        """What the tests answer for and what they hold fixed, "" without a test."""
        scores = (score for row in self.rows for score in row.scores.values() if score)
        return comparisons.condition(score.comparison for score in scores)

    @property
    def gaps(self) -> tuple[str, ...]:
        """The notes that say why a score is missing."""
        return tuple(note for row in self.rows for note in missing(row))

    def metric(self, task: str) -> str:
        """Return what the metric of a task is called."""
        scores = (row.scores[task] for row in self.rows)
        return next((metrics.title(score.metric) for score in scores if score), "no score")

    def average(self, row: Row, group: str) -> float | None:
        """Return the mean over a group's tasks, or None unless the row is complete there."""
        scores = [row.scores.get(task) for task in self.groups[group]]
        if any(score is None or not score.is_complete for score in scores):
            return None
        return statistics.fmean(score.mean for score in scores if score is not None)

    def majority_average(self, group: str) -> float | None:
        """Return the mean of majority over a group's tasks, or None unless all are known."""
        known = [self.majority[task] for task in self.groups[group] if task in self.majority]
        if len(known) < len(self.groups[group]):
            return None
        return statistics.fmean(guess.percent for guess in known)

    def best(self) -> dict[str, set[str]]:
        """Return, by task, the one row with the highest mean; no row where two or more share it.

        Rows that lack a seed do not count. Rows with seeds of their own are compared over the seeds
        that all have.
        """
        return {task: self._best(task) for task in self.tasks}

    def _best(self, task: str) -> set[str]:
        scores = {row.label: row.scores[task] for row in self.rows}
        whole = {label: score for label, score in scores.items() if score and score.is_complete}
        shared = set.intersection(*(set(score.seeds) for score in whole.values())) if whole else ()
        if not shared or len(whole) < 2:
            return set()
        means = {
            label: round(statistics.fmean(score.seeds[seed] or 0.0 for seed in shared), _SAME)
            for label, score in whole.items()
        }
        highest = max(means.values())
        found = {label for label, mean in means.items() if mean == highest}
        return found if len(found) == 1 else set()


def average_label(group: str) -> str:
    """Return the name of the column that averages a group of tasks."""
    return f"mean of {group}"


def missing(row: Row) -> list[str]:
    """Return why scores of a row are missing, with one note for all seeds that it has nowhere."""
    own = {seed for _, seed in row.cells}
    nowhere = sorted({gap.seed for gap in row.gaps if gap.seed is not None} - own)
    notes = []
    for gap in row.gaps:
        if gap.seed not in nowhere:
            seed = "" if gap.seed is None else f", seed {gap.seed}"
            notes.append(f"{row.label}, {gap.task}{seed}: {gap.reason}")
    if nowhere:
        lacks = f"{row.label} lacks {counted(nowhere)} of its baseline {row.against}"
        notes.append(f"{lacks}: its differences are over the seeds of both")
    return notes


def counted(numbers: Sequence[int]) -> str:
    """Return the numbers of seeds in words."""
    return f"seed{'s'[: len(numbers) != 1]} {', '.join(map(str, numbers))}"
