"""Write masked spans as (source, target) pairs; only this module writes masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maskpolicy.core.errors import ConfigError
from maskpolicy.core.ragged import Ragged
from maskpolicy.core.seeding import Streams
from maskpolicy.core.types import Denoising, Passage, Replacement, Spans
from maskpolicy.masking.sentinels import Marks, numbered, spans_after_sentinels

if TYPE_CHECKING:
    from maskpolicy.masking.selection import Selection

PLACE = 1 << 30  # above all token ids: stands for a token's place while passages are written
_KEPT = 2  # kind of replacement: 0 for a mask, 1 for random tokens, 2 for the text itself


@dataclass(frozen=True, eq=False)
class DenoisingPairs:
    """The training pairs of n passages, as arrays over all of them."""

    sources: Ragged  # ids with <mask>
    targets: Ragged  # ids to recover; empty if nothing is masked
    excluded: Ragged  # of source tokens: hidden from the encoder
    masked_tokens: NDArray[np.int64]  # (n,) number of masked tokens in each passage
    spans: NDArray[np.int64]  # (n,) number of masked spans
    left_out: int = 0  # number of spans that stay visible because the sentinels are used up
    without_room: int = 0  # number of spans beyond `target_room`: visible, wholly or in part
    # of source tokens: stands for a masked one; None if tokens were moved, removed or inserted
    masked: Ragged | None = None


def denoising_pairs(
    passages: Sequence[Passage],
    spans: Sequence[Spans],
    denoising: Denoising,
    marks: Marks,
    seed: int,
    epochs: Sequence[int],
    room: int | None = None,
    target_room: int | None = None,
) -> DenoisingPairs:
    """Replace the spans of each passage by `<mask>`, or by the sentinels of `marks`.

    One `<mask>` replaces each span, or each token. The target is the full text, or the masked spans
    in text order joined by `<mask>` (a single span stands alone). It is empty if nothing is masked.
    Sentence order, inserted masks and excluded masks are drawn from (seed, epoch, passage id).

    Sentinels are numbered in the order of the source, after sentences are permuted and masks are
    inserted. All masks of a span are the same sentinel. A target joined by masks is that of T5: the
    spans in the order of their sentinels, each after its own, and one more sentinel at the end. If
    there are more spans than sentinels, the masked ones are drawn, and the others stay visible.

    No mask is inserted into a source that has `room` tokens or more. A target of spans has at most
    `target_room` tokens: spans are drawn as long as they fit, and the others stay visible. If the
    first does not fit, it is masked up to that length.

    With `replacement`, n spans have each kind of it n * share times, rounded up or down. A span
    that is kept stands in the source with all its tokens; a random token stands for a span where
    one mask would. Raises ConfigError if a target would name sentinels that the source lacks.
    """
    by_sentinels = _by_sentinels(denoising, marks)
    if denoising.replacement is not None and by_sentinels:
        raise ConfigError(
            "replacement: the target names each masked span by its sentinel in the source, which "
            "random or kept text would not have: leave it out, or set target: full or join: none"
        )
    draws = _Draws(passages, seed, epochs)
    spans, left_out, without_room = masked_spans(
        passages, spans, denoising, marks, seed, epochs, target_room
    )
    text = _Text.of(passages, spans)
    spare = None
    if target_room is not None and by_sentinels:  # such a target also names inserted sentinels
        spare = target_room - 1 - text.amounts - text.counts
    sources = _sources(text, denoising, marks, draws, room, spare)
    excluded = draws.excluded(sources, denoising.mask_exclusion, marks)
    if marks.sentinels:
        sources, order = numbered(sources, marks.sentinels)
    if denoising.target == "full":
        targets = text.tokens.where(text.counts > 0)
    elif by_sentinels:
        flat = text.tokens.flat
        targets = spans_after_sentinels(flat, text.spans, order, len(passages), marks.sentinels)
    else:
        targets = _masked_target(text, marks.mask if denoising.join == "mask" else None)
    moves = denoising.permute_sentences or denoising.insert > 0
    is_aligned = denoising.corruption == "token" and not moves
    return DenoisingPairs(
        sources=sources,
        targets=targets,
        excluded=excluded,
        masked_tokens=text.amounts,
        spans=text.counts,
        left_out=left_out,
        without_room=without_room,
        masked=Ragged(text.masked, text.tokens.bounds) if is_aligned else None,
    )


def masked_spans(
    passages: Sequence[Passage],
    spans: Sequence[Spans],
    denoising: Denoising,
    marks: Marks,
    seed: int,
    epochs: Sequence[int],
    target_room: int | None,
) -> tuple[Sequence[Spans], int, int]:
    """Return the spans to mask, and `left_out` and `without_room` of `DenoisingPairs`."""
    draws, without_room = _Draws(passages, seed, epochs), 0
    if target_room is not None and denoising.target == "spans":
        joint = int(denoising.join == "mask")  # marks of each span
        ends = _by_sentinels(denoising, marks)  # T5 ends with a mark
        most = target_room - 1 if ends else target_room + joint
        spans, without_room = draws.fitting(spans, most, joint)
    fitting = sum(map(len, spans))
    if marks.most is not None and denoising.corruption != "delete":
        spans = draws.some(spans, marks.most)
    return spans, fitting - sum(map(len, spans)), without_room


def _by_sentinels(denoising: Denoising, marks: Marks) -> bool:
    return bool(marks.sentinels) and (denoising.target, denoising.join) == ("spans", "mask")


@dataclass(frozen=True, eq=False)
class _Text:
    """The tokens of n passages in one array, and the spans to mask."""

    tokens: Ragged  # of each passage
    spans: Spans  # (k, 2) in tokens.flat
    counts: NDArray[np.int64]  # (n,) spans of each passage
    masked: NDArray[np.bool_]  # tokens in spans, aligned with tokens.flat

    @classmethod
    def of(cls, passages: Sequence[Passage], spans: Sequence[Spans]) -> _Text:
        flat = np.concatenate([passage.tokens for passage in passages])
        tokens = Ragged.cut(flat, np.asarray([len(passage.tokens) for passage in passages]))
        counts = np.asarray([len(each) for each in spans])
        places = np.concatenate(spans) + tokens.bounds[:-1].repeat(counts)[:, None]
        edges = np.zeros(len(flat) + 1, np.int32)
        edges[places[:, 0]] += 1
        edges[places[:, 1]] -= 1
        return cls(tokens, places, counts, edges.cumsum()[:-1] > 0)

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """The number of tokens of each span, (k,)."""
        return np.diff(self.spans)[:, 0]

    @cached_property
    def amounts(self) -> NDArray[np.int64]:
        """The number of masked tokens of each passage, (n,)."""
        until = np.concatenate([[0], self.masked.cumsum()])  # masked tokens before each position
        return np.diff(until[self.tokens.bounds])


def _sources(
    text: _Text,
    denoising: Denoising,
    marks: Marks,
    draws: _Draws,
    room: int | None,
    spare: NDArray[np.int64] | None,
) -> Ragged:
    """Return the sources with masks; sentinels are still negative numbers of their spans."""
    starts, masked = text.tokens.bounds[:-1], text.masked
    ids = marks.of_spans(draws.passages, text.spans, starts, denoising.corruption)
    standing = ids.repeat(text.sizes)  # what replaces each masked token
    keep = ~masked | (denoising.corruption == "token")
    keep[text.spans[:, 0]] |= denoising.corruption != "delete"
    if denoising.replacement is not None:
        kinds, random = draws.replaced(text, denoising.replacement, marks)
        standing = np.choose(kinds, (standing, random, text.tokens.flat[masked]))
        keep[masked] |= kinds == _KEPT
    sources = text.tokens.flat.copy()
    sources[masked] = standing
    order = np.flatnonzero(keep)
    written = Ragged(sources[order], np.searchsorted(order, text.tokens.bounds))
    if denoising.permute_sentences:
        written = draws.permuted(text, written, order - starts.repeat(written.lengths))
    if denoising.insert:
        written = draws.inserted(text, written, denoising.insert, marks, room, spare)
    return written


def mixed_pairs(
    selected: Selection,
    marks: Marks,
    seed: int,
    epochs: Sequence[int],
    room: int | None = None,
    target_room: int | None = None,
) -> DenoisingPairs:
    """Return the pairs of passages that each have a denoising objective; see `denoising_pairs`."""
    groups: dict[Denoising, list[int]] = {}
    for at, denoising in enumerate(selected.denoisings):
        groups.setdefault(denoising, []).append(at)
    parts: list[DenoisingPairs] = []
    for denoising, rows in groups.items():
        every: Any = (selected.passages, selected.spans, epochs)
        some, own, turns = ([values[i] for i in rows] for values in every)
        parts.append(denoising_pairs(some, own, denoising, marks, seed, turns, room, target_room))
    if len(parts) == 1:
        return parts[0]
    back = np.argsort([i for rows in groups.values() for i in rows])

    def joined(values: list[Any]) -> Any:
        if any(value is None for value in values):
            return None
        if isinstance(values[0], int):
            return sum(values)
        if isinstance(values[0], Ragged):
            flat = np.concatenate([each.flat for each in values])
            return Ragged.cut(flat, np.concatenate([each.lengths for each in values])).take(back)
        return np.concatenate(values)[back]

    names = [each.name for each in fields(DenoisingPairs)]
    return DenoisingPairs(**{name: joined([getattr(p, name) for p in parts]) for name in names})


def placed(passages: Sequence[Passage]) -> list[Passage]:
    """Return passages whose tokens are PLACE and their numbers, counted over all passages.

    Written in the same way, they tell which token each label is.
    """
    ends = np.cumsum([len(passage.tokens) for passage in passages], dtype=np.int32) + PLACE
    places = [np.arange(end - len(p.tokens), end) for p, end in zip(passages, ends, strict=True)]
    return [replace(p, tokens=own) for p, own in zip(passages, places, strict=True)]


@dataclass(frozen=True, eq=False)
class _Draws:
    """Random choices for the passages of a batch besides their spans, each from its own stream."""

    passages: Sequence[Passage]
    seed: int
    epochs: Sequence[int]
    streams: Streams = field(default_factory=Streams)

    def permuted(self, text: _Text, sources: Ragged, places: NDArray[np.int64]) -> Ragged:
        """Shuffle the sentences of each source; a span belongs to the sentence it starts in.

        `places` are the positions of the sources' tokens in their passages.
        """
        rows, kept = list(sources), Ragged(places, sources.bounds)
        for i in np.flatnonzero(text.counts).tolist():
            starts = self.passages[i].sentences[:, 0]
            rank = self._at(i, "sentences").permutation(len(starts) + 1)
            sentence = np.searchsorted(starts, kept[i], side="right")
            rows[i] = rows[i][np.argsort(rank[sentence], kind="stable")]
        return Ragged.of(rows, np.int32)

    def some(self, spans: Sequence[Spans], most: int) -> list[Spans]:
        """Choose `most` of the spans of each passage that has more."""
        chosen = list(spans)
        for i in [i for i, each in enumerate(spans) if len(each) > most]:
            order = self._at(i, "sentinels").permutation(len(spans[i]))
            chosen[i] = spans[i][np.sort(order[:most])]
        return chosen

    def fitting(self, spans: Sequence[Spans], most: int, marks: int) -> tuple[list[Spans], int]:
        """Choose spans of each passage whose tokens, each with `marks` more, are at most `most`.

        Return the number of the others, too: a passage's first one is shortened if none fits.
        """
        chosen, others = list(spans), 0
        for i, own in enumerate(spans):
            sizes = own[:, 1] - own[:, 0] + marks
            if sizes.sum() <= most:
                continue
            order = self._at(i, "target").permutation(len(own))
            chosen[i] = own[np.sort(order[sizes[order].cumsum() <= most])]
            others += len(own) - len(chosen[i])
            if not len(chosen[i]) and most > marks:
                begin = own[order[0], 0]
                chosen[i] = np.asarray([[begin, begin + most - marks]], own.dtype)
        return chosen, others

    def inserted(
        self,
        text: _Text,
        sources: Ragged,
        share: float,
        marks: Marks,
        room: int | None,
        spare: NDArray[np.int64] | None,
    ) -> Ragged:
        """Insert floor(share * spans + u) masks into each source, u uniform in [0, 1).

        There are fewer if the source would exceed `room` tokens, the target its `spare` ones, (n,),
        or if the sentinels are used up. Sentinels are negative numbers below those of the spans.
        """
        rows, next_number = list(sources), -1 - len(text.spans)
        for i in np.flatnonzero(text.counts).tolist():
            rng = self._at(i, "insert")
            extra = int(share * text.counts[i] + rng.random())
            if room is not None:
                extra = min(extra, max(0, room - len(rows[i])))
            if spare is not None:
                extra = min(extra, int(spare[i]))
            new: int | NDArray[np.int32] = marks.mask
            if marks.most is not None:
                extra = min(extra, marks.most - len(np.unique(rows[i][rows[i] < 0])))
                new = next_number - np.arange(extra, dtype=np.int32)
                next_number -= extra
            places = rng.integers(0, len(rows[i]) + 1, extra)
            rows[i] = np.insert(rows[i], places, np.int32(new))
        return Ragged.of(rows, np.int32)

    def replaced(
        self, text: _Text, shares: Replacement, marks: Marks
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Draw what stands in place of each of m masked tokens, (m,), and random tokens, (m,).

        Of n spans of a passage, n * share, rounded up or down, get a kind.
        """
        ends = np.cumsum([shares.mask, shares.random, shares.keep])
        kinds, random = [np.zeros(0, np.int64)], [np.zeros(0, np.int32)]
        for i in np.flatnonzero(text.counts).tolist():
            rng, count, amount = self._at(i, "replacement"), text.counts[i], text.amounts[i]
            places = (rng.permutation(count) + rng.random()) / count
            kinds.append(np.searchsorted(ends / ends[-1], places, side="right"))
            is_drawn = shares.random > 0
            random.append(
                rng.choice(marks.words, amount) if is_drawn else np.zeros(amount, np.int32)
            )
        return np.concatenate(kinds).repeat(text.sizes), np.concatenate(random)

    def excluded(self, sources: Ragged, share: float, marks: Marks) -> Ragged:
        """Choose floor(share * n + u) of each source's n masks, u uniform in [0, 1)."""
        excluded = np.zeros(len(sources.flat), bool)
        for i, source in enumerate(sources if share else ()):
            # sentinels are negative until they are numbered
            is_mark = source < 0 if marks.sentinels else marks.written(source)
            at = np.flatnonzero(is_mark) + sources.bounds[i]
            rng = self._at(i, "exclusion")
            excluded[rng.permutation(at)[: int(share * len(at) + rng.random())]] = True
        return Ragged(excluded, sources.bounds)

    def _at(self, index: int, purpose: str) -> np.random.Generator:
        return self.streams.at(self.seed, self.epochs[index], self.passages[index].id, purpose)


def _masked_target(text: _Text, join: int | None) -> Ragged:
    """Return each passage's masked spans, separated by `join`."""
    masked, counts = text.tokens.flat[text.masked], text.counts
    if join is None or counts.max(initial=0) < 2:
        return Ragged.cut(masked, text.amounts)
    is_joined = np.ones(len(text.spans), bool)
    is_joined[(counts.cumsum() - counts)[counts > 0]] = False  # the first span of a passage
    before = text.sizes.cumsum() - text.sizes  # masked tokens before each span
    flat = np.insert(masked, before[is_joined], np.int32(join))
    return Ragged.cut(flat, text.amounts + np.maximum(counts - 1, 0))
