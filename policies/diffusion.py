"""Mask each token with a chance drawn for its passage: masked diffusion for encoders.

MDLM (Sahoo et al. 2024, arXiv 2406.07524) and LLaDA (Nie et al. 2025, arXiv 2502.09992): a rate t,
uniform in (0, 1), is drawn for each passage, each token is masked alone with chance t, and the loss
is the sum over the masked tokens, weighted by 1 / t and divided by the number of all tokens. Its
mean is a bound on the negative log-likelihood of a token (NELBO).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from maskpolicy import Distribution, Passage, Rate, Spans, policy

UNIFORM: Any = Distribution("uniform", low=0.001)  # as LLaDA, whose smallest rate is 0.001


@policy("diffusion", target="spans", corruption="token", loss_weight="likelihood")
@dataclass(frozen=True)
class Diffusion:
    """Mask each token alone with a chance that is drawn for its passage (MDLM, LLaDA)."""

    ratio: Rate = UNIFORM  # chance of each token

    def select(self, passage: Passage, rng: np.random.Generator) -> Spans:
        """Mask each token with the chance `ratio`."""
        return passage.pieces[rng.random(len(passage.tokens)) < self.ratio]
