"""Mask runs of words with Poisson lengths: text infilling of BART (Lewis et al. 2020).

The share and the lengths count words, and runs begin at words, as in the released code
(facebookresearch/fairseq, `add_whole_word_mask`; without its option `mask_length: subword`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from maskpolicy import Passage, Range, Rate, Spans, policy, scatter

ZERO_LENGTH = 1 / math.expm1(3)  # spans of length 0 per longer span, for a mean of 3


@policy("poisson", target="full", permute_sentences=True, insert=ZERO_LENGTH)
@dataclass(frozen=True)
class Poisson:
    """Mask a share of the words in runs; `insert` adds BART's empty runs as extra masks."""

    ratio: Rate = 0.3  # share of the units to mask
    # mean of the Poisson lengths, in units; if you change it, set `insert` to 1 / (exp(mean) - 1)
    mean: Annotated[float, Range(gt=0, le=100)] = 3.0
    units: Literal["words", "tokens"] = "words"  # what `ratio` and `mean` count, and runs hold

    @cached_property
    def lengths(self) -> NDArray[np.float64]:
        """Probabilities of run lengths 1, 2, .. in units, given a length of at least 1."""
        n = np.arange(1, int(self.mean + 10 * math.sqrt(self.mean) + 10))
        logs = n * math.log(self.mean) - np.cumsum(np.log(n))
        weights = np.exp(logs - logs.max())
        return weights / weights.sum()

    def select(self, passage: Passage, rng: np.random.Generator) -> Spans:
        """Draw runs that cover floor(ratio * n + u) of the n units, u uniform in [0, 1)."""
        units = passage.words if self.units == "words" else passage.pieces
        return scatter(units, self.ratio, self.lengths, rng)
