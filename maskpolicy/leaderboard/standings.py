"""Which ranks the rows of a leaderboard may have, from tests of all pairs of rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from maskpolicy.leaderboard import comparisons
from maskpolicy.leaderboard.comparisons import Cells, Comparison, Reader


@dataclass(frozen=True)
class Versus:
    """The first row minus the second, on one column: a task or the average of a group of tasks."""

    column: str
    row: str
    other: str
    comparison: Comparison


@dataclass(frozen=True)
class Standing:
    """The ranks that a row may have; 1 is the best."""

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
    """Compare all pairs of rows on all tasks and on the averages of groups, as one family.

    `rows` has by label and task the cells; `groups` name the tasks of each average. An average
    is compared where all its tasks are, for the same seeds.
    """
    found = []
    for row, other in combinations(rows, 2):
        tasks = [task for task in rows[row] if task in rows[other]]
        pairs = {
            task: comparisons.compare(rows[row][task], rows[other][task], read, (row, other))
            for task in tasks
        }
        found += [Versus(task, row, other, each) for task, each in pairs.items()]
        for group, members in groups.items():
            mean = comparisons.average([pairs.get(task) for task in members])
            found.append(Versus(group, row, other, mean))
    judged = comparisons.judge([each.comparison for each in found])
    return [
        Versus(each.column, each.row, each.other, comparison)
        for each, comparison in zip(found, judged, strict=True)
        if comparison is not None
    ]


def standings(
    found: Sequence[Versus], scored: Mapping[str, Collection[str]]
) -> dict[str, dict[str, Standing]]:
    """Return by column and row the ranks that no significant difference excludes.

    `scored` has by column the labels of the rows with a score there; no other row counts. A row
    with a score that no pair could be tested with counts, and has no rank.

    All true ranks lie in these intervals at once in 95 of 100 experiments, because the pairs are
    one family (Al Mohamad, van Zwet, Solari and Goeman 2022, Bernoulli 28). A row is at least as
    far down as the rows that are significantly better, and as far up as those that are worse. A
    column whose rows were not tested has no ranks.
    """
    columns: dict[str, list[Versus]] = {}
    for each in found:
        columns.setdefault(each.column, []).append(each)
    return {
        column: _ranks(pairs, scored[column])
        for column, pairs in columns.items()
        if any(each.comparison.found for each in pairs)
    }


def _ranks(pairs: Sequence[Versus], scored: Collection[str]) -> dict[str, Standing]:
    tests = [each for each in pairs if each.comparison.found]
    named = dict.fromkeys(label for each in tests for label in (each.row, each.other))
    labels = [label for label in named if label in scored]
    better = dict.fromkeys(labels, 0)  # rows that are significantly better
    worse = dict.fromkeys(labels, 0)
    for each in tests:
        if each.comparison.found and each.comparison.is_significant:
            first, second = each.row, each.other
            if each.comparison.found.difference < 0:
                first, second = second, first
            better[second] += 1
            worse[first] += 1
    return {label: Standing(1 + better[label], len(scored) - worse[label]) for label in labels}
