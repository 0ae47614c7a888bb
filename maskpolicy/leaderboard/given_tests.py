"""Compare systems by given scores of single examples: all pairs, on each task and on their mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskpolicy.core.errors import DataError
from maskpolicy.leaderboard import stats
from maskpolicy.leaderboard.board import average_label
from maskpolicy.leaderboard.comparisons import FEWEST, SAME, Comparison, estimates
from maskpolicy.leaderboard.stats import Difference

ALL = "all tasks"  # the group over which tasks are averaged
MOST = 400_000  # tests of pairs of systems, for which memory suffices
_AT_ONCE = 4_000_000  # differences of examples in memory


@dataclass(frozen=True, eq=False)
class Task:
    """The scores of one task; arrays are in the order of all systems."""

    name: str
    metric: str
    groups: NDArray[np.int64]  # (examples,) numbered from 0
    scores: NDArray[np.float64]  # (systems, seeds, examples); NaN where a seed lacks an example

    @cached_property
    def has(self) -> NDArray[np.int64]:
        """(systems, seeds) how many examples have scores."""
        return (~np.isnan(self.scores)).sum(-1)

    @cached_property
    def common(self) -> NDArray[np.bool_]:
        """(examples,) which have a score of each system and seed that has any."""
        lacks = np.isnan(self.scores)
        return np.all(~lacks | lacks.all(-1, keepdims=True), axis=(0, 1))

    @cached_property
    def whole(self) -> NDArray[np.bool_]:
        """(systems, seeds) whether all examples have scores."""
        return (self.has == len(self.groups)) & (self.has > 0)

    @cached_property
    def means(self) -> NDArray[np.float64]:
        """(systems, examples) the mean over complete seeds; 0 for a system without any."""
        total = np.where(self.whole[..., None], self.scores, 0).sum(1)
        return total / np.maximum(1, self.whole.sum(1))[:, None]

    def compare(
        self, seeds: NDArray[np.bool_], first: NDArray[np.int64], second: NDArray[np.int64]
    ) -> Difference:
        """Return the differences of pairs of systems on some seeds.

        Without any seed, they are the differences of the systems' means over their own seeds.
        """
        scores = self.scores[:, seeds] if seeds.any() else self.means[:, None]
        parts = []
        step = max(1, _AT_ONCE // scores[0].size)
        for at in range(0, len(first), step):
            mine, other = scores[first[at : at + step]], scores[second[at : at + step]]
            parts.append(stats.pair(mine, other, self.groups, ("", "")))
        whole: dict[str, Any] = {}
        for name in ("of_seed", "chance", "interaction", "slope"):
            whole[name] = np.concatenate([getattr(part, name) for part in parts])
        return parts[0]._replace(**whole)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of systems on one task or average; the arrays have the axis of the pairs."""

    column: str
    first: NDArray[np.int64]
    second: NDArray[np.int64]
    difference: Difference
    seeds: int  # that both systems have; 1 if seeds are averaged
    tested: NDArray[np.bool_]  # which of the pairs
    reason: str  # why others are not

    def of(self, kept: NDArray[np.bool_], signs: Any = 1.0) -> Pairs:
        """Return the `kept` pairs, with their differences times `signs`."""
        arrays = {name: getattr(self, name)[kept] for name in ("first", "second", "tested")}
        return replace(self, **arrays, difference=self.difference.of(kept, signs))


def compare_all(
    tasks: Sequence[Task],
    order: NDArray[np.int64],
    told: Callable[[str], object],
    *,
    apart: bool,
    unit: str = "seed",
    named_alike: bool = True,
) -> list[Pairs]:
    """Compare all systems, in this order, on all tasks and on the mean of several tasks.

    A pair is compared on the seeds that both systems have: on each task, and for the mean on all
    tasks. With fewer than FEWEST it is not tested, unless no pair has as many: then the seeds of
    each system are averaged, as they are if no pair has seeds of the same names (not
    `named_alike`). `apart`: no group of examples is in two tasks. Raises DataError for too many
    pairs.
    """
    whole = np.stack([task.whole for task in tasks], 1)  # (systems, tasks, seeds)
    some: NDArray[np.bool_] = np.any(whole, axis=2)
    first, second = _pairs(some[order], order)
    shared = whole[first] & whole[second]
    draws = named_alike and shared.sum(2).max(initial=0) >= FEWEST
    scored = some[first] & some[second]
    alike = np.concatenate([shared & draws, scored[..., None]], 2)  # equal for pairs of one kind
    kinds, kind_of = np.unique(alike, axis=0, return_inverse=True)
    found = list[Pairs]()

    def add(column: str, seeds: NDArray[np.bool_], part: Difference) -> None:
        count = int(seeds.sum()) if draws else 1
        few = draws and count < FEWEST
        units = f"{unit}{'s'[: count != 1]}"
        why = f"{count} complete {units} in both systems: a test needs {FEWEST}" if few else SAME
        found.append(Pairs(column, one, other, part, count, part.varies & (not few), why))

    for number, kind in enumerate(kinds):
        one, other = first[kind_of.ravel() == number], second[kind_of.ravel() == number]
        everywhere: NDArray[np.bool_] = np.all(kind[:, :-1], axis=0)
        parts = []
        for task, (*_, is_scored), seeds in zip(tasks, kind, kind[:, :-1], strict=True):
            if is_scored and task.groups.any():
                told(f"task {tasks.index(task) + 1} of {len(tasks)}: {task.name}")
                part = task.compare(seeds, one, other)
                add(task.name, seeds, part)
                same = (seeds == everywhere).all()
                parts.append(part if same else task.compare(everywhere, one, other))
        if 1 < len(tasks) == len(parts):
            add(average_label(ALL), everywhere, stats.average(parts, apart=apart))
    places = [*(task.name for task in tasks), average_label(ALL)]
    return sorted(found, key=lambda each: places.index(each.column))


def _pairs(
    scored: NDArray[np.bool_], order: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return both systems of each pair with a common task; raises DataError for too many pairs.

    `scored` (systems, tasks) says whether a system of `order` has a score on a task.
    """
    counts = scored.sum(0)
    tests = int((counts * (counts - 1) // 2).sum())
    if tests > MOST:
        raise DataError(
            f"{tests:,} pairs of systems are too many to test together, at most {MOST:,}: leave "
            "systems or tasks out"
        )
    numbers = scored.astype(np.float32)
    first, second = np.nonzero(np.triu(numbers @ numbers.T, 1))
    return order[first], order[second]


def judged(found: Sequence[Pairs]) -> list[list[Comparison]]:
    """Test all pairs as one family; return the comparisons of each."""
    order = [at for at, each in enumerate(found) if each.tested.any()]
    tested = [found[at].of(found[at].tested) for at in order]
    differences = [each.difference for each in tested]
    pairs = {both for t in tested for both in zip(t.first.tolist(), t.second.tolist(), strict=True)}
    rows = stats.contrasts(pairs)
    verdicts = stats.assess_family(differences, rows=rows)
    failing = stats.assess_family(differences, stats.FAILING, rows)
    tests = sum(len(each.first) for each in tested)
    comparisons = [
        np.full(len(each.first), Comparison(each.seeds, reason=each.reason)) for each in found
    ]
    for at, each, verdict, worse in zip(order, tested, verdicts, failing, strict=True):
        numbers = estimates(each.difference, verdict, tests), verdict.p_holm, worse.p_holm
        comparisons[at][found[at].tested] = [
            Comparison(each.seeds, one, float(p_holm), float(worst))
            for one, p_holm, worst in zip(*numbers, strict=True)
        ]
    return [each.tolist() for each in comparisons]
