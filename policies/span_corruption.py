"""Mask an exact number of tokens in an exact number of spans: span corruption (Raffel et al. 2020).

The rule is that of T5's `random_spans_noise_mask` (google-research/text-to-text-transfer-
transformer, Apache-2.0): of t tokens, n = round(t * ratio) are masked, at least 1 and at most
t - 1, in s = max(1, round(n / mean)) spans. The n masked and the t - n other tokens are each
divided into s parts, all divisions being equally likely. The parts alternate, an unmasked one
first, so that a passage never begins with a mask and always ends with one. T5's `random_roll` then
shifts the mask by 0 to t - 1 tokens, around the end of the passage; without it, a single span is
always at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from maskpolicy import Passage, Range, Rate, Spans, as_spans, omitted, policy


@policy("span-corruption", target="spans")
@dataclass(frozen=True)
class SpanCorruption:
    """Mask round(ratio * t) of the t tokens in spans of `mean` tokens on average (T5)."""

    ratio: Rate = 0.15  # share of the tokens to mask
    mean: Annotated[float, Range(ge=1, le=1000)] = 3.0  # mean number of tokens in a span
    roll: bool = omitted(False)  # shift the mask by a random number of tokens, around the end

    def select(self, passage: Passage, rng: np.random.Generator) -> Spans:
        """Draw the spans; no span in a passage of fewer than 2 tokens."""
        total = len(passage.tokens)
        if total < 2:
            return as_spans([])
        masked = min(max(round(total * self.ratio), 1), total - 1)
        parts = min(max(round(masked / self.mean), 1), total - masked)
        kept, noise = (divide(count, parts, rng) for count in (total - masked, masked))
        ends = np.cumsum(kept + noise)
        spans = as_spans(np.stack([ends - noise, ends], axis=1))
        return rolled(spans, int(rng.integers(total)), total) if self.roll else spans


def rolled(spans: Spans, by: int, total: int) -> Spans:
    """Return spans (n, 2) shifted by `by` of `total` tokens; one that passes the end is divided."""
    moved = spans + by
    inside = moved[moved[:, 0] < total].clip(max=total)
    around = (moved[moved[:, 1] > total] - total).clip(min=0)
    return as_spans(np.concatenate([around, inside]))


def divide(count: int, parts: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the sizes (parts,), 1 or more each, of a uniformly drawn division of `count`."""
    cuts = np.sort(rng.permutation(count - 1)[: parts - 1]) + 1
    return np.diff(cuts, prepend=0, append=count)
