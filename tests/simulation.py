"""Experiments with two equal policies, and how often a test calls them different.

python tests/simulation.py prints the table of docs/log.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskpolicy import stats

LEVEL = 0.05
DRAWS, AT_ONCE = 2000, 500
LUCK = 0.5  # points between fine-tunings of one model
SIZES = (3,) * 100  # examples in each group
TASTE = 0.05  # share by which a policy suits one group of examples, whatever the run
FLIPS = 400


@dataclass(frozen=True)
class Draws:
    """Answers of both policies, right or wrong: (draws, seeds, examples)."""

    mine: NDArray[Any]
    other: NDArray[Any]
    groups: NDArray[Any]


def draw(
    rng: np.random.Generator,
    draws: int,
    seeds: int,
    spread: float,
    sizes: Sequence[int],
    taste: float,
) -> Draws:
    """Let two policies of the same expected score answer; each seed has a run of its own.

    `spread` is the standard deviation between intermediate runs, in points. How hard an example is,
    its group and the policy's taste for a group are the same for all seeds.
    """
    groups = np.repeat(np.arange(len(sizes)), sizes)
    shape = (draws, 1, len(sizes))
    ease = 0.35 + rng.normal(0, 0.2, shape)[..., groups]
    ease = ease + rng.normal(0, 0.15, (draws, 1, len(groups)))

    def answers() -> NDArray[Any]:
        luck = rng.normal(0, np.hypot(spread, LUCK), (draws, seeds, 1)) / 100
        chance = ease + luck + rng.normal(0, taste, shape)[..., groups]
        return (rng.random((draws, seeds, len(groups))) < chance).astype(np.float32)

    return Draws(answers(), answers(), groups)


def rates(
    rng: np.random.Generator,
    *,
    seeds: int,
    spread: float,
    sizes: Sequence[int] = SIZES,
    taste: float = TASTE,
) -> dict[str, float]:
    """Return how many of all draws each method calls different, in percent."""
    found: dict[str, int] = {}
    for _ in range(DRAWS // AT_ONCE):
        made = draw(rng, AT_ONCE, seeds, spread, sizes, taste)
        for method, p in methods(made, rng).items():
            found[method] = found.get(method, 0) + int((p < LEVEL).sum())
    return {method: 100 * count / DRAWS for method, count in found.items()}


def methods(made: Draws, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Return the p-values of our test, of variants of it, and of what is commonly done."""
    differences = made.mine - made.other
    table = stats.by_group(differences, made.groups)
    ours = stats.crossed(table)
    return {
        "crossed": stats.p_values(ours),
        "many groups": stats.p_values(ours._replace(freedom=_of_seeds(table))),
        "by size": stats.p_values(stats.crossed(_by_size(differences, made.groups))),
        "unpaired": _unpaired(made),
        "permuted": _permuted(differences.mean(1), rng),
    }


def _of_seeds(table: NDArray[Any]) -> NDArray[Any]:
    """Return degrees of freedom that take the number of groups for infinite."""
    seeds, groups = table.shape[-2:]
    ms_seed = groups * table.mean(-1).var(-1, ddof=1)
    variance = stats.crossed(table).error ** 2 * seeds * groups
    return variance**2 / (ms_seed**2 / (seeds - 1))


def _by_size(differences: NDArray[Any], groups: NDArray[Any]) -> NDArray[Any]:
    """Return the linearised parts of the mean over examples, one for each group."""
    sizes = np.bincount(groups)
    mean = differences.mean((-1, -2), dtype=np.float64)[:, None, None]
    return mean + (stats.by_group(differences, groups) - mean) * sizes * len(sizes) / sizes.sum()


def _unpaired(made: Draws) -> NDArray[Any]:
    """Compare two shares of right answers, each answer of each seed on its own."""
    from scipy.stats import norm

    n = made.mine[0].size
    one, two = (each.mean((1, 2), dtype=np.float64) for each in (made.mine, made.other))
    error = np.sqrt((one * (1 - one) + two * (1 - two)) / n)
    return 2 * norm.sf(np.abs(one - two) / error)


def _permuted(differences: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
    """Exchange the policies' answers to each example at random, seeds averaged."""
    signs = rng.choice((-1.0, 1.0), (differences.shape[1], FLIPS))
    as_large = np.abs(differences @ signs) >= np.abs(differences.sum(1))[:, None] - 1e-9
    return (1 + as_large.sum(1)) / (1 + FLIPS)


if __name__ == "__main__":
    for seeds in (3, 5, 8):
        rng = np.random.default_rng(seeds)
        for spread in (0.0, 1.0, 2.0, 3.0, 4.0):
            found = rates(rng, seeds=seeds, spread=spread)
            print(seeds, spread, *(f"{name} {rate:.1f}" for name, rate in found.items()), sep=" | ")
