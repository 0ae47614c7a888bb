"""The claims of a paper as data: the contrasts of rows that test them.

A row is named by its label, an experiment by the name of its file, so that runs at two scales,
experiments/findings/ and experiments/paper/, are tested by the same contrasts. Every contrast has
the claimed `direction`; `least`, the smallest effect that the claim is about; the `unit` of both;
and `if_present`: leave the contrast out if the runs lack its rows, or what its analysis needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from maskpolicy.core.types import Json

POINTS = "points"  # of a score in percent
LEAST = 5.0  # points: the smallest effect of a claim about scores, unless its paper has one
Counts: TypeAlias = Literal["all", "any"]
Direction: TypeAlias = Literal[1, -1]
HIGHER: Direction = 1  # the claimed direction
LOWER: Direction = -1


@dataclass(frozen=True, kw_only=True)
class _OfScores:
    """The fields of all contrasts of scores; see the module."""

    direction: Direction = HIGHER
    least: float = LEAST
    unit: str = POINTS
    if_present: bool = False


@dataclass(frozen=True)
class RowDifference(_OfScores):
    """The difference between two rows: the mean of their scores over tasks, () for all."""

    experiment: str
    row: str
    other: str
    tasks: tuple[str, ...]
    over_steps: bool = False  # of means over the steps of the intermediate stage, from step 0

    @property
    def compared(self) -> str:
        """What is compared, in words."""
        where = ", mean over the steps" if self.over_steps else ""
        return f"{self.row} − {self.other}{where}"

    @property
    def on(self) -> str:
        """The tasks, in words."""
        return mean_of(self.tasks)


@dataclass(frozen=True)
class Trend(_OfScores):
    """The slope of the mean score over tasks, () for all, by a number that belongs to each row.

    Least squares, per 1 of that number. `rows` maps labels to numbers.
    """

    experiment: str
    rows: Mapping[str, float]
    tasks: tuple[str, ...]
    over: str  # what the number is

    @property
    def compared(self) -> str:
        """What is compared, in words."""
        return f"slope over {self.over} of {', '.join(self.rows)}"

    @property
    def on(self) -> str:
        """The tasks, in words."""
        return mean_of(self.tasks)

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each row's score in the slope; their sum is 0."""
        mean = sum(self.rows.values()) / len(self.rows)
        squares = sum((value - mean) ** 2 for value in self.rows.values())
        return {label: (value - mean) / squares for label, value in self.rows.items()}


@dataclass(frozen=True)
class Measured:
    """A number that an analysis has for each intermediate run of a row, or of two rows.

    `where` selects rows of the analysis's table and of its `values`; a tuple stands for any of its
    values. `reduce` makes one number of the column `value`: the sum, the slope over the column
    `along` by least squares, or the mean at the last value of `along`. This last value is that of
    all runs of both rows; a run without it has no number. The number of the row `other` is
    subtracted, paired by run; without `other`, the number is compared with 0.
    """

    experiment: str
    row: str
    analysis: str
    value: str
    least: float
    unit: str
    other: str | None = None
    settings: Mapping[str, Json] = field(default_factory=dict)
    where: Mapping[str, Json] = field(default_factory=dict)
    reduce: Literal["sum", "slope", "last"] = "sum"
    along: str = ""
    resolution: float = 0.0  # numbers are rounded to multiples of it; see `contrast_evidence`
    direction: Direction = HIGHER
    if_present: bool = False

    @property
    def compared(self) -> str:
        """What is compared, in words."""
        return f"{self.row} − {self.other}" if self.other else self.row

    @property
    def on(self) -> str:
        """What is measured, in words."""
        picked = [
            "+".join(map(str, value)) if isinstance(value, tuple) else f"{name} {value}"
            for name, value in self.where.items()
            if value not in (None, False)
        ]
        how = {"sum": "", "slope": f"slope over {self.along}", "last": f"last {self.along}"}
        parts = [f"{self.analysis}: {self.value}", *filter(None, [how[self.reduce]]), *picked]
        return ", ".join(parts)


Contrast: TypeAlias = RowDifference | Trend | Measured


@dataclass(frozen=True)
class Claim:
    """A finding of a paper: a sentence, and the contrasts that decide whether it holds.

    `counts` says whether the claim is about all of its contrasts, or about any of them.
    """

    number: str  # F1, ..
    sentence: str
    source: str
    contrasts: tuple[Contrast, ...]
    counts: Counts = "all"


def on_each(
    tasks: tuple[str, ...], experiment: str, row: str, other: str
) -> tuple[RowDifference, ...]:
    """Return the difference between two rows on each of some tasks."""
    return tuple(RowDifference(experiment, row, other, (task,)) for task in tasks)


def mean_of(tasks: tuple[str, ...]) -> str:
    """Return tasks in words; none stand for all of the experiment."""
    if not tasks:
        return "mean of all tasks"
    return tasks[0] if len(tasks) == 1 else f"mean of {', '.join(tasks)}"
