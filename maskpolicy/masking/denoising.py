"""Write masked spans as (source, target) pairs; only this module writes masks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskpolicy.core.errors import ConfigError
from maskpolicy.core.ragged import Ragged
from maskpolicy.core.seeding import Streams
from maskpolicy.core.types import Denoising, Masked, Passage, Replacement, Spans
from maskpolicy.masking.sentinels import Marks, numbered, spans_after_sentinels

PLACE = 1 << 30  # above all token ids: stands for a token's place while passages are written
_RANDOM, _KEPT = 1, 2  # what stands in place of a span, in the order of `Replacement`; 0: a mask


@dataclass(frozen=True, eq=False)
class DenoisingPairs(Sequence[Masked]):
    """The training pairs of n passages, as arrays over all of them."""

    sources: Ragged  # ids with <mask>
    targets: Ragged  # ids to recover; empty if nothing is masked
    # tokens that the encoder does not attend to, aligned with sources.flat; None: no token
    excluded: NDArray[np.bool_] | None
    masked_tokens: NDArray[np.int64]  # (n,) number of masked tokens in each passage
    spans: NDArray[np.int64]  # (n,) number of masked spans
    left_out: int = 0  # spans of all passages that are not masked: no sentinel is left for them
    without_room: int = 0  # the same, because their targets have no room for them
    # source tokens instead of masked ones, aligned with sources.flat; None if tokens were moved,
    # left out or inserted
    masked: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.spans)

    def __getitem__(self, index: Any) -> Any:
        index = range(len(self))[index]
        source = self.sources[index]
        excluded = np.zeros(len(source), bool)
        if self.excluded is not None:
            excluded = self.excluded[self.sources.bounds[index] : self.sources.bounds[index + 1]]
        amount, count = int(self.masked_tokens[index]), int(self.spans[index])
        return Masked(source, self.targets[index], excluded, amount, count)


def denoising_pairs(
    passages: Sequence[Passage],
    spans: Sequence[Spans],
    denoising: Denoising,
    mask: int | Marks,
    seed: int,
    epochs: Sequence[int],
    room: int | None = None,
    target_room: int | None = None,
) -> DenoisingPairs:
    """Replace the spans of each passage by `<mask>` (id `mask`), or as `mask` says.

    One `<mask>` replaces each span, or each token. The target is the full text, or the masked spans
    in text order joined by `<mask>` (a single span stands alone). It is empty if nothing is masked.
    Sentence order, inserted masks and excluded masks are drawn from (seed, epoch, passage id).

    Sentinels are numbered in the order of the source, after sentences are permuted and masks are
    inserted. All masks of a span are the same sentinel. A target joined by masks is that of T5: the
    spans in the order of their sentinels, each after its own, and one more sentinel at the end.
    Spans for which no sentinel is left stay visible; those that are masked are drawn.

    No mask is inserted into a source that has `room` tokens or more. A target of spans has at most
    `target_room` tokens: spans are drawn as long as they fit, and the others stay visible. If the
    first does not fit, it is masked up to that length.

    With `replacement`, n spans have each kind of it n * share times, rounded up or down. A span
    that is kept stands in the source with all its tokens; a random token stands for a span where
    one mask would. Raises ConfigError if a target would name sentinels that the source lacks.
    """
    marks = mask if isinstance(mask, Marks) else Marks(mask)
    has_spans = denoising.target == "spans"
    by_sentinels = has_spans and bool(marks.sentinels) and denoising.join == "mask"
    if denoising.replacement is not None and by_sentinels:
        raise ConfigError(
            "replacement: the target names each masked span by its sentinel in the source, which "
            "random or kept text would not have: leave it out, or set target: full or join: none"
        )
    asked = np.asarray([len(each) for each in spans])
    if target_room is not None and has_spans:
        joint = int(denoising.join == "mask")
        least = 0 if not joint else 1 if by_sentinels else -1  # besides a mark for each span
        draws = _Draws(passages, asked, seed, epochs)
        spans = draws.fitting(spans, target_room - least, joint)
    some = np.asarray([len(each) for each in spans])
    most = None if denoising.corruption == "delete" else marks.most
    most = some.max(initial=0) if most is None else most
    counts = np.minimum(some, most)
    draws = _Draws(passages, counts, seed, epochs)
    spans = draws.some(spans, most) if some.max(initial=0) > most else spans
    lengths = np.asarray([len(passage.tokens) for passage in passages])
    tokens = np.concatenate([passage.tokens for passage in passages])
    starts = lengths.cumsum() - lengths
    flat = np.concatenate(spans) + starts.repeat(counts)[:, None]
    edges = np.zeros(len(tokens) + 1, np.int32)
    edges[flat[:, 0]] += 1
    edges[flat[:, 1]] -= 1
    masked = edges.cumsum()[:-1] > 0
    until = np.concatenate([[0], masked.cumsum()])  # masked tokens before each position
    amounts = until[starts + lengths] - until[starts]
    spare = None
    if target_room is not None and by_sentinels:  # a target names inserted sentinels, too
        spare = target_room - 1 - amounts - counts
    written = _sources(denoising, tokens, masked, flat, starts, marks, draws, room, spare)
    excluded = draws.excluded(written, denoising.mask_exclusion, marks)
    if marks.sentinels:
        written, found = numbered(written, marks.sentinels)
    if not has_spans:
        wanted = counts > 0
        targets = Ragged.cut(tokens[wanted.repeat(lengths)], lengths * wanted)
    elif by_sentinels:
        targets = spans_after_sentinels(tokens, flat, found, len(counts), marks.sentinels)
    else:
        join = marks.mask if denoising.join == "mask" else None
        targets = _masked_target(tokens, masked, flat, amounts, counts, join)
    moves = denoising.permute_sentences or denoising.insert > 0
    return DenoisingPairs(
        sources=written,
        targets=targets,
        excluded=excluded,
        masked_tokens=amounts,
        spans=counts,
        left_out=int((some - counts).sum()),
        without_room=int((asked - some).sum()),
        masked=None if moves or denoising.corruption != "token" else masked,
    )


def _sources(
    denoising: Denoising,
    tokens: NDArray[np.int32],
    masked: NDArray[np.bool_],
    flat: Spans,
    starts: NDArray[np.int64],
    marks: Marks,
    draws: _Draws,
    room: int | None,
    spare: NDArray[np.int64] | None,
) -> Ragged:
    """Return the sources with masks; sentinels are still negative numbers of their spans."""
    sources = tokens.copy()
    ids = marks.of_spans(draws.passages, flat, starts, denoising.corruption)
    sizes = flat[:, 1] - flat[:, 0]
    sources[masked] = ids.repeat(sizes)
    keep = ~masked | (denoising.corruption == "token")
    keep[flat[:, 0]] |= denoising.corruption != "delete"
    if denoising.replacement is not None:
        standing, random = draws.replaced(denoising.replacement, sizes, marks)
        places, of_token = np.flatnonzero(masked), standing.repeat(sizes)
        kept_places, random_places = places[of_token == _KEPT], places[of_token == _RANDOM]
        sources[random_places] = random[of_token == _RANDOM]
        sources[kept_places] = tokens[kept_places]
        keep[kept_places] = True
    order = np.flatnonzero(keep)
    kept = np.concatenate([[0], keep.cumsum()])  # tokens before each position
    bounds = np.concatenate([kept[starts], kept[-1:]])
    written = Ragged(sources[order], bounds)
    if denoising.permute_sentences:
        written = draws.permuted(written, order - starts.repeat(written.lengths))
    if denoising.insert:
        written = draws.inserted(written, denoising.insert, marks, room, spare)
    return written


def mixed_pairs(
    passages: Sequence[Passage],
    spans: Sequence[Spans],
    denoisings: Sequence[Denoising],
    mask: int | Marks,
    seed: int,
    epochs: Sequence[int],
    room: int | None = None,
    target_room: int | None = None,
) -> DenoisingPairs:
    """Return the pairs of passages that each have a denoising objective; see `denoising_pairs`."""
    groups: dict[Denoising, list[int]] = {}
    for at, each in enumerate(denoisings):
        groups.setdefault(each, []).append(at)
    found = [
        denoising_pairs(
            [passages[i] for i in rows],
            [spans[i] for i in rows],
            denoising,
            mask,
            seed,
            [epochs[i] for i in rows],
            room,
            target_room,
        )
        for denoising, rows in groups.items()
    ]
    if len(found) == 1:
        return found[0]
    back = np.argsort([i for rows in groups.values() for i in rows])
    sources = _joined([each.sources for each in found])

    def flags(name: str, use: Callable[[Iterable[bool]], bool]) -> NDArray[np.bool_] | None:
        """Return the flags of the source tokens in the new order, if any or all objectives have."""
        parts = [getattr(each, name) for each in found]
        if not use(part is not None for part in parts):
            return None
        rows = zip(parts, found, strict=True)
        filled = [np.zeros(len(f.sources.flat), bool) if part is None else part for part, f in rows]
        return Ragged(np.concatenate(filled), sources.bounds).take(back).flat

    return DenoisingPairs(
        sources=sources.take(back),
        targets=_joined([each.targets for each in found]).take(back),
        excluded=flags("excluded", any),
        masked=flags("masked", all),
        masked_tokens=np.concatenate([each.masked_tokens for each in found])[back],
        spans=np.concatenate([each.spans for each in found])[back],
        left_out=sum(each.left_out for each in found),
        without_room=sum(each.without_room for each in found),
    )


def placed(passages: Sequence[Passage]) -> list[Passage]:
    """Return passages whose tokens are PLACE and their numbers, counted over all passages.

    Written in the same way, they tell which token each label is.
    """
    ends = np.cumsum([len(passage.tokens) for passage in passages], dtype=np.int32) + PLACE
    places = [np.arange(end - len(p.tokens), end) for p, end in zip(passages, ends, strict=True)]
    return [replace(p, tokens=own) for p, own in zip(passages, places, strict=True)]


def _joined(parts: Sequence[Ragged]) -> Ragged:
    flat = np.concatenate([part.flat for part in parts])
    return Ragged.cut(flat, np.concatenate([part.lengths for part in parts]))


@dataclass(frozen=True, eq=False)
class _Draws:
    """Random choices for the passages of a batch besides their spans, each from its own stream."""

    passages: Sequence[Passage]
    counts: NDArray[np.int64]  # spans of each passage
    seed: int
    epochs: Sequence[int]
    streams: Streams = field(default_factory=Streams)

    def permuted(self, sources: Ragged, places: NDArray[np.int64]) -> Ragged:
        """Shuffle the sentences of each source; `places` are its tokens' positions in the text."""
        rows = list(sources)
        kept = Ragged(places, sources.bounds)
        for i in np.flatnonzero(self.counts).tolist():
            rows[i] = rows[i][_permutation(kept[i], self.passages[i], self._at(i, "sentences"))]
        return Ragged.of(rows, np.int32)

    def some(self, spans: Sequence[Spans], most: int) -> list[Spans]:
        """Choose `most` of the spans of each passage that has more."""
        found = list(spans)
        for i in [i for i, each in enumerate(spans) if len(each) > most]:
            chosen = self._at(i, "sentinels").permutation(len(spans[i]))[:most]
            found[i] = spans[i][np.sort(chosen)]
        return found

    def fitting(self, spans: Sequence[Spans], most: int, joint: int) -> list[Spans]:
        """Choose spans of each passage whose tokens, each with `joint` more, are at most `most`."""
        found = list(spans)
        for i, each in enumerate(spans):
            sizes = each[:, 1] - each[:, 0] + joint
            if sizes.sum() <= most:
                continue
            order = self._at(i, "target").permutation(len(each))
            found[i] = each[np.sort(order[sizes[order].cumsum() <= most])]
            if not len(found[i]) and most > joint:
                begin = each[order[0], 0]
                found[i] = np.asarray([[begin, begin + most - joint]], each.dtype)
        return found

    def inserted(
        self,
        sources: Ragged,
        share: float,
        marks: Marks,
        room: int | None,
        spare: NDArray[np.int64] | None,
    ) -> Ragged:
        """Insert floor(share * spans + u) masks into each source, u uniform in [0, 1).

        There are fewer if no sentinel or no `room` is left for them; `spare`, (n,), are the most
        that each target has room for. Sentinels are negative numbers
        below those of the spans.
        """
        rows, next_number = list(sources), -1 - int(self.counts.sum())
        for i in np.flatnonzero(self.counts).tolist():
            rng = self._at(i, "insert")
            extra = int(share * self.counts[i] + rng.random())
            if room is not None:
                extra = min(extra, max(0, room - len(rows[i])))
            if spare is not None:
                extra = min(extra, int(spare[i]))
            new: int | NDArray[np.int32] = marks.mask
            if marks.most is not None:
                extra = min(extra, marks.most - int(self.counts[i]))
                new = next_number - np.arange(extra, dtype=np.int32)
                next_number -= extra
            places = rng.integers(0, len(rows[i]) + 1, extra)
            rows[i] = np.insert(rows[i], places, np.int32(new))
        return Ragged.of(rows, np.int32)

    def replaced(
        self, shares: Replacement, sizes: NDArray[np.int64], marks: Marks
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Draw what stands in place of each of k spans, and a random token for each of m tokens.

        `sizes`, (k,), are the tokens of the spans; their sum is m. Of n spans of a passage,
        n * share, rounded up or down, get a kind.
        """
        ends = np.cumsum([shares.mask, shares.random, shares.keep])
        standing, random = np.zeros(len(sizes), np.int64), np.zeros(int(sizes.sum()), np.int32)
        spans, tokens = self.counts.cumsum(), np.concatenate([[0], sizes.cumsum()])
        for i in np.flatnonzero(self.counts).tolist():
            rng, last, count = self._at(i, "replacement"), spans[i], self.counts[i]
            places = (rng.permutation(count) + rng.random()) / count
            own = slice(last - count, last)
            standing[own] = np.searchsorted(ends / ends[-1], places, side="right")
            own = slice(tokens[last - count], tokens[last])
            if shares.random:
                random[own] = rng.choice(marks.words, own.stop - own.start)
        return standing, random

    def excluded(self, sources: Ragged, share: float, marks: Marks) -> NDArray[np.bool_] | None:
        """Choose floor(share * n + u) of each source's n masks, u uniform in [0, 1); None at 0."""
        if not share:
            return None
        excluded = np.zeros(len(sources.flat), bool)
        for i, source in enumerate(sources):
            at = np.flatnonzero(marks.among(source)) + sources.bounds[i]
            rng = self._at(i, "exclusion")
            excluded[rng.permutation(at)[: int(share * len(at) + rng.random())]] = True
        return excluded

    def _at(self, index: int, purpose: str) -> np.random.Generator:
        return self.streams.at(self.seed, self.epochs[index], self.passages[index].id, purpose)


def _permutation(
    order: NDArray[np.int64], passage: Passage, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return the order that shuffles sentences; a span belongs to the sentence it starts in."""
    starts = passage.sentences[:, 0]
    sentence = np.searchsorted(starts, order, side="right")
    rank = rng.permutation(len(starts) + 1)
    return np.argsort(rank[sentence], kind="stable")


def _masked_target(
    tokens: NDArray[np.int32],
    masked: NDArray[np.bool_],
    flat: Spans,
    amounts: NDArray[np.int64],
    counts: NDArray[np.int64],
    join: int | None,
) -> Ragged:
    """Return each passage's masked spans, separated by `join`; `flat` indexes all tokens."""
    found = tokens[masked]
    if join is None or counts.max(initial=0) < 2:
        return Ragged.cut(found, amounts)
    joined = np.ones(len(flat), bool)
    joined[(counts.cumsum() - counts)[counts > 0]] = False  # the first span of a passage
    before = np.zeros(len(tokens), np.int64)
    before[flat[joined, 0]] = 1
    target = np.full(len(found) + int(joined.sum()), join, np.int32)
    target[np.arange(len(found)) + before.cumsum()[masked]] = found
    return Ragged.cut(target, amounts + np.maximum(counts - 1, 0))
