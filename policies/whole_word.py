"""Hide whole words at random."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from maskpolicy import Passage, Share, Spans, draw, policy


@policy("whole-word", target="spans")
@dataclass(frozen=True)
class WholeWord:
    """Hide a share of the words with all their tokens, drawn uniformly without replacement."""

    ratio: Share = 0.15  # of the words

    def select(self, passage: Passage, rng: np.random.Generator) -> Spans:
        """Draw floor(ratio * w + u) of the w words."""
        return draw(passage.words, self.ratio, rng)
