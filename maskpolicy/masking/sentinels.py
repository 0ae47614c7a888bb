"""The tokens that replace masked text: one mask token, or numbered sentinels as in T5."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from maskpolicy.core.ragged import Ragged
from maskpolicy.core.types import Corruption, Passage, Spans


@dataclass(frozen=True)
class Marks:
    """The tokens with which a tokenizer marks masked text.

    The n marks of a source are the first n `sentinels`, in order, if there are any. The target then
    has each span after its sentinel, and ends with the next sentinel.
    """

    mask: int  # of a span or a token; with sentinels the first of them
    sentence: int | None = None  # of a span of whole sentences (Pegasus); None: `mask`
    sentinels: tuple[int, ...] = ()
    vocabulary: int = field(default=0, compare=False)  # number of ids
    special: tuple[int, ...] = field(default=(), compare=False)  # ids that are not text

    @cached_property
    def words(self) -> NDArray[np.int32]:
        """The ids from which random tokens are drawn."""
        return np.setdiff1d(np.arange(self.vocabulary, dtype=np.int32), self.special)

    @property
    def most(self) -> int | None:
        """The most marks of a source: one sentinel ends the target; None without sentinels."""
        return len(self.sentinels) - 1 if self.sentinels else None

    def of_spans(
        self,
        passages: Sequence[Passage],
        spans: Spans,
        starts: NDArray[np.int64],
        corruption: Corruption,
    ) -> NDArray[np.int32]:
        """Return the id of each span's mark, (k,); sentinels are negative until `numbered`.

        `spans`, (k, 2), index the tokens of all passages, which begin at `starts`.
        """
        if self.sentinels:
            return -1 - np.arange(len(spans), dtype=np.int32)
        marks = np.full(len(spans), self.mask, np.int32)
        if self.sentence is not None and corruption == "span":
            rows = zip(passages, starts, strict=True)
            firsts, ends = np.concatenate([one.sentences + start for one, start in rows]).T
            marks[np.isin(spans[:, 0], firsts) & np.isin(spans[:, 1], ends)] = self.sentence
        return marks

    def written(self, source: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return which tokens of a finished source are marks."""
        one = self.mask if self.sentence is None else self.sentence
        return np.isin(source, self.sentinels or (self.mask, one))


@dataclass(frozen=True, eq=False)
class Numbered:
    """The k marks of n sources in the order in which they first occur."""

    number: NDArray[np.int64]  # (k,) of the span, from 0; beyond the spans for inserted marks
    row: NDArray[np.int64]  # (k,) of the source
    rank: NDArray[np.int64]  # (k,) of the mark in its source, from 0


def numbered(sources: Ragged, sentinels: tuple[int, ...]) -> tuple[Ragged, Numbered]:
    """Replace the negative marks of the sources by sentinels, in the order of each source.

    Equal marks, such as those of the tokens of one span, become the same sentinel.
    """
    flat, ids = sources.flat.copy(), np.asarray(sentinels, np.int32)
    at = np.flatnonzero(flat < 0)
    codes, first, where = np.unique(flat[at], return_index=True, return_inverse=True)
    order = np.argsort(first)
    row = np.searchsorted(sources.bounds, at[first[order]], side="right") - 1
    rank = np.arange(len(row)) - np.searchsorted(row, row)
    ranks = np.empty(len(codes), np.int64)
    ranks[order] = rank
    flat[at] = ids[ranks[where]]
    return Ragged(flat, sources.bounds), Numbered(-1 - codes[order].astype(np.int64), row, rank)


def spans_after_sentinels(
    tokens: NDArray[np.int32], spans: Spans, marks: Numbered, count: int, sentinels: tuple[int, ...]
) -> Ragged:
    """Return the targets of `count` sources: each span after its sentinel, and a last sentinel.

    An inserted mark has no text after its sentinel. A source without marks has an empty target.
    """
    bounds = np.concatenate([spans, np.zeros((1, 2), spans.dtype)]).astype(np.int64)
    span = bounds[np.minimum(marks.number, len(spans))]  # inserted marks have the empty last one
    sizes = span[:, 1] - span[:, 0]
    ends = sizes.cumsum()
    texts = tokens[np.arange(sizes.sum()) + (span[:, 1] - ends).repeat(sizes)]
    of_source = np.bincount(marks.row, minlength=count)  # marks of each source
    last = of_source.cumsum()[of_source > 0] - 1
    row = np.concatenate([marks.row, marks.row[last]])
    rank = np.concatenate([marks.rank, marks.rank[last] + 1])
    places = np.concatenate([ends - sizes, ends[last]])  # in `found`, of each sentinel
    order = np.lexsort((rank, row))
    ids = np.asarray(sentinels, np.int32)[rank[order]]
    lengths = np.bincount(row, minlength=count)
    lengths += np.bincount(marks.row, sizes, minlength=count).astype(np.int64)
    return Ragged.cut(np.insert(texts, places[order], ids), lengths)
