"""Tests of differences between rows, with seeds and groups of examples as random effects."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Hashable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.05  # significance level; intervals have the confidence level 1 - LEVEL
POWER = 0.8  # the power at which a difference is reported as detectable
_NODES = 2000  # of the quadrature in `planned`
_ROUNDING = 1e-20  # the largest variance that scores in [0, 1] get from rounding
_LARGE = 1000.0  # a bound of t beside which the noise of the mean is nothing
# Runs that learn or fail, 2 logits apart, may all agree by chance. Families with fewer than MANY
# rows, or 3 tests of each, need at least FAILING logits between runs to hold their level then.
MANY = 7
FAILING = 0.8
FEW = 3.5  # effective groups; with fewer, their variance is at least that of examples within them
SHARED = 2  # weight of the family's run noise, relative to a pair's own
Floats: TypeAlias = NDArray[np.floating[Any]]


class Difference(NamedTuple):
    """The difference of two rows on one task, and its variance components; scores are in [0, 1].

    Arrays have the leading axes of the scores: none for one leaderboard, one for a batch of
    simulated leaderboards, or for many pairs of rows of one family. With one seed, runs are held
    fixed: `runs`, `chance` and `slope` are 0, and `interaction` is all of the variance.
    """

    rows: tuple[str, str]  # the difference is the first minus the second
    of_seed: Floats  # (.., seeds) each seed's mean difference over examples
    chance: Floats  # the part of `runs` that single examples explain
    interaction: Floats  # variance of `mean` from the interaction of rows and groups
    slope: Floats  # what run noise of one squared logit in both rows would add to `runs`
    groups: int
    group_freedom: float  # degrees of freedom of `interaction`
    examples: int
    is_average: bool = False  # over tasks

    @property
    def seeds(self) -> int:
        """The number of seeds that both rows have."""
        return int(self.of_seed.shape[-1])

    @property
    def mean(self) -> Floats:
        """The mean difference over seeds and examples."""
        return self.of_seed.mean(-1)

    @property
    def runs(self) -> Floats:
        """The variance of one seed's mean difference."""
        return self.of_seed.var(-1, ddof=min(1, self.seeds - 1))

    @property
    def varies(self) -> NDArray[np.bool_]:
        """Whether seeds or groups differ; without that, there is no error to test with."""
        return self.runs + self.chance + self.interaction > _ROUNDING

    def of(self, kept: NDArray[Any], signs: Floats | float = 1.0) -> Difference:
        """Return the pairs `kept` of many, an index or mask of the first axis, times `signs`."""
        return self._replace(
            of_seed=self.of_seed[kept] * np.reshape(signs, (-1, 1)),
            **{name: getattr(self, name)[kept] for name in ("chance", "interaction", "slope")},
        )


class Verdict(NamedTuple):
    """The test of one difference within its family; arrays as in `Difference`."""

    error: Floats  # standard error of the mean
    freedom: float  # degrees of freedom of Student's t
    p: Floats  # two-sided, before adjustment
    p_holm: Floats  # adjusted over the family


def pair(mine: Floats, other: Floats, groups: NDArray[Any], rows: tuple[str, str]) -> Difference:
    """Estimate the variance components of the difference of two rows on one task.

    `mine` and `other` (.., seeds, examples) are scores in [0, 1] of the same seeds and examples;
    see `weighted`.
    """
    return weighted([(1.0, mine), (-1.0, other)], groups, rows)


def weighted(
    parts: Sequence[tuple[float, Floats]], groups: NDArray[Any], rows: tuple[str, str]
) -> Difference:
    """Estimate the variance components of a weighted sum of rows on one task.

    `parts` has the weight and the scores (.., seeds, examples) in [0, 1] of each row, of the same
    seeds and examples; the weights have the sum 0. `groups` (examples,) numbers the paragraph,
    document or dialogue of each example. At least two groups are needed. The squared
    deviation of a group is divided by the share of examples outside it (Bell and McCaffrey 2002,
    CR2). The degrees of freedom use the effective number of groups (Kish 1965), so that a few large
    groups do not count as many. Two or three groups often have nearly the same mean by chance, as
    counts are whole numbers; the variance within them is a lower bound then.
    """
    weights = np.bincount(groups) / len(groups)
    examples = len(groups)
    total = sum((weight * scores.astype(np.float64) for weight, scores in parts), np.zeros(()))
    table = by_group(total, groups)
    seeds = table.shape[-2]
    of_seed, of_group = table @ weights, table.mean(-2)
    mean = of_seed.mean(-1)
    rest = table - of_group[..., None, :] - of_seed[..., None] + mean[..., None, None]
    factors = weights**2 / (1 - weights)
    chance = (rest**2).sum(-2) @ factors / max(1, seeds - 1)
    between = (of_group - mean[..., None]) ** 2 @ factors
    effective = effective_groups(weights)
    if effective < FEW:
        over, others = total.mean(-2), np.maximum(1, np.bincount(groups) - 1)
        within = by_group(over**2, groups) - by_group(over, groups) ** 2
        between = np.maximum(between, within @ (weights**2 / others))
    return Difference(
        rows=rows,
        of_seed=of_seed,
        chance=chance,
        interaction=np.maximum(0, between - chance / seeds),
        slope=sum((w**2 * _slope(scores) for w, scores in parts), np.zeros(())) * (seeds > 1),
        groups=len(weights),
        group_freedom=effective - 1,
        examples=examples,
    )


def average(pairs: Sequence[Difference], *, apart: bool = False) -> Difference:
    """Return the mean of differences of the same two rows and seeds over several tasks.

    Run noise is assumed to be common to all tasks, and so is what groups add, because tasks may ask
    about the same subjects: standard errors add up. This is an upper bound. Chance is independent,
    and so are groups if `apart` (none is in two tasks).
    """
    number = len(pairs)
    within = sum((each.interaction for each in pairs), np.zeros(()))
    bound = sum((np.sqrt(each.interaction) for each in pairs), np.zeros(())) ** 2
    return Difference(
        rows=pairs[0].rows,
        of_seed=sum((each.of_seed for each in pairs), np.zeros(())) / number,
        chance=sum((each.chance for each in pairs), np.zeros(())) / number**2,
        interaction=(within if apart else bound) / number**2,
        slope=(sum((np.sqrt(each.slope) for each in pairs), np.zeros(())) / number) ** 2,
        groups=sum(each.groups for each in pairs),
        group_freedom=min(each.group_freedom for each in pairs),
        examples=sum(each.examples for each in pairs),
        is_average=True,
    )


def assess_family(
    tested: Sequence[Difference], least: float = 0.0, rows: int | None = None
) -> list[Verdict]:
    """Test all differences of one family, e.g. a leaderboard; verdicts are in the given order.

    Averages over tasks belong to the family; the noise is estimated from the other differences.

    With three seeds, a pair's own estimate of run noise has two degrees of freedom and is often
    far too small. It is therefore averaged with the noise of the family on the logit scale, which
    has SHARED times its weight (Smyth 2004, with fixed weights). The average is only used if it is
    higher: a row or task that is noisier than others keeps its own noise.

    In a small family (see MANY), runs count as differing by `least` logits or more.

    With `rows`, the number of independent differences of rows (see `contrasts`), the leading axis
    of each difference has many pairs of the family, and so have the arrays of its verdict.
    """
    if not tested:
        return []
    known = errors(tested, [each for each in tested if not each.is_average], least, rows)
    alone = [two_sided(each.mean, *one) for each, one in zip(tested, known, strict=True)]
    if rows is None:
        adjusted = [*holm(np.stack(alone))]
    else:
        ends = np.cumsum([len(p) for p in alone])
        adjusted = np.split(holm(np.concatenate(alone)), ends[:-1])
    found = zip(known, alone, adjusted, strict=True)
    return [Verdict(*one, p, p_holm) for one, p, p_holm in found]


def errors(
    tested: Sequence[Difference],
    pairs: Sequence[Difference],
    least: float = 0.0,
    rows: int | None = None,
) -> list[tuple[Floats, float]]:
    """Return the standard error and the degrees of freedom of each of the `tested` differences.

    The run noise of the family is estimated from `pairs`; see `assess_family`.
    """
    noise, tests = run_noise(pairs, together=rows is not None), len(pairs)
    if rows is None:
        rows = contrasts({each.rows for each in pairs})
    else:
        tests = sum(len(each.of_seed) for each in pairs)
    least = least if rows < MANY or tests < 3 * rows else 0.0
    return [_error(each, noise, rows, least) for each in tested]


def two_sided(mean: Floats, error: Floats, freedom: float) -> Floats:
    """Return the two-sided p-value of Student's t for a mean with this standard error."""
    return 2 * one_sided(np.abs(mean), error, freedom)


def one_sided(mean: Floats, error: Floats, freedom: float) -> Floats:
    """Return the p-value of Student's t that the true mean is 0 or less."""
    from scipy.special import stdtr

    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.where(mean == 0, 0.0, mean / error)
    return stdtr(freedom, -size)


def replicated(values: Floats) -> list[Verdict]:
    """Test whether means over randomly drawn units, e.g. worlds, differ from 0, as one family.

    `values` (tests, .., units) has one number for each unit; variation nested in a unit, e.g. of
    seeds and examples in a world, is part of it. At least two units must differ (see `are_equal`).
    Student's t has units - 1 degrees of freedom.
    """
    units = values.shape[-1]
    error = values.std(-1, ddof=1) / np.sqrt(units)
    p = two_sided(np.where(are_equal(values), 0.0, values.mean(-1)), error, units - 1)
    parts = zip(error, p, holm(p), strict=True)
    return [Verdict(each, units - 1, alone, adjusted) for each, alone, adjusted in parts]


def are_equal(values: Floats) -> NDArray[np.bool_]:
    """Return whether the numbers (.., n) are all equal but for rounding: there is no test then."""
    low, high = values.min(-1), values.max(-1)
    return high - low <= 1e-12 + 1e-9 * np.abs(high)


def run_noise(pairs: Sequence[Difference], *, together: bool = False) -> Floats:
    """Return the variance between runs of one row, in squared logits, pooled over all pairs.

    With `together`, the leading axes are pairs of one family, too.
    """
    axis = None if together else ()
    over = sum((each.seeds - 1) * np.sum(each.runs - each.chance, axis) for each in pairs)
    slopes = sum((each.seeds - 1) * np.sum(each.slope, axis) for each in pairs)
    return np.maximum(0, over) / np.maximum(slopes, np.finfo(float).tiny)


def interval(mean: float, error: float, freedom: float) -> tuple[float, float]:
    """Return the ends of the confidence interval of the mean at the level 1 - LEVEL."""
    half = _quantile(freedom, LEVEL / 2) * error
    return mean - half, mean + half


@lru_cache(maxsize=4096)
def detectable(freedom: float, tests: int, sides: int = 2) -> float:
    """Return the smallest difference that a test finds with a power of POWER.

    The unit is the standard error of the difference. The test is Student's t with `freedom`
    degrees of freedom at the level LEVEL / `tests`, that of the first step of Holm's procedure;
    `sides` is 1 for a one-sided test.
    """
    from scipy.special import chdtri, nctdtrinc

    bound = _quantile(freedom, LEVEL / tests / sides)
    if bound > _LARGE:  # there nctdtrinc may not return
        return bound * float(np.sqrt(chdtri(freedom, 1 - POWER) / freedom))
    return float(nctdtrinc(freedom, 1 - POWER, bound))


@lru_cache(maxsize=4096)
def planned(seeds: int, rows: int, freedom: float, tests: int) -> float:
    """Return the difference, in standard errors, that a planned test finds with a power of POWER.

    All rows are assumed to have the same run noise. The estimated standard error of a pair varies
    by chance: this averages over it, while `detectable` takes it as given.
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
    """Return the means (.., groups) of `values` (.., examples) over the examples of each group."""
    sizes = np.bincount(groups)
    order = np.argsort(groups, kind="stable")
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    return np.add.reduceat(values[..., order], starts, axis=-1, dtype=np.float64) / sizes


def holm(values: Floats | Sequence[float], left: Floats | None = None) -> Floats:
    """Return the p-values (tests, ..) adjusted for multiple testing (Holm 1979).

    `left` (tests, ..) is the number of hypotheses that can still be true at the smallest p, the
    next one, ..; by default all that are left.
    """
    single = np.asarray(values, dtype=np.float64)
    order = np.argsort(single, axis=0, kind="stable")
    every = np.arange(len(single), 0.0, -1).reshape(-1, *(1,) * (single.ndim - 1))
    raised = np.minimum(1, (every if left is None else left) * np.take_along_axis(single, order, 0))
    adjusted = np.empty_like(single)
    np.put_along_axis(adjusted, order, np.maximum.accumulate(raised, axis=0), 0)
    return adjusted


def freedom(seeds: int, rows: int, group_freedom: float) -> float:
    """Return the degrees of freedom of a test between one of `rows` rows and their baseline.

    With one seed, runs are held fixed, and those of the groups are all.
    """
    return min((seeds - 1) * (1 + _shared(rows)), group_freedom) if seeds > 1 else group_freedom


def effective_groups(weights: Floats) -> float:
    """Return the effective number of groups with these shares of examples, >= 2 (Kish 1965)."""
    return max(2.0, 1 / float((weights**2).sum()))


def _quantile(freedom: float, tail: float) -> float:
    """Return the upper `tail` quantile of Student's t; `scipy.stats` would be slow to import."""
    from scipy.special import stdtrit

    return -float(stdtrit(freedom, tail))


def _shared(rows: int) -> int:
    """Return the weight of the family's noise; 0 if a single row is compared."""
    return min(SHARED, rows - 1)


def _error(pair: Difference, noise: Floats, rows: int, least: float) -> tuple[Floats, float]:
    """Return the standard error of a difference, and its degrees of freedom.

    If all seeds have the same mean, the variance that single examples explain replaces 0: with few
    right answers, three seeds often agree by chance.
    """
    family = noise * pair.slope + pair.chance
    shared = _shared(rows)
    own = np.where(are_equal(pair.of_seed), pair.chance, pair.runs)
    runs = np.maximum(own, (own + shared * family) / (1 + shared))
    if least:  # of one of the two rows: the other may have no intermediate runs
        runs = np.maximum(runs, least**2 * pair.slope / 2 + pair.chance)
    error = np.sqrt(runs / pair.seeds + pair.interaction)
    return error, freedom(pair.seeds, rows, pair.group_freedom)


def _slope(scores: Floats) -> Floats:
    """Return the derivative of squared mean score by squared logit noise: (p (1 - p))^2."""
    share: Floats = scores.mean((-1, -2), dtype=np.float64)
    return (share * (1 - share)) ** 2


def contrasts(rows: Collection[tuple[Hashable, Hashable]]) -> int:
    """Return the number of independent differences between rows: 1 for one row and a baseline."""
    from scipy.cluster.hierarchy import DisjointSet

    parts = DisjointSet(["", *chain.from_iterable(rows)])
    for first, second in rows:
        parts.merge(first, "" if first == second else second)  # "": itself at an earlier step
    return len(parts) - parts.n_subsets
