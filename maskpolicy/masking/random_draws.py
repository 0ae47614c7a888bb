"""Draw ranges, places of spans, or the index of a member, at random: what policies select with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskpolicy.core.errors import ConfigError
from maskpolicy.core.types import Spans, as_spans


def draw(units: Spans, ratio: float, rng: np.random.Generator) -> Spans:
    """Draw floor(ratio * n + u) of n ranges without replacement, u uniform in [0, 1).

    Returns them in their order in `units`.
    """
    count = min(len(units), int(ratio * len(units) + rng.random()))
    if not count:
        return as_spans([])
    chosen = rng.permutation(len(units))[:count]
    chosen.sort()
    return units.take(chosen, axis=0)


def draw_highest(
    units: Spans, scores: NDArray[Any], ratio: float, rng: np.random.Generator
) -> Spans:
    """Return the floor(ratio * n + u) of n ranges with the highest scores (n,), u as in `draw`.

    Equal scores are decided by lot. The ranges keep their order in `units`.
    """
    count = min(len(units), int(ratio * len(units) + rng.random()))
    shuffled = rng.permutation(len(units))
    best = shuffled[np.argsort(-scores[shuffled], kind="stable")][:count]
    return units.take(np.sort(best), axis=0)


def draw_weighted(
    units: Spans, weights: NDArray[Any], ratio: float, rng: np.random.Generator
) -> Spans:
    """Draw floor(ratio * n + u) of n ranges one by one, each in proportion to its weight (n,).

    u is that of `draw`, and nothing is put back. Ranges of weight 0 are drawn last. The ranges keep
    their order in `units`. Source: the exponential keys of Efraimidis and Spirakis 2006.
    """
    count = min(len(units), int(ratio * len(units) + rng.random()))
    waits = rng.exponential(size=len(units))
    keys = np.divide(waits, weights, out=np.full(len(units), np.inf), where=weights > 0)
    first = np.lexsort((waits, keys))[:count]
    return units.take(np.sort(first), axis=0)


def fill(units: Spans, budget: int, rng: np.random.Generator) -> Spans:
    """Draw ranges in random order until they hold `budget` tokens.

    A range that exceeds the rest of the budget is skipped. Returns them in their order in `units`.
    """
    sizes = (units[:, 1] - units[:, 0]).tolist()
    chosen = []
    for place in rng.permutation(len(units)).tolist():
        if sizes[place] <= budget:
            chosen.append(place)
            budget -= sizes[place]
    return as_spans(units[np.sort(np.asarray(chosen, int))])


def choose(weights: Sequence[float], rng: np.random.Generator) -> int:
    """Draw an index with probability proportional to its weight; ConfigError if all are 0."""
    ends = np.cumsum(weights)
    if not len(ends) or not ends[-1] > 0:
        raise ConfigError("weights: add up to 0: give a member a weight above 0")
    return int(ends.searchsorted(rng.random() * ends[-1], side="right"))


def scatter(
    units: Spans, ratio: float, lengths: NDArray[np.float64], rng: np.random.Generator
) -> Spans:
    """Draw spans that cover floor(ratio * n + u) of n adjacent `units`, u uniform in [0, 1).

    `lengths[i]` is the probability of a span of i + 1 units. The last span is cut to the rest of
    the budget. All placements are equally likely, without rejection sampling, so every ratio takes
    bounded time. Spans do not touch each other if there is room.
    """
    budget = min(len(units), int(ratio * len(units) + rng.random()))
    if not budget:
        return as_spans([])
    drawn = 1 + rng.choice(len(lengths), size=budget, p=lengths)
    ends = np.cumsum(drawn)
    count = int(np.searchsorted(ends, budget)) + 1
    drawn = drawn[:count]
    drawn[-1] -= ends[count - 1] - budget
    first = _starts(rng.permutation(drawn), len(units), rng)
    return np.stack([units[first[0], 0], units[first[1] - 1, 1]], axis=1)


def _starts(
    lengths: NDArray[np.int64], room: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Place ranges of these lengths, in this order, in `room` positions; return starts and ends.

    The free positions go to the gaps before, between and after the ranges; all ways to distribute
    them are equally likely ("stars and bars").
    """
    free, count = room - int(lengths.sum()), len(lengths)
    apart = int(free >= count - 1)  # one position between two ranges, if there is room for all
    free -= apart * (count - 1)
    bars = np.sort(rng.permutation(free + count)[:count]) - np.arange(count)
    starts = bars + np.arange(count) * apart + np.cumsum(lengths) - lengths
    return starts, starts + lengths
