"""Mask the end of a passage: prefix language modelling (Raffel et al. 2020; UL2's S-denoiser).

UL2 masks a quarter; T5's prefix language model draws the end of the prefix (google-research/
text-to-text-transfer-transformer, Apache-2.0, `split_tokens`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from maskpolicy import ConfigError, Passage, Rate, Spans, as_spans, omitted, policy


@policy("prefix-lm", target="spans")
@dataclass(frozen=True)
class PrefixLM:
    """Mask the last round(ratio * t) of the t tokens, at least 1 and at most t - 1 (prefix LM)."""

    ratio: Rate = 0.25  # share of the tokens to mask
    # where the prefix ends: by `ratio`, or after any token but the last, all equally likely (T5)
    split: Literal["ratio", "uniform"] = omitted("ratio")

    def __post_init__(self) -> None:
        """Raise ConfigError for a ratio that is not used."""
        if self.split == "uniform" and self.ratio != PrefixLM.ratio:
            raise ConfigError("ratio: has no use with split: uniform: leave one of them out")

    def select(self, passage: Passage, rng: np.random.Generator) -> Spans:
        """Return the suffix; no span in a passage of fewer than 2 tokens."""
        total = len(passage.tokens)
        if total < 2:
            return as_spans([])
        if self.split == "uniform":
            return as_spans([(int(rng.integers(1, total)), total)])
        return as_spans([(total - min(max(round(total * self.ratio), 1), total - 1), total)])
