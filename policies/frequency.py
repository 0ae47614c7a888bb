"""Mask rare tokens more often than common ones: frequency-informed masking (arXiv 2509.05056).

As in the authors' code (https://github.com/DespoinaKK/babylm-diffusion, the method "rank"), the
weight of a token is its rank by frequency in the corpus, the most frequent first. In a passage the
weights are scaled to [0, 1], raised to a power, and adjusted to have the share to mask as their
mean; these are the chances.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from maskpolicy import Passage, Rate, Spans, Statistics, Weight, policy


@policy("frequency", target="spans")
@dataclass(frozen=True)
class Frequency:
    """Mask each token with a chance that follows its rank by frequency: rare tokens more often."""

    ratio: Rate = 0.15  # share of the tokens to mask
    power: Weight = 1.0  # of the weights; 0: all tokens are equally likely
    only_select: ClassVar = ("ratio", "power")  # fields that neither count nor annotate reads

    def count(self, passages: Sequence[Passage]) -> Counter[int]:
        """Count the tokens by id."""
        return Counter(token for passage in passages for token in passage.tokens.tolist())

    def condense(self, statistics: Statistics) -> dict[Any, int]:
        """Return the rank of each token, from 1; of equally frequent ones the lower id is first."""
        items: list[Any] = sorted((-number, token) for token, number in statistics.items())
        return {token: rank for rank, (_, token) in enumerate(items, 1)}

    def annotate(
        self, passages: Sequence[Passage], fitted: Path | None, statistics: Statistics
    ) -> dict[str, list[NDArray[np.float32]]]:
        """Return the column "ranks" (t,) of the passage's tokens; unknown tokens are the rarest."""
        found = (statistics.numbers(passage.tokens.tolist()) for passage in passages)
        rarest = len(statistics) + 1
        return {"ranks": [np.where(ranks, ranks, rarest).astype(np.float32) for ranks in found]}

    def select(self, passage: Passage, rng: np.random.Generator) -> Spans:
        """Mask each token with its chance."""
        chances = spread(passage.columns["ranks"], self.ratio, self.power)
        return passage.pieces[rng.random(len(passage.tokens)) < chances]


def spread(ranks: NDArray[np.float32], mean: float, power: float) -> NDArray[np.float64]:
    """Return chances (t,) with this mean that follow the ranks (t,)."""
    weights = ((ranks - ranks.min()) / max(np.ptp(ranks), 1)).astype(np.float64) ** power
    if (now := weights.mean()) > mean:
        return np.asarray(weights * (mean / now))
    return np.asarray(1 - (1 - weights) * (1 - mean) / max(1 - now, 1e-9))
