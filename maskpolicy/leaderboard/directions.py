"""Tests of claims about directions: shown, refuted, or undecided, as one family.

A claim says that several differences have a direction, all of them or any of them, and how large
an effect it is about. Two hypotheses belong to it: that it does not hold, and that it holds with
effects of that size. Both cannot be true at once, so in Holm's procedure the two count as one
(Shaffer 1986): with any true differences whatsoever, at most LEVEL of all families hold a verdict
that is wrong. docs/statistics.md has simulations.

That all differences have the direction is shown by the largest of their p-values, without an
adjustment for their number (an intersection-union test: Berger 1982, Technometrics 24). That one of
them has it is shown by the smallest p-value times their number (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from maskpolicy.leaderboard.stats import LEVEL, Floats, one_sided

Word: TypeAlias = Literal["shown", "refuted", "undecided"]
SHOWN: Word = "shown"
REFUTED: Word = "refuted"
UNDECIDED: Word = "undecided"
Counts: TypeAlias = Literal["all", "any"]


class ClaimedDifference(NamedTuple):
    """An estimated difference whose claimed direction is positive.

    Arrays have the shape () for one family of tests, or one axis for a batch of families.
    """

    difference: Floats
    error: Floats  # standard error
    freedom: float  # degrees of freedom of Student's t
    least: float  # the smallest effect that the claim is about, above 0

    @property
    def p(self) -> Floats:
        """The one-sided p-value of a difference of 0 or less."""
        return one_sided(self.difference, self.error, self.freedom)

    @property
    def p_least(self) -> Floats:
        """The one-sided p-value of a difference of `least` or more."""
        return one_sided(self.least - self.difference, self.error, self.freedom)


class DirectionalClaim(NamedTuple):
    """A claim: that all of some differences are positive, or that any of them is."""

    differences: Sequence[ClaimedDifference]  # at least one
    counts: Counts = "all"
    is_whole: bool = True  # False: it is about further differences that were not measured


class Judged(NamedTuple):
    """The verdict on one claim, with p-values adjusted over the family.

    Arrays are as in `ClaimedDifference`.
    """

    p: Floats  # that the claim does not hold
    p_least: Floats  # that it holds with effects of `least` or more
    is_shown: NDArray[np.bool_]
    is_refuted: NDArray[np.bool_]

    @property
    def word(self) -> Word:
        """The verdict of a single family."""
        return SHOWN if bool(self.is_shown) else REFUTED if bool(self.is_refuted) else UNDECIDED


def judge(family: Sequence[DirectionalClaim]) -> list[Judged]:
    """Return the verdicts on all claims of one family, in the given order.

    A claim is shown if the hypothesis that it does not hold is rejected. It is refuted if it is not
    shown, and the hypothesis that it holds with effects of `least` or more is rejected.
    """
    if not family:
        return []
    both = [_p_values(one) for one in family]
    p, p_least = holm_of_exclusive(*(np.stack(each) for each in zip(*both, strict=True)))
    judged = []
    for of_none, of_least in zip(p, p_least, strict=True):
        is_shown = of_none < LEVEL
        judged.append(Judged(of_none, of_least, is_shown, ~is_shown & (of_least < LEVEL)))
    return judged


def _p_values(one: DirectionalClaim) -> tuple[Floats, Floats]:
    """Return the p-values that a claim does not hold, and that it holds with effects of `least`."""
    none = np.stack([each.p for each in one.differences])
    least = np.stack([each.p_least for each in one.differences])
    if one.counts == "all":
        return _largest(none, one.is_whole), _smallest(least)
    return _smallest(none), _largest(least, one.is_whole)


def _largest(p: Floats, is_whole: bool) -> Floats:
    """Return the p-value that any of the hypotheses is true; 1 if some were not tested."""
    largest: Floats = p.max(0)
    return largest if is_whole else np.ones_like(largest)


def _smallest(p: Floats) -> Floats:
    """Return the p-value that all of the hypotheses are true."""
    smallest: Floats = np.minimum(1, len(p) * p.min(0))
    return smallest


def holm_of_exclusive(one: Floats, other: Floats) -> tuple[Floats, Floats]:
    """Return the adjusted p-values of pairs of hypotheses of which at most one is true.

    `one` and `other` (pairs, ..) are the p-values. Holm's procedure multiplies the next smallest p
    by the number of hypotheses that can still be true. Here these are the pairs of which not both
    are rejected (Shaffer 1986, JASA 81, procedure S2).
    """
    both = np.stack([one, other], axis=1).astype(np.float64)  # (pairs, 2, ..)
    pairs, rest = len(both), both.shape[2:]
    flat = both.reshape(2 * pairs, *rest)
    order = np.argsort(flat, axis=0, kind="stable")
    place = np.argsort(order, axis=0, kind="stable").reshape(both.shape)
    settled = np.zeros((2 * pairs + 1, *rest))  # by number of rejections
    np.put_along_axis(settled, place.max(1) + 1, 1.0, 0)
    left = pairs - np.cumsum(settled, axis=0)[:-1]
    raised = np.minimum(1, left * np.take_along_axis(flat, order, 0))
    adjusted = np.empty_like(flat)
    np.put_along_axis(adjusted, order, np.maximum.accumulate(raised, axis=0), 0)
    adjusted = adjusted.reshape(both.shape)
    return adjusted[:, 0], adjusted[:, 1]
