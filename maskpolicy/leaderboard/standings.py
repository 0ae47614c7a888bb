"""Confidence sets for the ranks of rows, from tests of all pairs of rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from maskpolicy.leaderboard import comparisons
from maskpolicy.leaderboard.comparisons import Cells, Comparison, Reader


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
            task: comparisons.compare(rows[row][task], rows[other][task], read, (row, other))
            for task in tasks
        }
        found += [Versus(task, row, other, each) for task, each in pairs.items()]
        for group, members in groups.items():
            mean = comparisons.average([pairs.get(task) for task in members])
            found.append(Versus(group, row, other, mean))
    judged = comparisons.assess_family([each.comparison for each in found])
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
    A row without any test counts, but gets no ranks; nor does a column without tests.

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
        if any(each.comparison.estimate for each in pairs)
    }


def _ranks(pairs: Sequence[Versus], scored: Collection[str]) -> dict[str, Standing]:
    tests = [each for each in pairs if each.comparison.estimate]
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
