"""Mask what the model has not learned yet: self-evolution learning (Zhong et al. 2023).

The model in training predicts every token; tokens whose loss exceeds a threshold are under-learned,
and masks are drawn among them. Labels are smoothed with the predictions of the model at that time
(token-specific label smoothing). Paper: "Self-Evolution Learning for Discriminative
Language Model Pretraining", Findings of ACL 2023, arXiv 2305.15275; code:
https://github.com/WHU-ZQH/SE4PLMs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from maskpolicy import Count, Passage, Positive, Range, Rate, Share, Spans, as_spans, policy
from maskpolicy.models.learned import Current


@policy("self-evolution", target="spans")
@dataclass(frozen=True)
class SelfEvolution:
    """Mask tokens drawn among those that the model in training has not learned yet."""

    ratio: Rate = 0.15  # largest share of the tokens to mask
    threshold: Positive = 0.1  # nats: a token with a higher loss is under-learned
    smoothing: Share = 0.1  # share of a label that the model's own guess gets; 0: no smoothing
    every: Count = 500  # steps after which the model predicts again
    hidden: Annotated[float, Range(gt=0, le=1)] = 0.3  # share masked at a time to predict
    only_select: ClassVar = ("ratio", "threshold", "smoothing")  # that reannotate does not read

    def reannotate(
        self, passages: Sequence[Passage], current: Current
    ) -> dict[str, list[NDArray[Any]]]:
        """Return the column "losses": the loss of each token in nats, (t,)."""
        return {"losses": current.guess(passages, self.hidden).losses}

    def select(self, passage: Passage, rng: np.random.Generator) -> Spans:
        """Draw floor(ratio * t + u) of t tokens, u in [0, 1), or all that are under-learned."""
        budget = int(self.ratio * len(passage.tokens) + rng.random())
        found = np.flatnonzero(passage.columns["losses"] > self.threshold)
        chosen = np.sort(rng.permutation(found)[:budget])
        return as_spans(passage.pieces[chosen])
