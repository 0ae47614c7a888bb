"""Mask each passage with one of several policies: a mixture of denoisers (UL2, Tay et al. 2023).

UL2 draws one of seven denoisers, all equally likely. R, regular: T5's span corruption with spans
of 3 or 8 tokens, 15%. X, extreme: spans of 3 or 8 tokens, 50%, and of 64 tokens, 15% or 50%. S,
sequential: the last quarter of the text. R and X are rolled, since a single span would always stand
at the end, as in S.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from maskpolicy import ConfigError, Passage, Schedule, Weight, choose, policy

REGULAR = ((3.0, 0.15), (8.0, 0.15))  # mean number of tokens in a span, share of the tokens
EXTREME = ((3.0, 0.5), (8.0, 0.5), (64.0, 0.15), (64.0, 0.5))


def denoisers() -> tuple[str | dict[str, Any], ...]:
    """Return the blocks of UL2's policies: R, X and S."""
    spans = (
        {"name": "span-corruption", "ratio": ratio, "mean": mean, "roll": True}
        for mean, ratio in (*REGULAR, *EXTREME)
    )
    return (*spans, {"name": "prefix-lm", "ratio": 0.25})


@policy("mixture")
@dataclass(frozen=True)
class Mixture:
    """Mask each passage with one of `members`, each with a denoising objective of its own."""

    members: tuple[str | dict[str, Any], ...]  # names or blocks of policies
    weights: tuple[Weight, ...] = ()  # of the members, numbers or schedules; if omitted: equal

    def __post_init__(self) -> None:
        """Raise ConfigError for more or fewer weights than members, or weights that sum to 0."""
        if self.weights and len(self.weights) != len(self.members):
            raise ConfigError(
                f"weights: are {len(self.weights)} for {len(self.members)} members: give one each"
            )
        first = [each.start if isinstance(each, Schedule) else each for each in self.weights]
        if first and not sum(first) > 0:
            raise ConfigError(
                "weights: add up to 0 at the first step: give a member a weight above 0"
            )

    def choose_member(self, passage: Passage, rng: np.random.Generator) -> int:
        """Draw a member with probability proportional to its weight."""
        return choose(self.weights or (1.0,) * len(self.members), rng)


@policy("ul2")
@dataclass(frozen=True)
class UL2(Mixture):
    """Mask each passage with a regular, an extreme or a sequential denoiser (UL2)."""

    # two regular, four extreme ones, and the sequential one
    members: tuple[str | dict[str, Any], ...] = field(default_factory=denoisers)
