"""Simulated boards of given scores: how often `maskpolicy board` marks systems that do not differ.

python -m benchmarks.simulation_of_given_scores --experiments 4000

Systems are equally good. A board counts if it marks any pair of systems, on a task or on the mean
of all tasks. docs/development/simulations.md holds the table. "misses" is the share of
unadjusted 95% intervals that do not hold the true difference, 0.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import at_least
from maskpolicy.leaderboard.comparisons import Comparison
from maskpolicy.leaderboard.given_tests import Task, compare_all, judged
from maskpolicy.leaderboard.stats import LEVEL


@dataclass(frozen=True)
class Kind:
    """A kind of board; noise and taste are standard deviations in logits."""

    name: str
    systems: int = 10
    tasks: int = 1
    sizes: tuple[int, ...] = (1,) * 200  # examples in each group
    seeds: int = 1
    mean: float = 0.0  # logit of a right answer to an example of average difficulty
    spread: float = 1.5  # of the examples' difficulties
    taste: float = 0.0  # how much a system suits some groups
    noise: float = 0.0  # between the runs of one system
    shares: bool = False  # all tasks ask about the same groups
    graded: bool = False  # scores between 0 and 1, in place of right and wrong
    lacking: int = 0  # systems that lack one seed of the first task
    single: int = 0  # systems that have one seed


_UNEQUAL = (1,) * 40 + (5,) * 12 + (40,) * 5
KINDS = (
    Kind("2 systems, 20 examples", systems=2, sizes=(1,) * 20),
    Kind("2 systems", systems=2),
    Kind("20 examples", sizes=(1,) * 20),
    Kind("50 examples", sizes=(1,) * 50),
    Kind("200 examples"),
    Kind("1,000 examples", sizes=(1,) * 1000),
    Kind("90% right", mean=3.0),
    Kind("98% right", mean=5.0),
    Kind("graded scores", graded=True),
    Kind("40 groups of 5, taste 0.4", sizes=(5,) * 40, taste=0.4),
    Kind("57 groups of 1 to 40, taste 0.4", sizes=_UNEQUAL, taste=0.4),
    Kind("2 groups of 20", sizes=(20,) * 2),
    Kind("2 groups of 100 and 101, 5 systems", systems=5, sizes=(100, 101)),
    Kind("3 groups of 60 to 62", sizes=(60, 61, 62)),
    Kind("4 groups of 40 to 43", sizes=(40, 41, 42, 43)),
    Kind("8 groups of 10", sizes=(10,) * 8),
    Kind("3 seeds, noise 0.2, 2 groups of 20", sizes=(20,) * 2, seeds=3, noise=0.2),
    Kind("30 systems, 5 tasks", systems=30, tasks=5),
    Kind("5 tasks of the same 40 groups, taste 0.4", 10, 5, (5,) * 40, taste=0.4, shares=True),
    Kind("3 seeds, noise 0", seeds=3),
    Kind("3 seeds, noise 0.2", seeds=3, noise=0.2),
    Kind("3 seeds, noise 0.2, 5 tasks", tasks=5, seeds=3, noise=0.2),
    Kind("3 seeds, noise 0.2, 2 systems", systems=2, seeds=3, noise=0.2),
    Kind("5 seeds, noise 0.2", seeds=5, noise=0.2),
    Kind("3 seeds, noise 0.2, 40 groups of 5", 10, 1, (5,) * 40, 3, taste=0.4, noise=0.2),
    Kind("3 seeds, noise 0.2, 5 tasks, 1 lacks a seed", 10, 5, seeds=3, noise=0.2, lacking=1),
    Kind("3 seeds, noise 0.2, 2 tasks, 3 of 4 lack a seed", 4, 2, seeds=3, noise=0.2, lacking=3),
    Kind("4 seeds, noise 0.2, 5 tasks, 1 lacks a seed", 10, 5, seeds=4, noise=0.2, lacking=1),
    Kind("4 seeds, noise 0.2, 2 tasks, 1 of 2 lacks one", 2, 2, seeds=4, noise=0.2, lacking=1),
    Kind("3 seeds, noise 0.8, 2 of 4 have one", systems=4, seeds=3, noise=0.8, single=2),
    Kind("one run each, runs differ by 0.1 logits", noise=0.1),
    Kind("one run each, runs differ by 0.2 logits", noise=0.2),
    Kind("the same, 1,000 examples", sizes=(1,) * 1000, noise=0.2),
)


def comparisons(kind: Kind, rng: np.random.Generator) -> list[Comparison]:
    """Simulate one board without a difference, and test all pairs as `maskpolicy board` does."""
    groups = np.repeat(np.arange(len(kind.sizes)), kind.sizes)
    tastes: list[NDArray[Any]] = []
    tasks: list[Task] = []
    run = rng.normal(0, kind.noise, (kind.systems, kind.seeds, 1))
    for number in range(kind.tasks):
        taste = rng.normal(0, kind.taste, (kind.systems, 1, len(kind.sizes)))
        tastes.append(tastes[0] if kind.shares and tastes else taste)
        logits = rng.normal(kind.mean, kind.spread, len(groups)) + tastes[-1][..., groups] + run
        right = rng.random(logits.shape) < 1 / (1 + np.exp(-logits))
        scores = right * rng.random(logits.shape) if kind.graded else right.astype(np.float64)
        if number == 0:
            lacking = np.arange(kind.lacking)
            scores[lacking, lacking % kind.seeds] = np.nan
        scores[kind.systems - kind.single :, 1:] = np.nan
        tasks.append(Task(str(number), "score", groups, scores))
    order = np.arange(kind.systems)
    found = compare_all(tasks, order, lambda text: None, apart=not kind.shares)
    return [comparison for each in judged(found) for comparison in each]


def rates(kind: Kind, experiments: int, seed: int = 0) -> tuple[float, float]:
    """Return the percentages of boards with a mark, and of intervals that do not hold 0."""
    rng = np.random.default_rng(seed)
    marked = missed = tests = 0
    for _ in range(experiments):
        found = [each for each in comparisons(kind, rng) if each.estimate]
        marked += any(each.is_significant for each in found)
        missed += sum(each.estimate is not None and each.estimate.p < LEVEL for each in found)
        tests += len(found)
    return 100 * marked / experiments, 100 * missed / tests


def main(words: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--experiments", type=at_least(1), default=1000)
    parser.add_argument("--only", default="", help="kinds whose names contain this")
    asked = parser.parse_args(words)
    if not any(asked.only in kind.name for kind in KINDS):
        parser.error(f"--only: no kind of board has {asked.only!r} in its name")
    print("| boards of 10 systems, 200 examples, one run, unless said | marked | misses |")
    print("|---|---:|---:|")
    for kind in KINDS:
        if asked.only in kind.name:
            marked, missed = rates(kind, asked.experiments)
            print(f"| {kind.name} | {marked:.1f} | {missed:.1f} |", flush=True)


if __name__ == "__main__":
    main()
