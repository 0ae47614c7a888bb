"""Mask what makes a corpus different from general text: Difference-Masking (Wilf et al. 2023).

The anchors of a corpus are the words with the highest TF-ICF: their share of its words, times log
(n + 1) / (m + 1) for the m of n passages of a general corpus that have the word. The words of
a passage are ranked by the largest cosine of their embedding to that of an anchor, and drawn with
chances of n, n - 1, .., 1, as in the authors' code (https://github.com/abwilf/Difference-Masking,
`get_masked_indices`). The embedding of a word is the mean of its tokens' input embeddings. An
anchor's own occurrences have a cosine of 1, in whatever case they are written.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nlargest
from math import log
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from maskpolicy import (
    Count,
    DataError,
    Json,
    Passage,
    Rate,
    Spans,
    Statistics,
    draw_weighted,
    policy,
)
from maskpolicy.data.corpus import content_words, spacy_version
from maskpolicy.models.learned import Contexts, Tools, Training, require

EMBEDDINGS, ANCHORS, WORDS_OF = "embeddings.npy", "anchors.npy", "anchors.json"
WORDS, PASSAGES = 0, 1  # keys of the numbers of all words, and of all passages
IN = "in"  # begins the key of the number of passages that have a word


@policy("difference-masking", target="spans")
@dataclass(frozen=True)
class DifferenceMasking:
    """Mask words near those that are frequent in the corpus and rare in general text."""

    ratio: Rate = 0.15  # share of the words to mask
    anchors: Count = 20  # words that stand for what is special about the corpus
    only_select: ClassVar = ("ratio",)  # fields that neither fit nor annotate reads
    version: ClassVar = 2  # weighs by rank

    def depends(self) -> Json:
        """Return the version of spaCy, which the stop words come with, and that of the rules."""
        return {"spacy": spacy_version(), "rules": 2}

    def count(self, passages: Sequence[Passage]) -> Counter[Any]:
        """Count words and the passages that have them, without stop words and punctuation."""
        counts: Counter[Any] = Counter()
        for passage in passages:
            words = _content(passage)
            counts.update(words)
            counts.update((IN, word) for word in set(words))
            counts[WORDS] += len(words)
            counts[PASSAGES] += 1
        return counts

    def condense(self, statistics: Statistics, contrast: Statistics) -> dict[str, float]:
        """Return the anchors, each with its TF-ICF. Raises DataError for a corpus without words."""
        words = ((key, number) for key, number in statistics.items() if isinstance(key, str))
        passages = contrast[PASSAGES]
        ranked = (
            (number / statistics[WORDS] * log((passages + 1) / (contrast[IN, word] + 1)), word)
            for word, number in words
        )
        best = nlargest(self.anchors, ((score, word) for score, word in ranked if score > 0))
        if not best:
            raise DataError(
                "policy difference-masking: no word of the corpus is rarer in contrast_corpus: "
                "name another one"
            )
        return {word: score for score, word in best}

    def fit(
        self,
        data: Sequence[Contexts],
        spec: Training,
        out: Path,
        tools: Tools,
        statistics: Statistics,
    ) -> Json:
        """Keep the model's input embeddings (vocabulary, width), and the anchors' (n, width)."""
        embeddings = tools.embeddings().detach().numpy()
        best = sorted(statistics.items(), key=lambda item: (-item[1], item[0]))
        tokenizer: Any = tools.load_tokenizer()
        ids = [tokenizer(f" {word}", add_special_tokens=False).input_ids for word, _ in best]
        (out / WORDS_OF).write_text(json.dumps([word for word, _ in best]), encoding="utf-8")
        np.save(out / EMBEDDINGS, embeddings)
        np.save(out / ANCHORS, _units(np.stack([embeddings[each].mean(0) for each in ids])))
        return {"anchors": {word: round(score, 6) for word, score in best}}

    def annotate(
        self, passages: Sequence[Passage], fitted: Path | None = None
    ) -> dict[str, list[NDArray[np.float32]]]:
        """Return the column "weights" (w,): each word's largest cosine to an anchor, at least 0.

        Punctuation has 0. Raises ConfigError without the folder of a fit.
        """
        folder = require("difference-masking", fitted)
        embeddings, anchors = np.load(folder / EMBEDDINGS, mmap_mode="r"), np.load(folder / ANCHORS)
        own = set(json.loads((folder / WORDS_OF).read_text(encoding="utf-8")))
        return {"weights": [_weights(passage, embeddings, anchors, own) for passage in passages]}

    def select(self, passage: Passage, rng: np.random.Generator) -> Spans:
        """Draw floor(ratio * w + u) of the w words by the rank of their weights, u in [0, 1).

        Equal weights share the mean of their ranks; those of 0 have rank 0.
        """
        weights = passage.columns["weights"]
        ranked = np.sort(weights[weights > 0])
        below, up_to = (ranked.searchsorted(weights, side) for side in ("left", "right"))
        ranks = np.where(weights > 0, (below + up_to + 1) / 2, 0)
        return draw_weighted(passage.words, ranks, self.ratio, rng)


def _content(passage: Passage) -> list[str]:
    """Return the words of a passage in lower case that have a letter and are not stop words."""
    return [word for word in content_words(passage) if len(word) > (passage.language == "en")]


def _weights(
    passage: Passage, embeddings: NDArray[Any], anchors: NDArray[np.float64], own: set[str]
) -> NDArray[np.float32]:
    if not len(passage.words):
        return np.zeros(0, np.float32)
    starts, ends = passage.words.T
    vectors = np.asarray(embeddings[passage.tokens], np.float64)
    sums = np.append(np.zeros_like(vectors[:1]), vectors.cumsum(0), axis=0)
    means = _units((sums[ends] - sums[starts]) / (ends - starts)[:, None])
    is_word = [any(map(str.isalnum, text)) for text in passage.texts(passage.words)]
    largest: NDArray[np.float64] = (means @ anchors.T).max(1)
    largest[[word in own for word in content_words(passage)]] = 1
    return (largest.clip(0) * is_word).astype(np.float32)


def _units(vectors: NDArray[Any]) -> NDArray[np.float64]:
    """Return vectors (n, width) of length 1; those of length 0 stay as they are."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors, np.float64) / np.where(norms > 0, norms, 1)
