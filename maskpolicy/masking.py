"""Spans to (source, target): the one place that writes `<mask>`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from maskpolicy.errors import ConfigError
from maskpolicy.ragged import Ragged
from maskpolicy.types import How, Masked, Passage, Policy, Spans, as_spans


def generator(seed: int, epoch: int, passage: str, purpose: str = "") -> np.random.Generator:
    """Return the generator of one passage in one epoch: the same for every policy."""
    key = np.frombuffer(_key(seed, epoch, passage, purpose), "<u8")
    return np.random.Generator(np.random.Philox(key=key))


def _key(seed: int, epoch: int, passage: str, purpose: str) -> bytes:
    text = f"{seed}/{epoch}/{purpose}/{passage}".encode("utf-8", "surrogatepass")
    return blake2b(text, digest_size=16).digest()


class Streams:
    """The generators of many passages, one after the other in one object: making one is slow."""

    def __init__(self) -> None:
        self._bits = np.random.Philox(key=0)
        self._start = self._bits.state
        self._generator = np.random.Generator(self._bits)

    def at(self, seed: int, epoch: int, passage: str, purpose: str = "") -> np.random.Generator:
        """Return what generator() would of the same; it is valid until the next call."""
        self._start["state"]["key"] = np.frombuffer(_key(seed, epoch, passage, purpose), "<u8")
        self._bits.state = self._start
        return self._generator


def draw(units: Spans, ratio: float, rng: np.random.Generator) -> Spans:
    """Draw floor(ratio * n + u) of n ranges without replacement, u uniform in [0, 1)."""
    count = min(len(units), int(ratio * len(units) + rng.random()))
    if not count:
        return as_spans([])
    chosen = rng.permutation(len(units))[:count]
    chosen.sort()
    return units.take(chosen, axis=0)


def select(
    policy: Policy,
    passages: Sequence[Passage],
    seed: int,
    epochs: Sequence[int],
    streams: Streams | None = None,
) -> list[Spans]:
    """Return what `policy` hides in each passage; the whole batch is checked at once.

    Who selects again and again keeps `streams`, which are then not made for each batch. Raises
    ConfigError naming the policy and the passage when spans are not an int32 array of shape (n, 2),
    sorted, disjoint, non-empty and within the passage.
    """
    streams = streams or Streams()
    spans = [
        policy.select(passage, streams.at(seed, epoch, passage.id))
        for passage, epoch in zip(passages, epochs, strict=True)
    ]
    check(spans, passages, type(policy).__name__)
    return spans


def check(batch: Sequence[Spans], passages: Sequence[Passage], policy: str) -> None:
    """Raise ConfigError unless each array of token spans fits its passage."""
    if not batch:
        return
    if not _are_spans(batch):
        for spans, passage in zip(batch, passages, strict=True):
            if not _are_spans([spans]):
                raise _wrong(policy, passage, _what(spans))
    flat = np.concatenate(batch)
    counts = np.asarray([len(spans) for spans in batch])
    limit = np.repeat([len(passage.tokens) for passage in passages], counts)
    begin, end = flat.T
    follows = np.zeros(len(flat) + 1, bool)
    follows[1:-1] = begin[1:] < end[:-1]
    follows[counts.cumsum()] = False  # what begins another passage
    faults = {
        "hold an empty or reversed range": begin >= end,
        "leave the passage": (begin < 0) | (end > limit),
        "overlap or are not sorted": follows[:-1],
    }
    if not np.logical_or.reduce(list(faults.values())).any():
        return
    owner = np.repeat(np.arange(len(batch)), counts)
    for what, bad in faults.items():
        if bad.any():
            raise _wrong(policy, passages[owner[int(np.argmax(bad))]], what)


def _are_spans(batch: Sequence[Any]) -> bool:
    if {type(spans) for spans in batch} != {np.ndarray}:
        return False
    shapes = {(spans.ndim, spans.shape[-1:], spans.dtype) for spans in batch}
    return all(ndim == 2 and last == (2,) and dtype.kind in "iu" for ndim, last, dtype in shapes)


def _what(spans: Any) -> str:
    if not isinstance(spans, np.ndarray) or spans.ndim != 2 or spans.shape[1] != 2:
        shape = getattr(spans, "shape", type(spans).__name__)
        return f"are not an array of shape (n, 2) but {shape}"
    return f"are not integers but {spans.dtype}"


def _wrong(policy: str, passage: Passage, what: str) -> ConfigError:
    return ConfigError(
        f"policy {policy}, passage {passage.id!r} of {len(passage.tokens)} tokens: its spans "
        f"{what}; select must return sorted, disjoint, non-empty token ranges (n, 2)"
    )


@dataclass(frozen=True, eq=False)
class Written(Sequence[Masked]):
    """The training pairs made from n passages, as arrays over all of them."""

    sources: Ragged  # ids with <mask>
    targets: Ragged  # ids to recover; empty where nothing is hidden
    excluded: NDArray[np.bool_] | None  # aligned with sources.flat; None: the encoder sees all
    hidden: NDArray[np.int64]  # (n,) tokens of each passage that were hidden
    spans: NDArray[np.int64]  # (n,) spans that were hidden

    def __len__(self) -> int:
        return len(self.spans)

    @overload
    def __getitem__(self, index: int) -> Masked: ...
    @overload
    def __getitem__(self, index: slice) -> list[Masked]: ...
    def __getitem__(self, index: int | slice) -> Masked | list[Masked]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        source = self.sources[index]
        excluded = np.zeros(len(source), bool)
        if self.excluded is not None:
            excluded = self.excluded[self.sources.bounds[index] : self.sources.bounds[index + 1]]
        amount, count = int(self.hidden[index]), int(self.spans[index])
        return Masked(source, self.targets[index], excluded, amount, count)


def hide(
    passage: Passage, spans: Spans, how: How, mask: int, seed: int = 0, epoch: int = 0
) -> Masked:
    """Write `<mask>` (id `mask`) over `spans` of one passage; see `hide_all`."""
    return hide_all([passage], [spans], how, mask, seed, [epoch])[0]


def hide_all(
    passages: Sequence[Passage],
    spans: Sequence[Spans],
    how: How,
    mask: int,
    seed: int,
    epochs: Sequence[int],
) -> Written:
    """Write `<mask>` (id `mask`) over the spans of each passage as `how` says.

    One `<mask>` stands for each span, or for each token; the target is the full text, or the hidden
    spans in text order joined by `<mask>` (one span gives the bare text), or empty where nothing is
    hidden. Sentence order, inserted masks and excluded masks are drawn from (seed, epoch, passage
    id).
    """
    lengths = np.asarray([len(passage.tokens) for passage in passages])
    counts = np.asarray([len(each) for each in spans])
    tokens = np.concatenate([passage.tokens for passage in passages])
    ends = lengths.cumsum()
    flat = np.concatenate(spans) + (ends - lengths).repeat(counts)[:, None]
    hidden = _covered(flat, len(tokens))
    until = np.concatenate([[0], hidden.cumsum()])  # hidden tokens before each place
    amounts = until[ends] - until[ends - lengths]
    sources = np.where(hidden, np.int32(mask), tokens)
    if how.corruption == "token":
        written, order = Ragged.cut(sources, lengths), np.arange(len(tokens))
    else:
        keep = ~hidden
        keep[flat[:, 0]] = True
        order = np.flatnonzero(keep)
        written = Ragged.cut(sources[order], lengths - amounts + counts)
    draws = _Draws(passages, counts, seed, epochs)
    if how.permute_sentences:
        written = draws.permuted(written, order - (ends - lengths).repeat(written.lengths))
    if how.insert:
        written = draws.inserted(written, how.insert, mask)
    excluded = draws.excluded(written, how.mask_exclusion, mask) if how.mask_exclusion else None
    if how.target == "full":
        wanted = counts > 0
        targets = Ragged.cut(tokens[wanted.repeat(lengths)], lengths * wanted)
    else:
        targets = _hidden(
            tokens, hidden, flat, amounts, counts, mask if how.join == "mask" else None
        )
    return Written(written, targets, excluded, amounts, counts)


@dataclass(frozen=True, eq=False)
class _Draws:
    """What is drawn for each passage of a batch beside its spans, by a stream of its own."""

    passages: Sequence[Passage]
    counts: NDArray[np.int64]  # spans of each passage
    seed: int
    epochs: Sequence[int]

    @cached_property
    def streams(self) -> Streams:
        """Where all of it is drawn from."""
        return Streams()

    def permuted(self, sources: Ragged, places: NDArray[np.int64]) -> Ragged:
        """Shuffle the sentences of each source; `places` are its tokens' places in the text."""
        rows = list(sources)
        kept = Ragged(places, sources.bounds)
        for i in np.flatnonzero(self.counts).tolist():
            rows[i] = rows[i][_permutation(kept[i], self.passages[i], self._at(i, "sentences"))]
        return Ragged.of(rows, np.int32)

    def inserted(self, sources: Ragged, share: float, mask: int) -> Ragged:
        """Insert floor(share * spans + u) masks into each source."""
        rows = list(sources)
        for i in np.flatnonzero(self.counts).tolist():
            rng = self._at(i, "insert")
            extra = int(share * self.counts[i] + rng.random())
            rows[i] = np.insert(rows[i], rng.integers(0, len(rows[i]) + 1, extra), np.int32(mask))
        return Ragged.of(rows, np.int32)

    def excluded(self, sources: Ragged, share: float, mask: int) -> NDArray[np.bool_]:
        """Choose floor(share * n + u) of each source's n `<mask>` tokens."""
        excluded = np.zeros(len(sources.flat), bool)
        for i, source in enumerate(sources):
            at = np.flatnonzero(source == mask) + sources.bounds[i]
            rng = self._at(i, "exclusion")
            excluded[rng.permutation(at)[: int(share * len(at) + rng.random())]] = True
        return excluded

    def _at(self, index: int, purpose: str) -> np.random.Generator:
        return self.streams.at(self.seed, self.epochs[index], self.passages[index].id, purpose)


def _covered(spans: Spans, length: int) -> NDArray[np.bool_]:
    edges = np.zeros(length + 1, np.int32)
    edges[spans[:, 0]] += 1
    edges[spans[:, 1]] -= 1
    return edges.cumsum()[:-1] > 0


def _permutation(
    order: NDArray[np.int64], passage: Passage, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return the order that shuffles sentences; a span belongs to the one it begins in."""
    starts = passage.sentences[:, 0]
    sentence = np.searchsorted(starts, order, side="right")
    rank = rng.permutation(len(starts) + 1)
    return np.argsort(rank[sentence], kind="stable")


def _hidden(
    tokens: NDArray[np.int32],
    hidden: NDArray[np.bool_],
    flat: Spans,
    amounts: NDArray[np.int64],
    counts: NDArray[np.int64],
    join: int | None,
) -> Ragged:
    """Return each passage's hidden spans, `flat` in the concatenated tokens, with joins between."""
    found = tokens[hidden]
    if join is None or counts.max(initial=0) < 2:
        return Ragged.cut(found, amounts)
    joined = np.ones(len(flat), bool)
    joined[(counts.cumsum() - counts)[counts > 0]] = False  # the first of a passage
    before = np.zeros(len(tokens), np.int64)
    before[flat[joined, 0]] = 1
    target = np.full(len(found) + int(joined.sum()), join, np.int32)
    target[np.arange(len(found)) + before.cumsum()[hidden]] = found
    return Ragged.cut(target, amounts + np.maximum(counts - 1, 0))
