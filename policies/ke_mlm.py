"""Mask the words that set classes apart: KE-MLM (Kawintiranon and Singh, NAACL 2021).

The words of each class of a label task are compared with those of the other classes by the
log-odds-ratio with an informative Dirichlet prior (Monroe et al. 2008, equations 15, 20 and 22):

    d = log((y + a) / (n + A - y - a)) - log((y' + a) / (n' + A - y' - a))
    z = d / sqrt(1 / (y + a) + 1 / (y' + a))

with y, y' the counts of the word in the class and in the others, n, n' the counts of all words
there, a the word's count in a background and A that of all words there. The background is the
corpus of the intermediate stage together with the texts of the task. As in the authors' code
(https://github.com/kornosk/log-odds-ratio), stop words and punctuation are not counted, and a
contraction counts as the word before it, because its second word ("is", "not", "would", ..) is a
stop word. The words with the highest z of each class are masked.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log, sqrt
from pathlib import Path
from typing import ClassVar

import numpy as np

from maskpolicy import (
    Count,
    DataError,
    Json,
    Passage,
    Rate,
    Spans,
    Statistics,
    as_spans,
    draw,
    policy,
)
from maskpolicy.data.corpus import content_words, spacy_version
from maskpolicy.models.learned import Contexts, Tools, Training, require

FILE = "words.json"
ALL = ""  # the key of the number of all words


@policy("ke-mlm", target="spans")
@dataclass(frozen=True)
class KeMlm:
    """Mask the words that best separate the classes of `train_on` (Kawintiranon and Singh 2021).

    As many of their occurrences in a passage are drawn as `ratio` allows.
    """

    train_on: tuple[str, ...]  # label tasks, whose words are compared within each task
    ratio: Rate = 0.15  # largest share of a passage's words to mask
    words: Count = 20  # most words of each class: those with the highest z, above 0
    only_select: ClassVar = ("ratio",)  # fields that neither fit nor annotate reads
    learns_from: ClassVar = "labels"

    def depends(self) -> Json:
        """Return the version of spaCy, which the stop words come with, and that of the rule."""
        return {"spacy": spacy_version(), "words": 3}

    def count(self, passages: Sequence[Passage]) -> Counter[str]:
        """Count words, and all of them under ""; stop words and punctuation are left out."""
        found = Counter(word for one in passages for word in content_words(one) if word)
        found[ALL] = found.total()
        return found

    def fit(
        self,
        data: Sequence[Contexts],
        spec: Training,
        out: Path,
        tools: Tools,
        statistics: Statistics,
    ) -> Json:
        """Compare the words of each class with those of the others, and keep the best.

        Raises DataError for a task with a single class in train.
        """
        found = {task.name: self._compare(task, statistics) for task in data}
        (out / FILE).write_text(json.dumps(found, ensure_ascii=False, indent=1), encoding="utf-8")
        return {"words": found}

    def _compare(self, task: Contexts, corpus: Statistics) -> dict[str, dict[str, float]]:
        """Return the best words of each class with their z, best first."""
        counts: dict[str, Counter[str]] = {}
        for context in task.train:
            texts = [context.passage, *([context.second] if context.second else [])]
            words = (word for text in texts for word in content_words(text) if word)
            counts.setdefault(context.targets[0], Counter()).update(words)
        if len(counts) < 2:
            raise DataError(
                f"policy ke-mlm: all texts of {task.name} have one label: name a task with two"
            )
        both = sum(counts.values(), Counter[str]())
        prior = {word: number + corpus[word] for word, number in both.items()}
        total = both.total() + corpus[ALL]
        found = {}
        for label in sorted(counts):
            scores = z_scores(counts[label], both - counts[label], prior, total)
            best = sorted(scores, key=lambda word: (-scores[word], word))[: self.words]
            found[label] = {word: round(scores[word], 3) for word in best if scores[word] > 0}
        return found

    def annotate(
        self, passages: Sequence[Passage], fitted: Path | None = None
    ) -> dict[str, list[Spans]]:
        """Return the column "telling": all occurrences of the words of any class."""
        found = json.loads((require("ke-mlm", fitted) / FILE).read_text(encoding="utf-8"))
        telling = {word for task in found.values() for words in task.values() for word in words}
        found = ([word in telling for word in content_words(passage)] for passage in passages)
        rows = zip(passages, found, strict=True)
        return {"telling": [as_spans(one.words[np.asarray(own, bool)]) for one, own in rows]}

    def select(self, passage: Passage, rng: np.random.Generator) -> Spans:
        """Draw at most floor(ratio * w + u) occurrences in w words, u uniform in [0, 1)."""
        found = passage.columns["telling"]
        return draw(found, self.ratio * len(passage.words) / max(1, len(found)), rng)


def z_scores(
    own: Counter[str], others: Counter[str], prior: Mapping[str, float], total: float
) -> dict[str, float]:
    """Return z of each word of the prior, given its counts in a class and in the others.

    `total` is the sum of the prior over all words, also those that it leaves out.
    """
    n, m = own.total() + total, others.total() + total
    found = {}
    for word, a in prior.items():
        y, x = own[word] + a, others[word] + a
        found[word] = (log(y / (n - y)) - log(x / (m - x))) / sqrt(1 / y + 1 / x)
    return found
