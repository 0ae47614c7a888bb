"""Whether two policies differ: a paired test in which seeds and examples are random effects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.05  # of the test; its complement is that of the interval
Floats: TypeAlias = NDArray[np.floating[Any]]


class Crossed(NamedTuple):
    """Mean, its standard error and its degrees of freedom, for each table of a batch."""

    mean: Floats
    error: Floats
    freedom: Floats


@dataclass(frozen=True)
class Estimate:
    """A mean difference with the interval that holds the true one in 95 of 100 experiments."""

    difference: float  # mean over groups, not over examples
    low: float
    high: float
    p: float  # of a difference as large as this one, if there is none
    seeds: int
    groups: int


def estimate(differences: Floats, groups: NDArray[np.integer[Any]]) -> Estimate:
    """Test whether differences (seeds, examples) are zero on average over both.

    `groups` (examples,) numbers the paragraph, document or dialogue of each example. Needs two
    seeds and two groups.
    """
    table = by_group(differences, groups)
    found = crossed(table)
    p, half = _student(found)
    mean = float(found.mean)
    return Estimate(mean, mean - float(half), mean + float(half), float(p), *table.shape)


def by_group(values: Floats, groups: NDArray[np.integer[Any]]) -> Floats:
    """Return (.., groups), the means of values (.., examples) over each group's examples.

    So a paragraph with ten questions counts as much as one with two. Weighing groups by their size
    instead finds differences where there are none when a few groups are large (docs/log.md).
    """
    sizes = np.bincount(groups)
    order = np.argsort(groups, kind="stable")
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    return np.add.reduceat(values[..., order], starts, axis=-1, dtype=np.float64) / sizes


def crossed(table: Floats) -> Crossed:
    """Return the mean of each table (.., seeds, groups) with both factors random.

    The variance of the mean is (MS_seed + max(0, MS_group - MS_rest)) / (S G). Its degrees of
    freedom are Satterthwaite's, over both terms, so that few groups are not taken for many.
    """
    seeds, groups = table.shape[-2:]
    mean = table.mean((-2, -1))
    of_seed, of_group = table.mean(-1), table.mean(-2)
    rest = table - of_seed[..., None] - of_group[..., None, :] + mean[..., None, None]
    ms_seed = groups * ((of_seed - mean[..., None]) ** 2).sum(-1) / (seeds - 1)
    ms_group = seeds * ((of_group - mean[..., None]) ** 2).sum(-1) / (groups - 1)
    ms_rest = (rest**2).sum((-2, -1)) / ((seeds - 1) * (groups - 1))
    more = np.maximum(0, ms_group - ms_rest)
    variance = ms_seed + more
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = variance**2 / (ms_seed**2 / (seeds - 1) + more**2 / (groups - 1))
    known = np.where(np.isfinite(freedom), freedom, np.inf)
    return Crossed(mean, np.sqrt(variance / (seeds * groups)), known)


def p_values(found: Crossed) -> Floats:
    """Return the two-sided p of each mean; 0 or 1 where nothing varies."""
    return _student(found)[0]


def holm(values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for their number (Holm 1979), in the given order."""
    adjusted = [0.0] * len(values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        highest = max(highest, min(1.0, (len(values) - rank) * values[index]))
        adjusted[index] = highest
    return adjusted


def _student(found: Crossed) -> tuple[Floats, Floats]:
    """Return p and half the width of the interval."""
    from scipy.stats import t as student

    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.abs(found.mean) / found.error
    p = 2 * student.sf(np.where(found.mean == 0, 0.0, size), found.freedom)
    return p, student.isf(LEVEL / 2, found.freedom) * found.error
