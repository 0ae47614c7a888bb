"""Mask the types of tokens that the model predicts badly: adaptive masking (AMLM).

Paper: Edman and Fraser 2025, "Mask and You Shall Receive", arXiv 2510.20475; code:
https://github.com/serdardoesml/babylm25, train_mask.py. Each type of token has a weight, at first
the same for all. It changes with a, the share of its occurrences that the model predicts right:

    a = (right + 0.5) / (seen + 1), new weight = 0.2 * old weight + 0.8 * (1 - a),

but at least `least`; the weights are then scaled to a mean of 1 over the vocabulary. In a passage
each token is masked alone; the chances are proportional to the weights, but at most 1, and their
mean before this limit is `ratio`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from maskpolicy import Count, Passage, Positive, Range, Rate, Schedule, Share, Spans, policy
from maskpolicy.models.learned import Current

FALLING: Any = Schedule(0.4, 0.15)


@policy("amlm", target="spans")
@dataclass(frozen=True)
class AMLM:
    """Mask tokens more often, the worse the model in training predicts their type (AMLM)."""

    ratio: Rate = FALLING  # share of the tokens to mask
    kept: Share = 0.2  # share of the old weight in a new one
    least: Positive = 0.03  # weight, as a share of the mean
    every: Count = 200  # steps after which the weights are computed again
    sample: Count = 512  # most passages that the model predicts
    hidden: Annotated[float, Range(gt=0, le=1)] = 0.3  # share masked at a time to predict
    only_select: ClassVar = ("ratio",)  # fields that reannotate does not read

    def reannotate(
        self, passages: Sequence[Passage], current: Current
    ) -> dict[str, list[NDArray[Any]]]:
        """Return the column "weights": the weight of each token's type, (t,)."""
        weights = current.state.get("weights", np.ones(current.vocabulary))
        if current.steps:  # the release begins with equal weights too
            places = np.linspace(0, len(passages) - 1, min(self.sample, len(passages)))
            sample = [passages[place] for place in places.astype(int).tolist()]
            tokens = np.concatenate([passage.tokens for passage in sample])
            is_right = np.concatenate(current.guess(sample, self.hidden).best) == tokens
            seen = np.bincount(tokens, minlength=len(weights))
            right = np.bincount(tokens[is_right], minlength=len(weights))
            weights = self.updated(weights, right, seen)
        current.state["weights"] = weights
        return {"weights": [weights[passage.tokens] for passage in passages]}

    def updated(
        self, weights: NDArray[Any], right: NDArray[Any], seen: NDArray[Any]
    ) -> NDArray[np.float64]:
        """Return the new weights of v types from the old ones, and from counts, (v,) each."""
        accuracy = (right + 0.5) / (seen + 1)
        new = np.maximum(self.kept * weights + (1 - self.kept) * (1 - accuracy), self.least)
        return np.asarray(new / new.mean())

    def select(self, passage: Passage, rng: np.random.Generator) -> Spans:
        """Mask each token with its chance."""
        weights = passage.columns["weights"]
        chances: NDArray[np.float64] = self.ratio * len(weights) * weights / weights.sum()
        return passage.pieces[rng.random(len(weights)) < chances]
