"""Hide tokens at random: +Orig recovers the whole text, +Rand only what was hidden."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from maskpolicy import Passage, Share, Spans, draw, policy


@policy("original", target="full")
@policy("random", target="spans")
@dataclass(frozen=True)
class Uniform:
    """Hide a share of the tokens, drawn uniformly without replacement (Ye et al. 2021)."""

    ratio: Share = 0.15  # of the tokens

    def select(self, passage: Passage, rng: np.random.Generator) -> Spans:
        """Draw floor(ratio * t + u) of the t tokens."""
        return draw(passage.pieces, self.ratio, rng)
