"""Verdicts on claims by rule: shown, refuted, or undecided; all claims are tested as one family.

A claim says that all, or any, of several differences have a direction, and how large the effects
are. It has two hypotheses: that it does not hold, and that it holds with effects of that size. They
cannot both be true, so Holm's procedure counts them as one (Shaffer 1986). Whatever the true
differences are, a family has a wrong verdict with a probability of at most LEVEL.
docs/development/simulations.md has simulations.

That all differences have the direction is shown by the largest of their p-values, without an
adjustment for their number (an intersection-union test: Berger 1982, Technometrics 24). That one of
them has it is shown by the smallest p-value times their number (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from maskpolicy.analyses.paper_claims.contrast_evidence import Evidence, Evidences
from maskpolicy.analyses.paper_claims.contrasts import Claim, Contrast, Counts
from maskpolicy.leaderboard import stats
from maskpolicy.leaderboard.comparisons import FEWEST
from maskpolicy.leaderboard.stats import LEVEL, Floats, one_sided

RUNS = 5  # intermediate runs behind a verdict
_MOST = 200  # the largest number of runs considered


@dataclass(frozen=True)
class Estimate:
    """A contrast's difference in its unit, with the 95% interval of its own test."""

    difference: float
    low: float
    high: float
    error: float
    freedom: float
    fixed: float = 0.0  # the part of the squared error that more runs do not lower
    most_freedom: float = math.inf  # whatever the number of runs


@dataclass(frozen=True)
class Tested:
    """A contrast with its evidence and the unadjusted p-values of its own test."""

    contrast: Contrast
    evidence: Evidence
    estimate: Estimate | None = None
    tests: int = 1  # divides the level of its test at Holm's first step

    @cached_property
    def claimed(self) -> ClaimedDifference | None:
        """The estimate with its claimed direction as positive; None with few runs."""
        if self.estimate is None or self.evidence.runs < RUNS:
            return None
        towards = np.asarray(self.contrast.direction * self.estimate.difference)
        error = np.asarray(self.estimate.error)
        return ClaimedDifference(towards, error, self.estimate.freedom, self.contrast.least)

    @property
    def p(self) -> float | None:
        """The p-value of a difference of 0 or in the other direction."""
        return None if self.claimed is None else float(self.claimed.p)

    @property
    def p_least(self) -> float | None:
        """The p-value of a difference of `least` or more."""
        return None if self.claimed is None else float(self.claimed.p_least)

    @property
    def finds(self) -> float | None:
        """The difference that would have been found in the family with a power of 80%."""
        if self.claimed is None:
            return None
        return float(self.claimed.error) * stats.detectable(self.claimed.freedom, self.tests, 1)

    def runs_for(self, difference: float, tests: int) -> float:
        """Return how many runs find a difference at LEVEL / `tests` with a power of 80%.

        The result is infinite for a difference of 0 or less, and for more than 200 runs.
        """
        if self.estimate is None or self.claimed is None:
            return math.inf
        own, runs = self.estimate, self.evidence.runs
        for count in range(RUNS, _MOST + 1):
            error = math.sqrt((own.error**2 - own.fixed) * runs / count + own.fixed)
            freedom = min(own.freedom * (count - 1) / (runs - 1), own.most_freedom)
            if error * stats.detectable(freedom, tests, 1) <= difference:
                return count
        return math.inf

    @property
    def why(self) -> str:
        """Why it is not tested; "" if it is."""
        if self.claimed is not None:
            return ""
        if self.evidence.reason and not 0 < self.evidence.runs < RUNS:
            return self.evidence.reason
        return f"{self.evidence.runs} runs: a verdict needs {RUNS}"


@dataclass(frozen=True)
class Verdict:
    """A claim with its tested contrasts; `judged` is None if no contrast could be tested."""

    claim: Claim
    tested: tuple[Tested, ...]
    judged: Judged | None = None
    family: int = 1  # claims that are tested together

    @property
    def word(self) -> Word:
        """The verdict."""
        return self.judged.word if self.judged else UNDECIDED

    @property
    def text(self) -> str:
        """The verdict in words: refuted with the size that is excluded, undecided with a reason."""
        if self.word == SHOWN:
            return SHOWN
        return f"{self.word}: {self._excluded() if self.word == REFUTED else self._missing()}"

    def _excluded(self) -> str:
        """Return the effect that the decisive contrast excludes."""
        known = (each for each in self.tested if each.claimed is not None)
        one = min(known, key=lambda each: each.p_least or 0.0)
        which = self._which(one) if self.claim.counts == "all" else ""  # any: of all of them
        size = f"{one.contrast.least:g} {one.contrast.unit}"
        return f"not {size} or more in the claimed direction{which}"

    def _which(self, one: Tested) -> str:
        named = f" ({one.contrast.compared}, {one.contrast.on})"
        return named if len(self.tested) > 1 else ""

    def _missing(self) -> str:
        """Return why a contrast is not tested, or what the decisive contrast finds with 80% power.

        It is the least certain contrast if the claim is about all, the most certain if about any.
        """
        if not self.tested:
            return "no run has its rows"
        if why := next(filter(None, (each.why for each in self.tested)), ""):
            return why
        choose = max if self.claim.counts == "all" else min
        one = choose(self.tested, key=lambda each: each.p or 0.0)
        found = f"{one.finds:.3g} {one.contrast.unit}"
        only = f"only a difference of {found} or more is found with 80% power{self._which(one)}"
        return f"{only}; {self._needed()}"

    def _needed(self) -> str:
        """Return how many runs would decide the claim, were all differences as estimated."""
        found = [(one, float(one.claimed.difference)) for one in self.tested if one.claimed]
        is_all, family = self.claim.counts == "all", self.family
        each = family * len(found)  # where one of the contrasts is enough
        shows = [one.runs_for(towards, family if is_all else each) for one, towards in found]
        refutes = [
            one.runs_for(one.contrast.least - towards, each if is_all else family)
            for one, towards in found
        ]
        every, some = (max, min) if is_all else (min, max)
        needed = min(every(shows), some(refutes))
        count = f"{needed:g}" if needed <= _MOST else f"more than {_MOST}"
        return f"with differences as estimated, {count} runs would decide"


def decide(claims: Sequence[Claim], evidences: Evidences) -> list[Verdict]:
    """Return the verdicts on claims, which form one family of tests.

    A contrast with fewer than RUNS runs has an estimate and is not tested.
    """
    tested = [[Tested(each, evidences.of(each)) for each in claim.contrasts] for claim in claims]
    tested = [
        [one for one in own if not (one.evidence.is_absent and one.contrast.if_present)]
        for own in tested
    ]
    estimates = iter(_estimated([one.evidence for own in tested for one in own]))
    tested = [[replace(one, estimate=next(estimates)) for one in own] for own in tested]
    claimed = [[one.claimed for one in own if one.claimed is not None] for own in tested]
    family = [
        DirectionalClaim(differences, claim.counts, len(differences) == len(own))
        for claim, differences, own in zip(claims, claimed, tested, strict=True)
        if differences
    ]
    judged = iter(judge(family))
    verdicts = []
    for claim, differences, own in zip(claims, claimed, tested, strict=True):
        tests = len(family) * (len(differences) if claim.counts == "any" else 1)
        with_tests = tuple(replace(one, tests=tests) for one in own)
        found = next(judged) if differences else None
        verdicts.append(Verdict(claim, with_tests, found, len(family)))
    return verdicts


def _estimated(evidences: Sequence[Evidence]) -> list[Estimate | None]:
    """Return an estimate for each evidence; all pairs of rows estimate the noise of runs."""
    pairs = list({id(pair): pair for one in evidences for pair in one.noise_from}.values())
    tested = [one.pair for one in evidences if one.pair is not None]
    errors = iter(stats.errors(tested, pairs) if tested else [])
    estimates: list[Estimate | None] = []
    for one in evidences:
        if one.pair is not None:
            of_mean, freedom = next(errors)
            mean, error = 100 * float(one.pair.mean), 100 * float(of_mean)
            fixed, most = 1e4 * float(one.pair.interaction), one.pair.group_freedom
        elif one.values is not None and len(one.values) >= FEWEST:
            variance = max(one.values.var(ddof=1), one.resolution**2 / 12)
            mean, error = float(one.values.mean()), float(np.sqrt(variance / len(one.values)))
            freedom, fixed, most = len(one.values) - 1, 0.0, math.inf
        else:
            estimates.append(None)
            continue
        ends = stats.interval(mean, error, freedom)
        estimates.append(Estimate(mean, *ends, error, freedom, fixed, most))
    return estimates


Word: TypeAlias = Literal["shown", "refuted", "undecided"]
SHOWN: Word = "shown"
REFUTED: Word = "refuted"
UNDECIDED: Word = "undecided"


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
    return np.minimum(1, len(p) * p.min(0))


def holm_of_exclusive(one: Floats, other: Floats) -> tuple[Floats, Floats]:
    """Return the adjusted p-values of pairs of hypotheses; at most one of each pair is true.

    `one` and `other` (pairs, ..) are the p-values. Holm's procedure multiplies the next smallest p
    by the number of hypotheses that can still be true. Here these are the pairs where not both
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
    adjusted = stats.holm(flat, left).reshape(both.shape)
    return adjusted[:, 0], adjusted[:, 1]
