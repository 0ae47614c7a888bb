"""Tests of claimed directions: shown, refuted, or undecided, as one family.

Each claim has a smallest effect that it is about. Two tests belong to it: that there is no
difference, and that the difference is as large as this effect. Both cannot be true at once, so in
Holm's procedure the two count as one (Shaffer 1986): with any true differences whatsoever, at most
LEVEL of all families hold a verdict that is wrong. docs/statistics.md has simulations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from maskpolicy.leaderboard.stats import LEVEL, Floats, two_sided

Word: TypeAlias = Literal["shown", "refuted", "undecided"]
SHOWN: Word = "shown"
REFUTED: Word = "refuted"
UNDECIDED: Word = "undecided"


class Claimed(NamedTuple):
    """An estimated difference whose claimed direction is positive.

    Arrays have the shape () for one family of tests, or one axis for a batch of families.
    """

    difference: Floats
    error: Floats  # standard error
    freedom: float  # degrees of freedom of Student's t
    least: float  # the smallest effect that the claim is about, above 0


class Judged(NamedTuple):
    """The verdict on one claim, with p-values adjusted over the family; arrays as in `Claimed`."""

    p: Floats  # that there is no difference, two-sided
    p_least: Floats  # that the difference is `least` or more
    is_shown: NDArray[np.bool_]  # a difference in the claimed direction
    is_refuted: NDArray[np.bool_]  # one in the other direction, or one below `least`

    @property
    def word(self) -> Word:
        """The verdict of a single family."""
        return SHOWN if bool(self.is_shown) else REFUTED if bool(self.is_refuted) else UNDECIDED


def judge(family: Sequence[Claimed]) -> list[Judged]:
    """Return the verdicts on all claims of one family, in the given order.

    A claim is shown if 0 is excluded in the claimed direction. It is refuted if 0 is excluded in
    the other one, or if the interval lies wholly below the smallest effect and 0 is not excluded.
    """
    if not family:
        return []
    zero = np.stack([two_sided(one.difference, one.error, one.freedom) for one in family])
    least = np.stack([_below(one) for one in family])
    p, p_least = holm_of_exclusive(zero, least)
    judged = []
    for one, of_zero, of_least in zip(family, p, p_least, strict=True):
        differs = of_zero < LEVEL
        is_shown = differs & (one.difference > 0)
        is_refuted = ~is_shown & (differs | (of_least < LEVEL))
        judged.append(Judged(of_zero, of_least, is_shown, is_refuted))
    return judged


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


def _below(claimed: Claimed) -> Floats:
    """Return the p-value of a difference of `least` or more; 1 if the difference is no less."""
    short = claimed.difference - claimed.least
    return np.where(short < 0, two_sided(short, claimed.error, claimed.freedom), 1.0)
