"""Verdicts on claims by rule: all claims are tested as one family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from maskpolicy.leaderboard import stats
from maskpolicy.leaderboard.comparisons import FEWEST
from maskpolicy.leaderboard.directions import (
    UNDECIDED,
    ClaimedDifference,
    DirectionalClaim,
    Judged,
    Word,
    judge,
)
from maskpolicy.replication.contrast_evidence import Evidence, Evidences
from maskpolicy.replication.contrasts import Claim, Contrast

RUNS = 5  # intermediate runs behind a verdict


@dataclass(frozen=True)
class Estimate:
    """A contrast's difference in its unit, with the 95% interval of its own test."""

    difference: float
    low: float
    high: float
    error: float
    freedom: float


@dataclass(frozen=True)
class Tested:
    """A contrast with its evidence, and the p-values of its own test, which are not adjusted."""

    contrast: Contrast
    evidence: Evidence
    estimate: Estimate | None = None
    p: float | None = None  # of a difference of 0 or in the other direction
    p_least: float | None = None  # of a difference of `least` or more
    finds: float | None = None  # the difference that would have been found with a power of 80%

    @property
    def is_tested(self) -> bool:
        """Whether the verdict rests on this contrast."""
        return self.p is not None

    @property
    def why(self) -> str:
        """Why it is not tested; "" if it is."""
        if self.is_tested:
            return ""
        if self.evidence.reason and not 0 < self.evidence.runs < RUNS:
            return self.evidence.reason
        return f"{self.evidence.runs} runs: a verdict needs {RUNS}"


@dataclass(frozen=True)
class Verdict:
    """A claim with its contrasts, tested; without a tested contrast it has no p-values."""

    claim: Claim
    tested: tuple[Tested, ...]
    judged: Judged | None = None

    @property
    def word(self) -> Word:
        """The verdict."""
        return self.judged.word if self.judged else UNDECIDED

    @property
    def text(self) -> str:
        """The verdict in words; of an undecided one, with what was missing."""
        return self.word if self.word != UNDECIDED else f"{UNDECIDED}: {self._missing()}"

    def _missing(self) -> str:
        """Return why a contrast is not tested, or what the decisive one finds with 80% power.

        That is the least certain one of a claim about all, the most certain one of one about any.
        """
        if not self.tested:
            return "no run has its rows"
        if why := next(filter(None, (each.why for each in self.tested)), ""):
            return why
        choose = max if self.claim.counts == "all" else min
        one = choose(self.tested, key=lambda each: each.p or 0.0)
        which = f" ({one.contrast.compared}, {one.contrast.on})" if len(self.tested) > 1 else ""
        found = f"{one.finds:.3g} {one.contrast.unit}"
        return f"only a difference of {found} or more is found with 80% power{which}"


def decide(claims: Sequence[Claim], evidences: Evidences) -> list[Verdict]:
    """Return the verdicts on claims, which form one family of tests.

    A contrast with fewer than RUNS runs has an estimate and is not tested.
    """
    drafts = [
        [
            Tested(each, evidence)
            for each in claim.contrasts
            if not ((evidence := evidences.of(each)).is_absent and each.if_present)
        ]
        for claim in claims
    ]
    estimated = iter(_estimated([one for each in drafts for one in each]))
    known = [[next(estimated) for _ in each] for each in drafts]
    claimed = [[_claimed(one) for one in each] for each in known]
    stated = [_stated(*each) for each in zip(claims, claimed, strict=True)]
    family = [each for each in stated if each is not None]
    judged = iter(judge(family))
    return [
        Verdict(
            claim,
            tuple(
                _with_p(*each, _tests(claim, own, len(family)))
                for each in zip(drawn, own, strict=True)
            ),
            None if one is None else next(judged),
        )
        for claim, drawn, own, one in zip(claims, known, claimed, stated, strict=True)
    ]


def _stated(claim: Claim, claimed: Sequence[ClaimedDifference | None]) -> DirectionalClaim | None:
    """Return what is tested of a claim; None if no contrast has enough runs."""
    tested = [one for one in claimed if one is not None]
    return DirectionalClaim(tested, claim.counts, len(tested) == len(claimed)) if tested else None


def _tests(claim: Claim, claimed: Sequence[ClaimedDifference | None], claims: int) -> int:
    """Return by how many tests the level of a contrast is divided, at Holm's first step."""
    tested = sum(one is not None for one in claimed)
    return claims * (tested if claim.counts == "any" else 1)


def _estimated(drafts: Sequence[Tested]) -> list[Tested]:
    """Return the contrasts with estimates; the noise of runs is that of all pairs of rows."""
    pairs = list({id(pair): pair for one in drafts for pair in one.evidence.noise_from}.values())
    places = [place for place, one in enumerate(drafts) if one.evidence.pair is not None]
    tested = [pair for place in places if (pair := drafts[place].evidence.pair) is not None]
    errors = dict(zip(places, stats.errors(tested, pairs) if tested else [], strict=True))
    found = []
    for place, one in enumerate(drafts):
        pair, values = one.evidence.pair, one.evidence.values
        estimate = None
        if pair is not None:
            error, freedom = errors[place]
            estimate = _estimate(100 * float(pair.mean), 100 * float(error), freedom)
        elif values is not None and len(values) >= FEWEST:
            variance = max(values.var(ddof=1), one.evidence.resolution**2 / 12)
            error = np.sqrt(variance / len(values))
            estimate = _estimate(float(values.mean()), float(error), len(values) - 1)
        found.append(Tested(one.contrast, one.evidence, estimate))
    return found


def _estimate(mean: float, error: float, freedom: float) -> Estimate:
    return Estimate(mean, *stats.interval(mean, error, freedom), error, freedom)


def _claimed(one: Tested) -> ClaimedDifference | None:
    """Return a contrast's estimate with its claimed direction as positive; None with few runs."""
    estimate, contrast = one.estimate, one.contrast
    if estimate is None or one.evidence.runs < RUNS:
        return None
    towards = np.asarray(contrast.direction * estimate.difference)
    return ClaimedDifference(towards, np.asarray(estimate.error), estimate.freedom, contrast.least)


def _with_p(one: Tested, claimed: ClaimedDifference | None, tests: int) -> Tested:
    """Return a contrast with its p-values, and what it would have found in its family."""
    if claimed is None:
        return one
    finds = float(claimed.error) * stats.detectable(claimed.freedom, tests, sides=1)
    return replace(one, p=float(claimed.p), p_least=float(claimed.p_least), finds=finds)
