"""Mask one span of half the tokens: MASS (Song et al. 2019).

The encoder reads one `<mask>` for each token of a consecutive fragment; the decoder predicts the
fragment. As in the authors' code (https://github.com/microsoft/MASS, `mask_start`), it stands at
the start of the text in 20% of the cases, at its end in 20%, and anywhere in 60%.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from maskpolicy import Passage, Rate, Share, Spans, as_spans, policy


@policy("mass", corruption="token", target="spans")
@dataclass(frozen=True)
class Mass:
    """Mask one span of round(ratio * t) of the t tokens: at an end, or anywhere (MASS)."""

    ratio: Rate = 0.5  # share of the tokens to mask
    # probability that the span is at the start or at the end of the passage, half of it each; 0:
    # its place is always drawn uniformly
    edges: Share = 0.4

    def select(self, passage: Passage, rng: np.random.Generator) -> Spans:
        """Draw the span; no span if it would have no token."""
        total = len(passage.tokens)
        masked = round(total * self.ratio)
        if not masked:
            return as_spans([])
        last = total - masked
        place = rng.random() if self.edges else 1.0
        start = int(rng.integers(0, last + 1))
        if place < self.edges:
            start = last if place < self.edges / 2 else 0
        return as_spans([(start, start + masked)])
