"""Verdicts on claims by rule: all contrasts of all claims are tested as one family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from maskpolicy.leaderboard import stats
from maskpolicy.leaderboard.comparisons import FEWEST
from maskpolicy.leaderboard.directions import (
    REFUTED,
    SHOWN,
    UNDECIDED,
    Claimed,
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
    """A contrast with its evidence; `judged` is set if it belongs to the family of tests."""

    contrast: Contrast
    evidence: Evidence
    estimate: Estimate | None = None
    judged: Judged | None = None
    finds: float | None = None  # the difference that would have been found with a power of 80%

    @property
    def word(self) -> Word:
        """The verdict on the contrast."""
        return self.judged.word if self.judged else UNDECIDED

    @property
    def why(self) -> str:
        """Why there is no verdict; "" if there is one."""
        if self.word != UNDECIDED:
            return ""
        if self.judged and self.finds is not None:
            return f"would have found {self.finds:.3g} {self.contrast.unit}"
        if self.evidence.reason and not 0 < self.evidence.runs < RUNS:
            return self.evidence.reason
        return f"{self.evidence.runs} runs: a verdict needs {RUNS}"


@dataclass(frozen=True)
class Verdict:
    """A claim with its contrasts, tested."""

    claim: Claim
    tested: tuple[Tested, ...]

    @property
    def word(self) -> Word:
        """The verdict: all contrasts must be shown, or any one of them, as the claim says."""
        words = [each.word for each in self.tested]
        every, some = (SHOWN, REFUTED) if self.claim.counts == "all" else (REFUTED, SHOWN)
        if some in words:
            return some
        return every if set(words) == {every} else UNDECIDED

    @property
    def text(self) -> str:
        """The verdict in words; of an undecided one, with the reason of its first such contrast."""
        if self.word != UNDECIDED:
            return self.word
        return f"{UNDECIDED}: {next(filter(None, (each.why for each in self.tested)), '')}"


def decide(claims: Sequence[Claim], evidences: Evidences) -> list[Verdict]:
    """Return the verdicts on claims; all of their contrasts form one family of tests.

    A contrast with fewer than RUNS runs has an estimate and is not in the family.
    """
    drafts = {
        claim.number: [
            Tested(each, evidence)
            for each in claim.contrasts
            if not ((evidence := evidences.of(each)).is_absent and each.if_present)
        ]
        for claim in claims
    }
    known = _estimated([one for each in drafts.values() for one in each])
    claimed = {
        place: _claimed(one.contrast, one.estimate)
        for place, one in enumerate(known)
        if one.estimate is not None and one.evidence.runs >= RUNS
    }
    judged = dict(zip(claimed, judge(list(claimed.values())), strict=True))
    tested = iter(_with(one, judged.get(place), len(claimed)) for place, one in enumerate(known))
    return [Verdict(claim, tuple(next(tested) for _ in drafts[claim.number])) for claim in claims]


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


def _claimed(contrast: Contrast, estimate: Estimate) -> Claimed:
    """Return a contrast's estimate with its claimed direction as positive."""
    towards = np.asarray(contrast.direction * estimate.difference)
    return Claimed(towards, np.asarray(estimate.error), estimate.freedom, contrast.least)


def _with(one: Tested, judged: Judged | None, tests: int) -> Tested:
    finds = None
    if judged is not None and one.estimate is not None:
        finds = one.estimate.error * stats.detectable(one.estimate.freedom, tests)
    return Tested(one.contrast, one.evidence, one.estimate, judged, finds)
