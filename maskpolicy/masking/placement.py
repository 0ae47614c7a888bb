"""Spans of drawn lengths, laid at random over the words or tokens of a passage."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from maskpolicy.types import Spans, as_spans


def scatter(
    units: Spans, ratio: float, lengths: NDArray[np.float64], rng: np.random.Generator
) -> Spans:
    """Hide floor(ratio * n + u) of n adjoining ranges in spans of drawn lengths, u in [0, 1).

    `lengths[i]` is the probability of a span of i + 1 units. The last span is cut to what is left
    of the budget, and all places for the spans are equally likely: nothing is drawn twice, so
    that no ratio makes it loop. Spans stand apart wherever there is room for that.
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
    """Lay ranges of these lengths, in this order, into `room` places; returns starts and ends.

    The free places are dealt to the gaps before, between and behind the ranges, every way of
    dealing them being equally likely ("stars and bars").
    """
    free, count = room - int(lengths.sum()), len(lengths)
    apart = int(free >= count - 1)  # a place between two ranges, where they all can have one
    free -= apart * (count - 1)
    bars = np.sort(rng.permutation(free + count)[:count]) - np.arange(count)
    starts = bars + np.arange(count) * apart + np.cumsum(lengths) - lengths
    return starts, starts + lengths
