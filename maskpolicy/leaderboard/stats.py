"""Test differences between rows; seeds and groups of examples are random effects."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.05  # of the test; its complement is that of the interval
POWER = 0.8  # with which a test is said to find a difference
_NODES = 2000  # of a quadrature
SHARED = 2  # how much the family's run noise counts, in times of a pair's own
Floats: TypeAlias = NDArray[np.floating[Any]]


class Difference(NamedTuple):
    """The difference of two rows on one task, and its parts; scores lie between 0 and 1.

    Every array has the leading axes of the scores: none for one leaderboard, one for a batch of
    simulated ones.
    """

    rows: tuple[str, str]  # whose difference it is: the first minus the second
    of_seed: Floats  # (.., seeds) each seed's mean difference over examples
    chance: Floats  # the part of `runs` that single examples explain
    taste: Floats  # variance of `mean`, because a row suits some groups more than others
    slope: Floats  # what run noise of one squared logit in both rows would add to `runs`
    groups: int
    group_freedom: float  # degrees of freedom of `taste`
    examples: int

    @property
    def seeds(self) -> int:
        """How many seeds both rows have."""
        return int(self.of_seed.shape[-1])

    @property
    def mean(self) -> Floats:
        """The difference: the mean over seeds and examples."""
        found: Floats = self.of_seed.mean(-1)
        return found

    @property
    def runs(self) -> Floats:
        """The variance of one seed's mean difference."""
        found: Floats = self.of_seed.var(-1, ddof=1)
        return found


class Verdict(NamedTuple):
    """A pair after its family was seen; arrays as in Pair."""

    error: Floats  # standard error of the mean
    freedom: float  # degrees of freedom of Student's t
    p: Floats  # two-sided, of this pair alone
    p_holm: Floats  # adjusted for all pairs of the family


def pair(mine: Floats, other: Floats, groups: NDArray[Any], rows: tuple[str, str]) -> Difference:
    """Take the difference of two rows on one task apart.

    `mine` and `other` (.., seeds, examples) hold scores between 0 and 1 of the same seeds and
    examples; `groups` (examples,) numbers the paragraph, document or dialogue of each example.
    Needs two seeds and two groups. The square of a group's deviation is divided by the share of
    examples outside it (Bell and McCaffrey 2002, CR2), and the number of groups is the effective
    one (Kish 1965), so that a few large groups do not count as many.
    """
    weights = np.bincount(groups) / len(groups)
    examples = len(groups)
    table = by_group(mine.astype(np.float64) - other, groups)
    seeds = table.shape[-2]
    of_seed, of_group = table @ weights, table.mean(-2)
    mean = of_seed.mean(-1)
    rest = table - of_group[..., None, :] - of_seed[..., None] + mean[..., None, None]
    factors = weights**2 / (1 - weights)
    chance = (rest**2).sum(-2) @ factors / (seeds - 1)
    between = (of_group - mean[..., None]) ** 2 @ factors
    return Difference(
        rows,
        of_seed,
        chance,
        np.maximum(0, between - chance / seeds),
        _slope(mine) + _slope(other),
        len(weights),
        effective_groups(weights) - 1,
        examples,
    )


def average(pairs: Sequence[Difference]) -> Difference:
    """Return the mean difference of the same two rows over several tasks, for the same seeds.

    A run's luck may be common to all tasks, so `slope` takes it as common. Groups of different
    tasks are drawn apart.
    """
    number = len(pairs)
    return Difference(
        pairs[0].rows,
        np.mean([each.of_seed for each in pairs], axis=0),
        sum((each.chance for each in pairs), np.zeros(())) / number**2,
        sum((each.taste for each in pairs), np.zeros(())) / number**2,
        (sum((np.sqrt(each.slope) for each in pairs), np.zeros(())) / number) ** 2,
        sum(each.groups for each in pairs),
        min(each.group_freedom for each in pairs),
        sum(each.examples for each in pairs),
    )


def judge(pairs: Sequence[Difference], averages: Sequence[Difference] = ()) -> list[Verdict]:
    """Test all pairs of one family, e.g. of a leaderboard, in the given order.

    `averages` over tasks belong to the family and come last; they say nothing new about noise.

    With three seeds a pair shows its own run noise with two degrees of freedom, and by chance as
    far too small. The noise of the whole family, on the logit scale, counts SHARED times as much
    as the pair's own (Smyth 2004, with fixed weights), but never makes it smaller: a row or task
    that is noisier than the others keeps its own noise. docs/statistics.md has the simulations.
    """
    if not pairs:
        return []
    rows = _contrasts(pairs)
    noise = run_noise(pairs)
    found = [_alone(each, noise, rows) for each in (*pairs, *averages)]
    adjusted = holm(np.stack([p for _, _, p in found]))
    return [Verdict(*each, p_holm) for each, p_holm in zip(found, adjusted, strict=True)]


def replicated(values: Floats) -> list[Verdict]:
    """Test means of a family over units that were drawn at random, e.g. worlds.

    `values` (tests, .., units) holds one number for each unit: whatever lies below it, as seeds and
    examples that are nested in a world, is part of its noise. Needs two units that differ.
    Student's t has one degree of freedom less than there are units.
    """
    from scipy.special import stdtr

    units = values.shape[-1]
    error = values.std(-1, ddof=1) / np.sqrt(units)
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.where(error == 0, 0.0, np.abs(values.mean(-1)) / error)
    p = 2 * stdtr(units - 1, -size)
    parts = zip(error, p, holm(p), strict=True)
    return [Verdict(each, units - 1, alone, adjusted) for each, alone, adjusted in parts]


def run_noise(pairs: Sequence[Difference]) -> Floats:
    """Return the variance between runs of one row, in squared logits, pooled over all pairs."""
    over = sum((each.seeds - 1) * (each.runs - each.chance) for each in pairs)
    slopes = sum((each.seeds - 1) * each.slope for each in pairs)
    return np.maximum(0, over) / np.maximum(slopes, np.finfo(float).tiny)


def interval(mean: float, error: float, freedom: float) -> tuple[float, float]:
    """Return the ends of the interval that holds the true mean in 95 of 100 experiments."""
    half = _quantile(freedom, LEVEL / 2) * error
    return mean - half, mean + half


@lru_cache(maxsize=4096)
def detectable(freedom: float, tests: int) -> float:
    """Return the smallest difference that a test finds with a probability of POWER.

    In standard errors of the difference, for Student's t with `freedom` degrees of freedom, at the
    level that Holm's rule gives the first of `tests` comparisons.
    """
    from scipy.special import nctdtrinc

    return float(nctdtrinc(freedom, 1 - POWER, _quantile(freedom, LEVEL / tests / 2)))


@lru_cache(maxsize=4096)
def planned(seeds: int, rows: int, freedom: float, tests: int) -> float:
    """Return the difference that a test will find with a probability of POWER, before any run.

    In standard errors; the runs of all rows are assumed to have the same noise. A pair whose own
    runs happen to differ more gets a larger standard error: this averages over it, while
    `detectable` takes the error of one pair as given.
    """
    from scipy.special import chdtri, ndtr

    own = chdtri(seeds - 1, 1 - (np.arange(_NODES) + 0.5) / _NODES) / (seeds - 1)
    pooled = (own + _shared(rows)) / (1 + _shared(rows))
    bounds = _quantile(freedom, LEVEL / tests / 2) * np.sqrt(np.maximum(own, pooled))

    def power(millionths: int) -> float:
        shift = millionths / 1e6
        return float((ndtr(shift - bounds) + ndtr(-bounds - shift)).mean())

    return bisect_left(range(int((bounds.max() + 10) * 1e6)), POWER, key=power) / 1e6


def by_group(values: Floats, groups: NDArray[np.integer[Any]]) -> Floats:
    """Return (.., groups), the means of values (.., examples) over each group's examples."""
    sizes = np.bincount(groups)
    order = np.argsort(groups, kind="stable")
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    return np.add.reduceat(values[..., order], starts, axis=-1, dtype=np.float64) / sizes


def holm(values: Floats | Sequence[float]) -> Floats:
    """Return p-values (tests, ..) adjusted for the number of tests (Holm 1979)."""
    found = np.asarray(values, dtype=np.float64)
    order = np.argsort(found, axis=0, kind="stable")
    steps = np.arange(len(found), 0, -1).reshape(-1, *(1,) * (found.ndim - 1))
    raised = np.minimum(1, steps * np.take_along_axis(found, order, 0))
    adjusted = np.empty_like(found)
    np.put_along_axis(adjusted, order, np.maximum.accumulate(raised, axis=0), 0)
    return adjusted


def freedom(seeds: int, rows: int, group_freedom: float) -> float:
    """Return the degrees of freedom of a test among those of so many rows and a baseline."""
    return min((seeds - 1) * (1 + _shared(rows)), group_freedom)


def effective_groups(weights: Floats) -> float:
    """Return the number of equal groups that say as much as groups of these shares (Kish 1965)."""
    return max(2.0, 1 / float((weights**2).sum()))


def _quantile(freedom: float, tail: float) -> float:
    """Return what Student's t exceeds with probability `tail`; scipy.stats would load slowly."""
    from scipy.special import stdtrit

    return -float(stdtrit(freedom, tail))


def _shared(rows: int) -> int:
    """Return how much the family's noise counts; of a single row it is that row's own."""
    return min(SHARED, rows - 1)


def _alone(pair: Difference, noise: Floats, rows: int) -> tuple[Floats, float, Floats]:
    """Return the standard error of a pair, its degrees of freedom, and p before adjustment."""
    from scipy.special import stdtr

    family = noise * pair.slope + pair.chance
    shared = _shared(rows)
    runs = np.maximum(pair.runs, (pair.runs + shared * family) / (1 + shared))
    error = np.sqrt(runs / pair.seeds + pair.taste)
    known = freedom(pair.seeds, rows, pair.group_freedom)
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.where(pair.mean == 0, 0.0, np.abs(pair.mean) / error)
    return error, known, 2 * stdtr(known, -size)


def _slope(scores: Floats) -> Floats:
    """Return how much a squared logit moves the squared mean score: (p (1 - p))^2."""
    share: Floats = scores.mean((-1, -2), dtype=np.float64)
    return (share * (1 - share)) ** 2


def _contrasts(pairs: Sequence[Difference]) -> int:
    """Return how many differences between rows are independent: 1 for one row and its baseline."""
    names = {name: place for place, name in enumerate({name for p in pairs for name in p.rows})}
    signs = np.zeros((len(pairs), len(names)))
    for line, each in enumerate(pairs):
        signs[line, [names[name] for name in each.rows]] = 1, -1
    return int(np.linalg.matrix_rank(signs))
