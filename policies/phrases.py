"""Mask noun phrases and named entities: phrase- and entity-level masking (ERNIE, Sun et al. 2019).

A phrase is a noun chunk or an entity of a spaCy pipeline; those that share a word are one phrase.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from maskpolicy import Json, Passage, Rate, Spans, fill, policy
from maskpolicy.data.corpus import find_phrases, pipeline_identity


@policy("phrases", target="spans")
@dataclass(frozen=True)
class Phrases:
    """Mask whole phrases and entities until they hold a share of the tokens (ERNIE)."""

    pipeline: str  # name or folder of a spaCy pipeline with a parser, such as en_core_web_sm
    ratio: Rate = 0.15  # share of the tokens to mask
    only_select: ClassVar = ("ratio",)  # fields that annotate does not read
    version: ClassVar = 2  # the last phrase is masked whole

    def depends(self) -> Json:
        """Return the pipeline's name and version: `annotate` depends on them besides the fields."""
        return pipeline_identity(self.pipeline)

    def annotate(
        self, passages: Sequence[Passage], fitted: Path | None = None
    ) -> dict[str, list[Spans]]:
        """Return the column "phrases": the token spans of each passage's phrases.

        Raises ConfigError if the pipeline has no parser.
        """
        found = find_phrases([passage.text for passage in passages], self.pipeline)
        return {
            "phrases": [passage.at(each) for passage, each in zip(passages, found, strict=True)]
        }

    def select(self, passage: Passage, rng: np.random.Generator) -> Spans:
        """Draw phrases until they hold floor(ratio * t + u) of the t tokens, u uniform in [0, 1).

        The last phrase is masked whole.
        """
        budget = int(self.ratio * len(passage.tokens) + rng.random())
        return fill(passage.columns["phrases"], budget, rng)
