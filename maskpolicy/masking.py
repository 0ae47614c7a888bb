"""Spans to (source, target): the one place that writes `<mask>`."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskpolicy.errors import ConfigError
from maskpolicy.types import How, Masked, Passage, Policy, Spans, as_spans


def generator(seed: int, epoch: int, passage: str, purpose: str = "") -> np.random.Generator:
    """Return the generator of one passage in one epoch: the same for every policy."""
    return np.random.Generator(np.random.Philox(key=_key(seed, epoch, passage, purpose)))


def _key(seed: int, epoch: int, passage: str, purpose: str) -> int:
    text = f"{seed}/{epoch}/{purpose}/{passage}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=16).digest(), "little")


class _Streams:
    """The generators of many passages, one after the other in one object: making one is slow."""

    def __init__(self) -> None:
        self._bits = np.random.Philox(key=0)
        self._start = self._bits.state
        self._generator = np.random.Generator(self._bits)

    def at(self, seed: int, epoch: int, passage: str) -> np.random.Generator:
        """Return what generator(seed, epoch, passage) would; it is valid until the next call."""
        key = _key(seed, epoch, passage, "")
        self._start["state"]["key"][:] = key & 0xFFFFFFFFFFFFFFFF, key >> 64
        self._bits.state = self._start
        return self._generator


def draw(units: Spans, ratio: float, rng: np.random.Generator) -> Spans:
    """Draw floor(ratio * n + u) of n ranges without replacement, u uniform in [0, 1)."""
    count = min(len(units), int(ratio * len(units) + rng.random()))
    if not count:
        return as_spans([])
    chosen = rng.permutation(len(units))[:count]
    chosen.sort()
    return units[chosen]


def select(
    policy: Policy, passages: Sequence[Passage], seed: int, epochs: Sequence[int]
) -> list[Spans]:
    """Return what `policy` hides in each passage; the whole batch is checked at once.

    Raises ConfigError naming the policy and the passage when spans are not an int32 array of
    shape (n, 2), sorted, disjoint, non-empty and within the passage.
    """
    streams = _Streams()
    spans = [
        policy.select(passage, streams.at(seed, epoch, passage.id))
        for passage, epoch in zip(passages, epochs, strict=True)
    ]
    check(spans, passages, type(policy).__name__)
    return spans


def check(batch: Sequence[Spans], passages: Sequence[Passage], policy: str) -> None:
    """Raise ConfigError unless each array of token spans fits its passage."""
    for spans, passage in zip(batch, passages, strict=True):
        if not isinstance(spans, np.ndarray) or spans.ndim != 2 or spans.shape[1] != 2:
            shape = getattr(spans, "shape", type(spans).__name__)
            raise _wrong(policy, passage, f"are not an array of shape (n, 2) but {shape}")
        if not np.issubdtype(spans.dtype, np.integer):
            raise _wrong(policy, passage, f"are not integers but {spans.dtype}")
    if not batch:
        return
    flat = np.concatenate(batch)
    owner = np.repeat(np.arange(len(batch)), [len(spans) for spans in batch])
    limit = np.asarray([len(passage.tokens) for passage in passages])[owner]
    follows = np.zeros(len(flat), bool)
    follows[1:] = (owner[1:] == owner[:-1]) & (flat[1:, 0] < flat[:-1, 1])
    for bad, what in (
        (flat[:, 0] >= flat[:, 1], "hold an empty or reversed range"),
        ((flat[:, 0] < 0) | (flat[:, 1] > limit), "leave the passage"),
        (follows, "overlap or are not sorted"),
    ):
        if bad.any():
            raise _wrong(policy, passages[owner[int(np.argmax(bad))]], what)


def _wrong(policy: str, passage: Passage, what: str) -> ConfigError:
    return ConfigError(
        f"policy {policy}, passage {passage.id!r} of {len(passage.tokens)} tokens: its spans "
        f"{what}; select must return sorted, disjoint, non-empty token ranges (n, 2)"
    )


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
) -> list[Masked]:
    """Write `<mask>` (id `mask`) over the spans of each passage as `how` says.

    One `<mask>` stands for each span, or for each token; the target is the full text, or the hidden
    spans in text order joined by `<mask>` (one span gives the bare text), or empty where nothing is
    hidden. Sentence order, inserted masks and excluded masks are drawn from (seed, epoch, passage
    id). The arrays are views of arrays over the whole batch.
    """
    lengths = np.asarray([len(passage.tokens) for passage in passages])
    counts = np.asarray([len(each) for each in spans])
    tokens = np.concatenate([passage.tokens for passage in passages])
    owner = np.repeat(np.arange(len(passages)), lengths)
    shift = np.cumsum(lengths) - lengths
    flat = np.concatenate(spans) + np.repeat(shift, counts)[:, None]
    hidden = _covered(flat, len(tokens))
    keep = ~hidden if how.corruption == "span" else np.ones(len(tokens), bool)
    keep[flat[:, 0]] = True
    order = np.flatnonzero(keep)
    sources = _cut(np.where(hidden, np.int32(mask), tokens)[order], owner[order], len(passages))
    if how.permute_sentences:
        kept = _cut(order, owner[order], len(passages))
        for i in np.flatnonzero(counts).tolist():
            rng = generator(seed, epochs[i], passages[i].id, "sentences")
            sources[i] = sources[i][_permutation(kept[i] - shift[i], passages[i], rng)]
    if how.insert:
        for i in np.flatnonzero(counts).tolist():
            rng = generator(seed, epochs[i], passages[i].id, "insert")
            sources[i] = _inserted(sources[i], how.insert * counts[i], mask, rng)
    targets = _targets(tokens, owner, hidden, flat, counts, how, mask)
    amounts = np.bincount(owner[hidden], minlength=len(passages)).tolist()
    return [
        Masked(source, target, _excluded(source, mask, how, seed, epoch, passage.id), amount, count)
        for source, target, epoch, passage, amount, count in zip(
            sources, targets, epochs, passages, amounts, counts.tolist(), strict=True
        )
    ]


def _cut(flat: NDArray[Any], owner: NDArray[np.int64], count: int) -> list[NDArray[Any]]:
    """Cut an array whose elements belong to passages 0 to count - 1, in order, into theirs."""
    ends = np.cumsum(np.bincount(owner, minlength=count)).tolist()
    return [flat[begin:end] for begin, end in zip([0, *ends[:-1]], ends, strict=True)]


def _covered(spans: Spans, length: int) -> NDArray[np.bool_]:
    edges = np.zeros(length + 1, np.int32)
    edges[spans[:, 0]] += 1
    edges[spans[:, 1]] -= 1
    return np.cumsum(edges)[:-1] > 0


def _permutation(
    order: NDArray[np.int64], passage: Passage, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return the order that shuffles sentences; a span belongs to the one it begins in."""
    starts = passage.sentences[:, 0]
    sentence = np.searchsorted(starts, order, side="right")
    rank = rng.permutation(len(starts) + 1)
    return np.argsort(rank[sentence], kind="stable")


def _inserted(
    source: NDArray[np.int32], expected: float, mask: int, rng: np.random.Generator
) -> NDArray[np.int32]:
    extra = int(expected + rng.random())
    return np.insert(source, rng.integers(0, len(source) + 1, extra), np.int32(mask))


def _targets(
    tokens: NDArray[np.int32],
    owner: NDArray[np.int64],
    hidden: NDArray[np.bool_],
    flat: Spans,
    counts: NDArray[np.int64],
    how: How,
    mask: int,
) -> list[NDArray[np.int32]]:
    """Return each passage's target; `flat` are the spans in the concatenated tokens."""
    wanted = (counts > 0)[owner] if how.target == "full" else hidden
    target, whose = tokens[wanted], owner[wanted]
    if how.target == "spans" and how.join == "mask":
        first = np.cumsum(counts) - counts  # of each passage's spans
        joins = np.setdiff1d(np.arange(len(flat)), first[counts > 0])
        before = (np.cumsum(flat[:, 1] - flat[:, 0]) - (flat[:, 1] - flat[:, 0]))[joins]
        target = np.insert(target, before, np.int32(mask))
        whose = np.insert(whose, before, owner[flat[joins, 0]])
    return _cut(target, whose, len(counts))


def _excluded(
    source: NDArray[np.int32], mask: int, how: How, seed: int, epoch: int, passage: str
) -> NDArray[np.bool_]:
    """Choose floor(share * n + u) of the n `<mask>` tokens that the encoder will not see."""
    excluded = np.zeros(len(source), bool)
    if how.mask_exclusion:
        at = np.flatnonzero(source == mask)
        rng = generator(seed, epoch, passage, "exclusion")
        excluded[rng.permutation(at)[: int(how.mask_exclusion * len(at) + rng.random())]] = True
    return excluded
