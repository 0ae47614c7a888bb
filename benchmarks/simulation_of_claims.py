"""Simulated families of claims: how often a verdict is wrong, and how often there is one.

python -m benchmarks.simulation_of_claims --experiments 1000

docs/development/simulations.md holds the tables. A family is like that of `maskpolicy analyze
findings`: several experiments, of which claims compare rows on single tasks, on means over tasks
and on a mean over steps, and numbers that analyses have for each run. A claim is about one to
twelve of these, that all of them have a direction or that any has. Answers are drawn by
`simulation.draw`. The checkpoints of a run answer the same questions, which are as hard at each
step, and have the run's noise and taste in common; each has its own noise of fine-tuning.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle, islice, product

import numpy as np

from benchmarks.measure import at_least
from benchmarks.simulation import AT_ONCE, SAME, Design, Floats, draw
from maskpolicy.analyses.paper_claims.contrasts import Counts
from maskpolicy.analyses.paper_claims.verdicts import (
    RUNS,
    ClaimedDifference,
    DirectionalClaim,
    Judged,
    judge,
)
from maskpolicy.leaderboard import stats
from maskpolicy.leaderboard.stats import Difference

LEAST = 0.05  # the smallest effect of a contrast of scores: 5 points
NUMBERS = 9  # contrasts of numbers of analyses; their smallest effect is 1
SPREAD = 0.3  # of such a number between runs
SIZES = (5,) * 24  # examples in each group
SHARES = (0.25, 0.25, 0.25, 0.125)  # of three checkpoints and the end, by trapezoids from step 0
CLAIMS: tuple[tuple[int, Counts], ...] = (  # how many differences each claim is about
    *((12, "all"), (4, "all"), (3, "all"), (2, "any"), (2, "any"), (1, "all")),
    *((2, "all"), (2, "all"), (1, "all")),  # other experiments', over tasks, and over steps
    *((2, "all"), (2, "any"), (2, "all"), (1, "all"), (1, "all"), (1, "all")),  # numbers
)
GAINS: dict[str, tuple[float, ...]] = {  # true differences, in smallest effects, in turn
    "none": (0.0,),
    "the smallest effect": (1.0,),
    "none or the smallest effect": (0.0, 1.0),
    "the opposite": (-1.0,),
    "twice the smallest effect": (2.0,),
    "four times the smallest effect": (4.0,),
}
LEAST_FAVOURABLE = "least favourable"  # each claim fails in one place, or holds in one


def compared(rng: np.random.Generator, design: Design, boards: int) -> list[Difference]:
    """Return the differences of all rows to the first on each task of an experiment."""
    groups = np.repeat(np.arange(len(design.sizes)), design.sizes)
    name = str(rng.integers(1 << 62))
    return [
        stats.pair(answers[:, row], answers[:, 0], groups, (f"{row} {name}", f"0 {name}"))
        for answers in draw(rng, design, boards)
        for row in range(1, 1 + design.rows)
    ]


def over_steps(
    rng: np.random.Generator, design: Design, boards: int
) -> tuple[list[Difference], Difference]:
    """Return a row's differences at each checkpoint and the end, and their mean over the steps."""
    steps = replace(design, rows=1, tasks=len(SHARES), common=1.0, repeated=True)
    groups, rows = np.repeat(np.arange(len(design.sizes)), design.sizes), ("row", "other row")
    drawn = draw(rng, steps, boards)
    pairs = [stats.pair(answers[:, 1], answers[:, 0], groups, rows) for answers in drawn]
    parts = [
        (sign * share, answers[:, row])
        for share, answers in zip(SHARES, drawn, strict=True)
        for sign, row in ((1, 1), (-1, 0))
    ]
    slopes = [share * np.sqrt(pair.slope) for share, pair in zip(SHARES, pairs, strict=True)]
    mean = stats.weighted(parts, groups, rows)
    return pairs, mean._replace(slope=np.sum(slopes, axis=0) ** 2)


def family(rng: np.random.Generator, design: Design, boards: int) -> list[ClaimedDifference]:
    """Return estimates of contrasts without any true difference, in batches of families."""
    large, small = replace(design, rows=4, tasks=3), replace(design, rows=1, tasks=1)
    first, second = compared(rng, large, boards), compared(rng, large, boards)
    (other,) = compared(rng, small, boards)
    at_steps, mean_over_steps = over_steps(rng, design, boards)
    pairs = [*first, *second, other, *at_steps]
    means = [stats.average(first[::4]), stats.average(second[::4])]
    tested = [*first, *second, other, at_steps[-1], *means, mean_over_steps]
    claimed = [
        ClaimedDifference(one.mean, error, freedom, LEAST)
        for one, (error, freedom) in zip(tested, stats.errors(tested, pairs), strict=True)
    ]
    numbers = SPREAD * rng.normal(size=(NUMBERS, boards, design.seeds))
    errors = numbers.std(-1, ddof=1) / np.sqrt(design.seeds)
    return claimed + [
        ClaimedDifference(mean, error, design.seeds - 1, 1.0)
        for mean, error in zip(numbers.mean(-1), errors, strict=True)
    ]


def true_differences(name: str) -> list[list[float]]:
    """Return the true differences of each claim's contrasts, in smallest effects.

    The least favourable ones make one hypothesis of each claim true, and barely: of a claim about
    all there is no difference in one contrast and a large one in the others; of a claim about any,
    one has the smallest effect, and the others have the opposite direction.
    """
    if name == LEAST_FAVOURABLE:
        first = {"all": (0.0, 4.0), "any": (1.0, -4.0)}
        return [[first[counts][0], *[first[counts][1]] * (number - 1)] for number, counts in CLAIMS]
    gains = cycle(GAINS[name])
    return [list(islice(gains, number)) for number, _ in CLAIMS]


def claims(
    drawn: Sequence[ClaimedDifference], true: Sequence[Sequence[float]]
) -> list[DirectionalClaim]:
    """Return the claims of a family, whose contrasts have these true differences."""
    found, left = [], iter(drawn)
    for (_, counts), gains in zip(CLAIMS, true, strict=True):
        own = [
            one._replace(difference=one.difference + gain * one.least)
            for gain, one in zip(gains, left, strict=False)
        ]
        found.append(DirectionalClaim(own, counts))
    return found


def is_wrong(claim: DirectionalClaim, judged: Judged, gains: Sequence[float]) -> Floats:
    """Return in which families a verdict is wrong, given the true differences."""
    every, some = (all, any) if claim.counts == "all" else (any, all)
    holds_largely = every(gain >= 1 for gain in gains)
    does_not_hold = some(gain <= 0 for gain in gains)
    return (judged.is_shown & does_not_hold) | (judged.is_refuted & holds_largely)


def rates(design: Design, name: str, experiments: int) -> tuple[float, float]:
    """Return the share of families with a wrong verdict, and of claims with a right one."""
    answers = 2 * 5 * 3 * design.seeds * sum(design.sizes)
    at_once = max(1, min(experiments, AT_ONCE // answers))
    true = true_differences(name)
    wrong = right = 0.0
    for number, start in enumerate(range(0, experiments, at_once)):
        rng = np.random.default_rng([0, number])
        boards = min(at_once, experiments - start)
        drawn = family(rng, design, boards)
        assert len(drawn) == sum(map(len, true))
        made = claims(drawn, true)
        found = judge(made)
        faults = [is_wrong(*each) for each in zip(made, found, true, strict=True)]
        decided = [each.is_shown | each.is_refuted for each in found]
        wrong += np.any(faults, axis=0).sum()
        right += (np.array(decided) & ~np.array(faults)).mean(0).sum()
    return wrong / experiments, right / experiments


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--experiments", type=at_least(1), default=400)
    parser.add_argument("--seeds", type=at_least(RUNS), nargs="+", default=(5, 8))
    given = parser.parse_args()
    print("| seeds | true differences | noise | wrong | decided |")
    kinds = [(noise, SAME) for noise in (0.05, 0.2, 0.4)]
    kinds += [(0.2, louder) for louder in ("one row", "one task", "every cell")]
    names = [*GAINS, LEAST_FAVOURABLE]
    for seeds, name, (noise, louder) in product(given.seeds, names, kinds):
        design = Design(seeds, sizes=SIZES, noise=noise, louder=louder)
        wrong, right = rates(design, name, given.experiments)
        about = noise if louder == SAME else louder
        print(f"| {seeds} | {name} | {about} | {100 * wrong:.1f} | {100 * right:.0f} |", flush=True)


if __name__ == "__main__":
    _main()
