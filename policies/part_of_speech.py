"""Mask words of given parts of speech, such as nouns alone, or verbs alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from maskpolicy import ConfigError, Json, Passage, Rate, Spans, draw, policy, unknown
from maskpolicy.data.corpus import TAGS, pipeline_identity, tag_words


@policy("pos", target="spans")
@dataclass(frozen=True)
class PartOfSpeech:
    """Mask a share of the words that have one of `tags`, drawn uniformly."""

    pipeline: str  # name or folder of a spaCy pipeline with a tagger, such as en_core_web_sm
    tags: tuple[str, ...] = ("NOUN", "PROPN")  # of Universal Dependencies
    ratio: Rate = 0.5  # share of the words with these tags to mask
    only_select: ClassVar = ("ratio",)  # fields that annotate does not read

    def __post_init__(self) -> None:
        """Raise ConfigError for a tag that is none of Universal Dependencies."""
        for tag in self.tags:
            if tag not in TAGS:
                raise ConfigError(f"tags: {unknown('tag', tag, TAGS)}")

    def depends(self) -> Json:
        """Return the pipeline's name and version, and that of the rules for clitics and marks."""
        return {**pipeline_identity(self.pipeline), "clitics": 4}

    def annotate(
        self, passages: Sequence[Passage], fitted: Path | None = None
    ) -> dict[str, list[Spans]]:
        """Return the column "tagged": the words with one of the tags.

        Raises ConfigError if the pipeline has no tagger.
        """
        wanted = [TAGS.index(tag) for tag in self.tags]
        found = zip(passages, tag_words(passages, self.pipeline), strict=True)
        return {"tagged": [one.words[np.isin(tags, wanted)] for one, tags in found]}

    def select(self, passage: Passage, rng: np.random.Generator) -> Spans:
        """Draw floor(ratio * n + u) of the n words with these tags, u uniform in [0, 1)."""
        return draw(passage.columns["tagged"], self.ratio, rng)
