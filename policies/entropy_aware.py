"""Mask what the model is most uncertain of: entropy-aware masking (Srinivasagan et al. 2026).

The entropy is that of the model in training, the paper's self-masking, and not that of a reference
model. Paper: "Entropy-aware Masking for Masked Language Modeling", *SEM 2026, arXiv 2605.28526.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from maskpolicy import Count, Passage, Range, Rate, Spans, draw_highest, policy
from maskpolicy.models.learned import Current


@policy("entropy-aware", target="spans")
@dataclass(frozen=True)
class EntropyAware:
    """Mask the tokens whose prediction by the model in training has the highest entropy."""

    ratio: Rate = 0.15  # share of the tokens to mask
    every: Count = 500  # steps after which the model predicts again
    hidden: Annotated[float, Range(gt=0, le=1)] = 0.3  # share masked at a time to predict
    only_select: ClassVar = ("ratio",)  # fields that reannotate does not read

    def reannotate(
        self, passages: Sequence[Passage], current: Current
    ) -> dict[str, list[NDArray[Any]]]:
        """Return the column "entropies": the entropy of each token in nats, (t,)."""
        return {"entropies": current.guess(passages, self.hidden).entropies}

    def select(self, passage: Passage, rng: np.random.Generator) -> Spans:
        """Return the floor(ratio * t + u) of t tokens with the highest entropy, u in [0, 1)."""
        return draw_highest(passage.pieces, passage.columns["entropies"], self.ratio, rng)
