"""Mask correlated n-grams as units: PMI-Masking (Levine et al., ICLR 2021).

The n-grams of 2 to 5 words that occur at least 10 times are ranked, for each length, by

    PMI_n = min over segmentations s_1 .. s_k of the n-gram, k > 1: log p(n-gram)^2 / prod p(s_i)

as in the authors' released lists (https://github.com/AI21Labs/pmi-masking; the paper has p in place
of p^2). p is the share among all n-grams of that length. The best ones are the masking vocabulary:
half of it bigrams, a quarter trigrams, and an eighth each of 4-grams and 5-grams.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappush, heappushpop
from itertools import islice
from math import log
from pathlib import Path
from typing import ClassVar

import numpy as np

from maskpolicy import Count, DataError, Passage, Rate, Spans, Statistics, as_spans, fill, policy
from maskpolicy.data.corpus import ngrams

SHARES = {2: 0.5, 3: 0.25, 4: 0.125, 5: 0.125}  # of the vocabulary, by number of words
LONGEST = max(SHARES)
CHUNK = 10_000  # n-grams whose parts are looked up at a time


@policy("pmi", target="spans")
@dataclass(frozen=True)
class PMI:
    """Mask units that are n-grams with a high pointwise mutual information, or else words."""

    ratio: Rate = 0.15  # share of the tokens to mask
    entries: Count = 800_000  # maximum number of n-grams in the masking vocabulary
    min_count: Count = 10  # least occurrences of an n-gram of the vocabulary
    only_select: ClassVar = ("ratio",)  # fields that neither count nor annotate reads
    version: ClassVar = 2  # the last unit is masked whole

    def count(self, passages: Sequence[Passage]) -> Counter[str | int]:
        """Count the n-grams of 1 to 5 words, and the n-grams of each length."""
        counts: Counter[str | int] = Counter()
        for passage in passages:
            for length, _, ngram in ngrams(passage, LONGEST):
                counts[ngram] += 1
                counts[length] += 1
        return counts

    def condense(self, statistics: Statistics) -> dict[str, int]:
        """Return the masking vocabulary: n-grams, each with its rank among those of its length.

        Raises DataError if no n-gram occurs often enough.
        """
        best: dict[int, list[tuple[float, str]]] = {length: [] for length in SHARES}
        for score, ngram in scores(statistics):
            length = len(ngram.split(" "))
            limit = int(self.entries * SHARES[length])
            if len(best[length]) < limit:
                heappush(best[length], (score, ngram))
            elif limit:
                heappushpop(best[length], (score, ngram))
        ranked = [sorted(each, reverse=True) for each in best.values()]
        found = {ngram: rank for each in ranked for rank, (_, ngram) in enumerate(each, 1)}
        if not found:
            raise DataError(
                f"policy pmi: no n-gram occurs {self.min_count} times in the corpus: lower "
                "min_count, or use a larger corpus"
                if self.entries > 1
                else "policy pmi: entries: 1 has no room for an n-gram of two words: give more"
            )
        return found

    def annotate(
        self, passages: Sequence[Passage], fitted: Path | None, statistics: Statistics
    ) -> dict[str, list[Spans]]:
        """Return the column "ngrams": token spans of the vocabulary's n-grams, which may overlap.

        An n-gram within a longer one is left out.
        """
        return {"ngrams": [_found(passage, statistics) for passage in passages]}

    def select(self, passage: Passage, rng: np.random.Generator) -> Spans:
        """Draw units until they hold floor(ratio * t + u) of the t tokens, u uniform in [0, 1).

        The last unit is masked whole, so that long units are as likely as words.
        """
        budget = int(self.ratio * len(passage.tokens) + rng.random())
        return fill(units(passage, rng), budget, rng)


def scores(statistics: Statistics) -> Iterator[tuple[float, str]]:
    """Yield (PMI_n, n-gram) for all counted n-grams of more than one word."""
    totals = {length: statistics[length] for length in range(1, LONGEST + 1)}
    every = (key for key, _ in statistics.items() if isinstance(key, str) and " " in key)
    while chunk := list(islice(every, CHUNK)):
        parts = {part for ngram in chunk for part in _parts(ngram.split(" ")).values()}
        numbers = dict(zip(parts, statistics.numbers(list(parts)).tolist(), strict=True))
        for ngram in chunk:
            yield _score(ngram.split(" "), numbers, totals), ngram


def _parts(words: Sequence[str]) -> dict[tuple[int, int], str]:
    """Return the text of each range of words, by (first, end)."""
    ends = range(1, len(words) + 1)
    return {(a, b): " ".join(words[a:b]) for b in ends for a in range(b)}


def _score(words: Sequence[str], numbers: dict[str, int], totals: dict[int, float]) -> float:
    """Return PMI_n: log p^2 less the best sum of log p over the parts of a segmentation."""
    parts = _parts(words)
    alone = {(a, b): log(numbers[text] / totals[b - a]) for (a, b), text in parts.items()}
    best: dict[tuple[int, int], float] = {}
    for a, b in sorted(parts, key=lambda part: part[1] - part[0]):
        cuts = [best[a, cut] + best[cut, b] for cut in range(a + 1, b)]
        whole = (a, b) == (0, len(words))
        best[a, b] = max(cuts if whole else [alone[a, b], *cuts])
    return 2 * alone[0, len(words)] - best[0, len(words)]


def _found(passage: Passage, statistics: Statistics) -> Spans:
    every = list(ngrams(passage, LONGEST, shortest=2))
    known = statistics.numbers([ngram for *_, ngram in every]) > 0
    ranges = sorted(
        (first, -(first + length))
        for (length, first, _), there in zip(every, known, strict=True)
        if there
    )
    kept: list[tuple[int, int]] = []
    for first, end in ranges:  # of those with the same first word, the longest comes first
        if not kept or -end > kept[-1][1]:
            kept.append((first, -end))
    words = passage.words
    return as_spans([(words[first, 0], words[end - 1, 1]) for first, end in kept])


def units(passage: Passage, rng: np.random.Generator) -> Spans:
    """Divide a passage into n-grams and words; of overlapping n-grams, a random one is a unit."""
    words, found = passage.words, passage.columns["ngrams"]
    firsts = np.searchsorted(words[:, 0], found[:, 0])
    ends = np.searchsorted(words[:, 1], found[:, 1]) + 1
    starts = np.ones(len(words), bool)  # of a unit
    free = np.ones(len(words), bool)
    for at in rng.permutation(len(found)).tolist():
        first, end = int(firsts[at]), int(ends[at])
        if free[first:end].all():
            free[first:end] = starts[first + 1 : end] = False
    begins = np.flatnonzero(starts)
    last = np.append(begins[1:], len(words))[: len(begins)] - 1
    return as_spans(np.stack([words[begins, 0], words[last, 1]], axis=1))
