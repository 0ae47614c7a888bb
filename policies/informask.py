"""Mask the tokens about which the other tokens say most: InforMask (Sadeq et al., EMNLP 2022).

The informative relevance of a mask is the sum of the pointwise mutual information, PMI = log p(a,
b) / (p(a) p(b)), of each masked token a with each unmasked token b near it. Several masks are drawn
at random, and the one with the highest relevance is used, in each part of a passage as long as a
sentence: the best of 30 masks of 100 tokens is hardly better than any other. The faster form does
this once for each passage; the rate of each token of the vocabulary is the share of its occurrences
that were masked. The released rates (https://github.com/NafisSadeq/InforMask) are .06
to .09 for "of", "and", "in" and "a", with a median of .25 over all types.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeAlias
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from maskpolicy import Count, Json, Passage, Rate, Share, Spans, Statistics, omitted, policy

Pairs: TypeAlias = NDArray[np.int64]
"""(n, 2) ids of tokens, the smaller one first."""
TOKENS, PAIRS = "tokens", "pairs"  # keys of the totals
MASKED, SEEN = "masked", "seen"  # begin the keys of a token's numbers


@policy("informask", target="spans")
@dataclass(frozen=True)
class InforMask:
    """Mask the most informative of several random masks, by the tokens' mutual information."""

    ratio: Rate = 0.15  # share of the tokens to mask
    masks: Count = 30  # random masks; the best one is used
    window: Count = 10  # tokens on either side of a token whose mutual information counts
    # roughly how many tokens a part has; the best mask is chosen for each part
    part: Count = omitted(30)
    # fields that neither count nor annotate reads
    only_select: ClassVar = ("ratio", "masks", "part")
    version: ClassVar = 2  # chooses in parts

    def count(self, passages: Sequence[Passage]) -> Counter[Any]:
        """Count tokens, and pairs of tokens that are at most `window` apart."""
        return count_pairs(passages, self.window)

    def annotate(
        self, passages: Sequence[Passage], fitted: Path | None, statistics: Statistics
    ) -> dict[str, list[NDArray[np.float32]]]:
        """Return the column "pmi", (t, window): the PMI of each token with each one after it."""
        return {"pmi": list(neighbours(passages, statistics, self.window))}

    def select(self, passage: Passage, rng: np.random.Generator) -> Spans:
        """Mask floor(ratio * t + u) of the t tokens of each part, u uniform in [0, 1)."""
        table = passage.columns["pmi"]
        return passage.pieces[best_masks(table, self.ratio, self.masks, self.part, rng)]


@policy("informask-rates", target="spans")
@dataclass(frozen=True)
class InforMaskRates:
    """Mask each token at a rate of its own: how often InforMask's best masks contain it."""

    ratio: Share = 0.15  # share of the tokens in a mask
    masks: Count = 30  # random masks; the best one is used
    window: Count = 10  # tokens on either side of a token whose mutual information counts
    # roughly how many tokens a part has; the best mask is chosen for each part
    part: Count = omitted(30)
    passes: ClassVar = 2  # pairs first, then masks

    def depends(self) -> Json:
        """Return the version of the rules: unknown tokens have the rate `ratio`."""
        return {"masks": 3}

    def count(self, passages: Sequence[Passage], statistics: Statistics | None) -> Counter[Any]:
        """Count pairs of tokens; in the second pass, how often each token occurs and is masked."""
        if statistics is None:
            return count_pairs(passages, self.window)
        counts: Counter[Any] = Counter()
        tables = neighbours(passages, statistics, self.window)
        for passage, table in zip(passages, tables, strict=True):
            rng = np.random.default_rng(crc32(passage.id.encode()))
            chosen = best_masks(table, self.ratio, self.masks, self.part, rng)
            counts.update((SEEN, token) for token in passage.tokens.tolist())
            counts.update((MASKED, token) for token in passage.tokens[chosen].tolist())
        return counts

    def condense(self, statistics: Statistics) -> Iterator[tuple[int, float]]:
        """Yield the rate of each token; -1 for one that no best mask contains."""
        for key, number in statistics.items():
            if isinstance(key, tuple) and key[0] == SEEN:
                yield int(key[1]), statistics[MASKED, key[1]] / number or -1.0

    def annotate(
        self, passages: Sequence[Passage], fitted: Path | None, statistics: Statistics
    ) -> dict[str, list[NDArray[np.float32]]]:
        """Return the column "rates", (t,), of the passage's tokens; unknown tokens have `ratio`."""
        found = (statistics.numbers(passage.tokens.tolist()) for passage in passages)
        known = (np.where(rates, rates, self.ratio).clip(0) for rates in found)
        return {"rates": [rates.astype(np.float32) for rates in known]}

    def select(self, passage: Passage, rng: np.random.Generator) -> Spans:
        """Mask each token with the probability that is its rate."""
        return passage.pieces[rng.random(len(passage.tokens)) < passage.columns["rates"]]


def count_pairs(passages: Sequence[Passage], window: int) -> Counter[Any]:
    """Count tokens by id, pairs of tokens by (smaller id, larger id), and both under their name."""
    tokens = np.concatenate([passage.tokens for passage in passages])
    pairs = np.concatenate([_pairs(passage.tokens, window)[1] for passage in passages])
    counts: Counter[Any] = Counter({TOKENS: len(tokens), PAIRS: len(pairs)})
    unique, back = _distinct(pairs)
    counts.update({id: n for id, n in enumerate(np.bincount(tokens).tolist()) if n})
    counts.update(dict(zip(map(tuple, unique.tolist()), np.bincount(back).tolist(), strict=True)))
    return counts


def neighbours(
    passages: Sequence[Passage], statistics: Statistics, window: int
) -> Iterator[NDArray[np.float32]]:
    """Yield for each passage, (t, window), the PMI of each token with each one after it.

    It is 0 past the last token, and for two tokens that never occur near each other.
    """
    found = [_pairs(passage.tokens, window) for passage in passages]
    unique, back = _distinct(np.concatenate([pairs for _, pairs in found]))
    values, end = information(unique, statistics).astype(np.float32)[back], 0
    for passage, (places, pairs) in zip(passages, found, strict=True):
        table = np.zeros((len(passage.tokens), window), np.float32)
        begin, end = end, end + len(pairs)
        table[places[:, 0], places[:, 1]] = values[begin:end]
        yield table


def information(pairs: Pairs, statistics: Statistics) -> NDArray[np.float64]:
    """Return log p(a, b) / (p(a) p(b)) of pairs of tokens, (n,); 0 for those never counted.

    p(a, b) is the probability that the first token of a pair is a and the second one is b, whatever
    their order in the text.
    """
    together = statistics.numbers([*map(tuple, pairs.tolist())])
    alone = [statistics.numbers(ids.tolist()) / statistics[TOKENS] for ids in pairs.T]
    orders = np.where(pairs[:, 0] == pairs[:, 1], 1, 2)
    found = np.zeros(len(pairs))
    there = together > 0
    expected = orders * alone[0] * alone[1]
    found[there] = np.log(together[there] / statistics[PAIRS] / expected[there])
    return found


def best_masks(
    table: NDArray[np.float32], ratio: float, masks: int, part: int, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Return the best masks of parts of about `part` of the t tokens, joined, (t,)."""
    parts = np.array_split(table, max(1, round(len(table) / part)))
    best = [best_mask(each, int(ratio * len(each) + rng.random()), masks, rng) for each in parts]
    return np.concatenate(best)


def best_mask(
    table: NDArray[np.float32], amount: int, masks: int, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Return the most informative of `masks` random masks of `amount` of the t tokens, (t,).

    `table` is what `neighbours` yields for them.
    """
    ranks = rng.random((masks, len(table))).argsort(axis=1).argsort(axis=1)
    drawn = ranks < amount
    relevance = np.zeros(masks)
    for distance in range(1, min(table.shape[1], len(table) - 1) + 1):
        apart = drawn[:, :-distance] != drawn[:, distance:]
        relevance += apart @ table[:-distance, distance - 1].astype(np.float64)
    return drawn[relevance.argmax()]


def _distinct(pairs: Pairs) -> tuple[Pairs, NDArray[np.int64]]:
    """Return the different pairs, sorted, and the place of each pair among them, (n,)."""
    codes, back = np.unique(pairs[:, 0] << 32 | pairs[:, 1], return_inverse=True)
    return np.stack([codes >> 32, codes & 0xFFFFFFFF], axis=1), back


def _pairs(tokens: NDArray[np.int32], window: int) -> tuple[NDArray[np.int64], Pairs]:
    """Return the pairs of tokens at most `window` apart: (first token, distance - 1), and ids."""
    first, more = np.meshgrid(np.arange(len(tokens)), np.arange(window), indexing="ij")
    places = np.stack([first.ravel(), more.ravel()], axis=1)
    places = places[places.sum(axis=1) + 1 < len(tokens)]
    ids = np.stack([tokens[places[:, 0]], tokens[places.sum(axis=1) + 1]], axis=1)
    return places, np.sort(ids.astype(np.int64), axis=1)
