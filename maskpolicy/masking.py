"""Spans to (source, target): the one place that writes `<mask>`."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from maskpolicy.errors import ConfigError
from maskpolicy.types import How, Masked, Passage, Policy, Spans, as_spans


def generator(seed: int, epoch: int, passage: str, purpose: str = "") -> np.random.Generator:
    """Return the generator of one passage in one epoch: the same for every policy."""
    text = f"{seed}/{epoch}/{purpose}/{passage}".encode("utf-8", "surrogatepass")
    key = int.from_bytes(blake2b(text, digest_size=16).digest(), "little")
    return np.random.Generator(np.random.Philox(key=key))


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
    spans = [
        policy.select(passage, generator(seed, epoch, passage.id))
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
    """Write `<mask>` (id `mask`) over `spans` of the passage as `how` says.

    One `<mask>` stands for each span, or for each token; the target is the full text, or the hidden
    spans in text order joined by `<mask>` (one span gives the bare text). Sentence order, inserted
    masks and excluded masks are drawn from (seed, epoch, passage id).
    """
    tokens = passage.tokens
    if not len(spans):
        nothing = np.zeros(len(tokens), bool)
        return Masked(tokens, tokens[:0], nothing, 0, 0)
    hidden = _covered(spans, len(tokens))
    source = np.where(hidden, np.int32(mask), tokens)
    keep = np.ones(len(tokens), bool)
    if how.corruption == "span":
        keep = ~hidden
        keep[spans[:, 0]] = True
    order = np.flatnonzero(keep)
    if how.permute_sentences:
        order = _permuted(order, passage, generator(seed, epoch, passage.id, "sentences"))
    source = source[order]
    if how.insert:
        rng = generator(seed, epoch, passage.id, "insert")
        extra = int(how.insert * len(spans) + rng.random())
        source = np.insert(source, rng.integers(0, len(source) + 1, extra), np.int32(mask))
    target = tokens if how.target == "full" else _joined(tokens, spans, hidden, how, mask)
    excluded = _excluded(source == mask, how.mask_exclusion, seed, epoch, passage.id)
    return Masked(source, target, excluded, int(hidden.sum()), len(spans))


def _covered(spans: Spans, length: int) -> NDArray[np.bool_]:
    edges = np.zeros(length + 1, np.int32)
    edges[spans[:, 0]] += 1
    edges[spans[:, 1]] -= 1
    return np.cumsum(edges)[:-1] > 0


def _permuted(
    order: NDArray[np.int64], passage: Passage, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Reorder token positions by shuffled sentences; a span belongs to where it begins."""
    starts = passage.sentences[:, 0]
    sentence = np.searchsorted(starts, order, side="right")
    rank = rng.permutation(len(starts) + 1)
    return order[np.argsort(rank[sentence], kind="stable")]


def _joined(
    tokens: NDArray[np.int32], spans: Spans, hidden: NDArray[np.bool_], how: How, mask: int
) -> NDArray[np.int32]:
    target = tokens[hidden]
    if how.join == "none" or len(spans) == 1:
        return target
    ends = np.cumsum(spans[:, 1] - spans[:, 0])[:-1]
    return np.insert(target, ends, np.int32(mask))


def _excluded(
    masks: NDArray[np.bool_], share: float, seed: int, epoch: int, passage: str
) -> NDArray[np.bool_]:
    """Choose floor(share * n + u) of the n `<mask>` tokens that the encoder will not see."""
    excluded = np.zeros(len(masks), bool)
    if share:
        at = np.flatnonzero(masks)
        rng = generator(seed, epoch, passage, "exclusion")
        excluded[rng.permutation(at)[: int(share * len(at) + rng.random())]] = True
    return excluded
