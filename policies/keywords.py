"""Mask the words most typical of their passage: in-domain keywords (Golchin et al. 2023).

As in KeyBERT, the keywords of a passage are the words whose embeddings have the largest cosine to
that of the passage, without spaCy's stop words for its language and their contractions. The
embedding of a passage or word is the mean of its tokens' input embeddings in the model; KeyBERT has
a sentence encoder for this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from maskpolicy import Count, Json, Passage, Rate, Spans, draw, policy
from maskpolicy.data.corpus import content_words, spacy_version
from maskpolicy.models.learned import Contexts, Tools, Training, require

FILE = "embeddings.npy"


@policy("keywords", target="spans")
@dataclass(frozen=True)
class Keywords:
    """Mask occurrences of the passage's keywords, by the model's input embeddings."""

    ratio: Rate = 0.75  # share of the keywords' occurrences to mask
    keywords: Count = 5  # number of different keywords of a passage
    only_select: ClassVar = ("ratio",)  # fields that annotate does not read

    def fit(self, data: Sequence[Contexts], spec: Training, out: Path, tools: Tools) -> Json:
        """Keep the model's input embeddings (vocabulary, width)."""
        embeddings = tools.embeddings().detach().numpy()
        np.save(out / FILE, embeddings)
        return {"vocabulary": len(embeddings), "width": embeddings.shape[1]}

    def depends(self) -> Json:
        """Return the version of spaCy, which the stop words come with, and that of the rules."""
        return {"spacy": spacy_version(), "rules": 2}

    def annotate(
        self, passages: Sequence[Passage], fitted: Path | None = None
    ) -> dict[str, list[Spans]]:
        """Return the column "keywords": the token spans of all occurrences of the keywords.

        Raises ConfigError without the folder of a fit.
        """
        embeddings = np.load(require("keywords", fitted) / FILE, mmap_mode="r")
        return {"keywords": [self._find(passage, embeddings) for passage in passages]}

    def select(self, passage: Passage, rng: np.random.Generator) -> Spans:
        """Draw floor(ratio * n + u) of the n occurrences, u uniform in [0, 1)."""
        return draw(passage.columns["keywords"], self.ratio, rng)

    def _find(self, passage: Passage, embeddings: NDArray[Any]) -> Spans:
        places: dict[str, list[int]] = {}
        for at, word in enumerate(content_words(passage)):
            if len(word) > (passage.language == "en"):
                places.setdefault(word, []).append(at)
        if not places:
            return passage.words[:0]
        vectors = np.asarray(embeddings[passage.tokens], np.float64)
        means = [
            np.mean([vectors[a:b].mean(0) for a, b in passage.words[at].tolist()], axis=0)
            for at in places.values()
        ]
        likeness = [_cosine(mean, vectors.mean(0)) for mean in means]
        best = np.argsort(-np.asarray(likeness), kind="stable")[: self.keywords].tolist()
        occurrences = list(places.values())
        return passage.words[sorted(at for which in best for at in occurrences[which])]


def _cosine(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    norms = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / norms if norms else 0.0
