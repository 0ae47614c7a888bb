"""Mask random tokens: +Orig recovers the whole text, +Rand only the masked tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from maskpolicy import Passage, Rate, Spans, draw, policy


@policy("original", target="full")
@policy("random", target="spans")
@dataclass(frozen=True)
class Uniform:
    """Mask a share of the tokens, drawn uniformly without replacement (Ye et al. 2021)."""

    ratio: Rate = 0.15  # share of the tokens to mask

    def select(self, passage: Passage, rng: np.random.Generator) -> Spans:
        """Draw floor(ratio * t + u) of the t tokens, u uniform in [0, 1)."""
        return draw(passage.pieces, self.ratio, rng)


@policy("random-40", target="spans")
@dataclass(frozen=True)
class Uniform40(Uniform):
    """Mask 40% of the tokens, from which a large BERT learns best (Wettig et al. 2023)."""

    ratio: Rate = 0.4  # share of the tokens to mask
