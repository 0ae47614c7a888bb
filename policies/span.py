"""Mask runs of words with geometric lengths (SpanBERT: Joshi et al. 2020).

The rule is that of the released code (facebookresearch/SpanBERT, `PairWithSpanMaskingScheme`):
runs are drawn until the share of the tokens is masked. Each begins at the word of a token that is
drawn among those not masked yet, and may touch or overlap others; the last run is cut where the
budget ends, perhaps inside a word.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from maskpolicy import Passage, Range, Rate, Spans, as_spans, policy


@policy("span", target="spans")
@dataclass(frozen=True)
class Span:
    """Mask a share of the tokens in runs of 1 to `longest` words (3.8 by default), the last cut."""

    ratio: Rate = 0.15  # share of the tokens to mask
    # probability that a run ends after each word
    p: Annotated[float, Range(ge=0.001, le=1)] = 0.2
    longest: Annotated[int, Range(ge=1, le=1000)] = 10  # maximum number of words in a run
    version: ClassVar = 2  # counts tokens, and cuts the last run

    @cached_property
    def lengths(self) -> NDArray[np.float64]:
        """Probabilities of run lengths 1 to `longest` in words; they sum to one."""
        weights = self.p * (1 - self.p) ** np.arange(self.longest)
        return weights / weights.sum()

    def select(self, passage: Passage, rng: np.random.Generator) -> Spans:
        """Draw runs that cover floor(ratio * t + u) of the t tokens, u uniform in [0, 1)."""
        total = len(passage.tokens)
        budget = min(total, int(self.ratio * total + rng.random()))
        starts, ends = passage.words.T
        masked = np.zeros(total, bool)
        while budget > 0:
            length = 1 + rng.choice(self.longest, p=self.lengths)
            first = np.searchsorted(ends, rng.choice(np.flatnonzero(~masked)), side="right")
            run = np.arange(starts[first], ends[min(first + length, len(ends)) - 1])
            new = run[~masked[run]][:budget]
            masked[new] = True
            budget -= len(new)
        turns = np.diff(masked.astype(int), prepend=0, append=0)
        return as_spans(np.stack([np.flatnonzero(turns > 0), np.flatnonzero(turns < 0)], axis=1))
