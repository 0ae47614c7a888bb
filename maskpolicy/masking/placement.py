"""Place spans of random lengths at random over the words or tokens of a passage."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from maskpolicy.types import Spans, as_spans


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
