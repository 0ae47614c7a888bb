"""Mask the sentences that summarise the rest: gap sentences (PEGASUS, Zhang et al. 2020).

The importance of a sentence is its ROUGE-1 F score against the rest of the passage: 2 o / (a + b),
with o words in common, of a in the sentence and b in the rest. The strategies are those of the
paper: `principal` (Ind) scores each sentence alone; `greedy` (Seq) adds the sentence with which
the chosen sentences together score highest against the rest; `random`; and `lead`, the first
ones. As in PEGASUS-large, the share of sentences is drawn from min_ratio * ratio to ratio (15% to
45%), and importance is multiplied by 1 + noise * e, e normal with a standard deviation of `noise`
(google-research/pegasus, Apache-2.0, `GetSentenceIndicesByRouge`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from maskpolicy import Passage, Rate, Share, Spans, as_spans, policy

_WORD = re.compile(r"\w+")


@policy("gap-sentences", target="spans", join="none")
@dataclass(frozen=True)
class GapSentences:
    """Mask the most important sentences and generate them, one after the other (PEGASUS)."""

    ratio: Rate = 0.45  # largest share of the sentences to mask
    min_ratio: Share = 0.33  # smallest share of `ratio`; 1: always `ratio`; principal only
    # score sentences alone, or with those chosen before; or choose random ones, or the first ones
    strategy: Literal["principal", "greedy", "random", "lead"] = "principal"
    unique: bool = False  # count each word once (the paper's Uniq), not as often as it occurs
    noise: Share = 0.2  # square root of the importance's relative noise; principal only
    only_select: ClassVar = ("ratio", "min_ratio", "noise")  # fields that annotate does not read
    version: ClassVar = 3  # only principal draws its share

    def annotate(
        self, passages: Sequence[Passage], fitted: Path | None = None
    ) -> dict[str, list[NDArray[np.float64]]]:
        """Return the column "importance": a number for each sentence of each passage."""
        return {"importance": [self._importance(passage) for passage in passages]}

    def select(self, passage: Passage, rng: np.random.Generator) -> Spans:
        """Choose floor(share * s) of the s sentences, at least 1; none of a single sentence."""
        total = len(passage.sentences)
        if total < 2:
            return as_spans([])
        is_drawn = self.strategy == "principal"
        share = self.ratio * (rng.uniform(self.min_ratio, 1) if is_drawn else 1)
        count = min(max(int(share * total), 1), total - 1)
        ranks = -passage.columns["importance"]
        if is_drawn:
            ranks = ranks * (1 + self.noise * rng.normal(0, self.noise, total))
        elif self.strategy == "random":
            ranks = rng.permutation(total)
        chosen = np.argsort(ranks, kind="stable")[:count]  # of equal ones, the first
        return passage.sentences.take(np.sort(chosen), axis=0)

    def _importance(self, passage: Passage) -> NDArray[np.float64]:
        """Return the importance (s,) of the sentences, higher for those to mask first."""
        words = [self._words(passage, *bounds) for bounds in passage.sentences.tolist()]
        rest = sum(words, Counter[str]())
        if self.strategy == "principal":
            return np.asarray([self._rouge(each, rest - each) for each in words], float)
        found = np.zeros(len(words))
        if self.strategy == "greedy":
            chosen, left = Counter[str](), dict(enumerate(words))
            for importance in range(len(words), 0, -1):
                scores = {i: self._rouge(chosen + w, rest - w) for i, w in left.items()}
                best = max(scores, key=scores.__getitem__)
                found[best] = importance
                chosen, rest = chosen + left[best], rest - left.pop(best)
        return found

    def _words(self, passage: Passage, first: int, end: int) -> Counter[str]:
        if passage.language != "en":
            of_sentence = (passage.words[:, 0] >= first) & (passage.words[:, 1] <= end)
            words = map(str.lower, passage.texts(passage.words[of_sentence]))
            return Counter(word for word in words if any(map(str.isalnum, word)))
        start, stop = passage.offsets[first, 0], passage.offsets[end - 1, 1]
        return Counter(_WORD.findall(passage.text[start:stop].lower()))

    def _rouge(self, candidate: Counter[str], reference: Counter[str]) -> float:
        """Return the ROUGE-1 F score of two bags of words, 0 if both are empty."""
        if self.unique:
            candidate, reference = Counter(set(candidate)), Counter(set(reference))
        both = (candidate & reference).total()
        return 2 * both / max(1, candidate.total() + reference.total())
