"""The special tokens of a tokenizer: around texts, for masks, and before a decoder's target."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from maskpolicy.core.errors import ConfigError
from maskpolicy.core.ragged import Ragged
from maskpolicy.core.types import Denoising
from maskpolicy.data.corpus.passages import backend_of
from maskpolicy.experiment.budgets import Training
from maskpolicy.masking.denoising import DenoisingPairs
from maskpolicy.masking.sentinels import Marks
from maskpolicy.models.families import family_of
from maskpolicy.models.training.batching import IGNORE, Pairs

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Ends: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""The special tokens before and after a text."""
_SENTINELS = ("<extra_id_{}>", "▁<extra_id_{}>")  # of T5, and of mT5's own vocabulary
_PUBLISHED = re.compile(  # sentinels, languages, and tokens that no text has
    r"▁?<extra_id_|[a-z]{2,3}_[A-Z]|<\||<(unk|mask)_|.*(unused|reserved|NOTUSED)"
)


@dataclass(frozen=True, kw_only=True)
class Specials(Marks):
    """The special tokens that pairs and batches need: the marks, and those around texts."""

    bos: int  # EOS if the tokenizer has no such token (T5)
    eos: int
    pad: int
    start: int | None  # the decoder's first input: </s> in BART; None without a decoder
    source_ends: Ends | None = None  # None: <s> and </s>; see `ends`
    target_ends: Ends | None = None
    has_types: bool = field(default=False, compare=False)  # the second of two texts has type 1

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase, start: int | None = None) -> Specials:
        """Read the tokens of a tokenizer; `start` is the model's decoder_start_token_id.

        [CLS] and [SEP] replace <s> and </s> if a tokenizer lacks these (BERT). A source has the
        special tokens that the tokenizer adds, or <s> and </s> if it adds none. A target ends with
        </s> and does not repeat `start`. The default of `start` is </s>; the language code if the
        tokenizer writes it after </s> (mBART); or <pad> if it has no <s> (T5, Pegasus).
        """
        t = tokenizer
        bos = t.cls_token_id if t.bos_token_id is None else t.bos_token_id
        eos = t.sep_token_id if t.eos_token_id is None else t.eos_token_id
        sentinels = tuple(_sentinels(t))
        added = (id for id, token in t.added_tokens_decoder.items() if token.special)
        made = cls(
            bos=eos if bos is None else bos,
            eos=eos,
            pad=t.pad_token_id,
            mask=sentinels[0] if sentinels else t.mask_token_id,
            start=eos if start is None else start,
            # only Pegasus' tokenizers have a mask of sentences beside <mask_2>
            sentence=_id(t, "<mask_1>") if t.mask_token == "<mask_2>" else None,
            sentinels=sentinels,
            vocabulary=len(t),
            special=tuple(sorted({*added, *t.all_special_ids, *sentinels})),
        )
        ends = added_ends(t)
        if bos is None and ends == ((), ()):
            ends = ((), (eos,))
        if ends in (((), ()), ((bos,), (eos,))):
            return replace(made, target_ends=((), (eos,))) if made.start == bos else made
        before, after = ends
        has_code = after[-1:] not in ((), (eos,))  # of a language
        if start is None:
            start = after[-1] if has_code else t.pad_token_id if bos is None else eos
        target = (() if before == (start,) else before, (eos, start) if has_code else (eos,))
        return replace(made, start=start, source_ends=(before, after), target_ends=target)

    @classmethod
    def of_encoder(
        cls, tokenizer: PreTrainedTokenizerBase, who: str = "model: its tokenizer"
    ) -> Specials:
        """Read the tokens for a model without a decoder; raises ConfigError as `check_tokens`."""
        check_tokens(tokenizer, who, is_encoder=True)
        word = backend_of(tokenizer).encode("a", add_special_tokens=False)
        types = backend_of(tokenizer).post_process(word, word).type_ids
        own = replace(cls.of(tokenizer), mask=tokenizer.mask_token_id, has_types=1 in types)
        return replace(own, start=None, sentinels=())

    def ends(self, key: str = "max_source") -> Ends:
        """Return the special tokens around a source or target; `key` names its limit."""
        own = self.source_ends if key == "max_source" else self.target_ends
        return own or ((self.bos,), (self.eos,))

    def added(self, key: str) -> int:
        """Return the number of special tokens of a source or target; `key` names its limit."""
        return sum(map(len, self.ends(key)))

    def room(self, max_source: int) -> int:
        """Return the most tokens of text that a source of `max_source` tokens holds."""
        return max(0, max_source - self.added("max_source"))

    def kept(self, spec: Training, objectives: Iterable[Denoising]) -> int:
        """Return the limit to which passages are cut before masking, in tokens.

        Sources bound it, and if one of the objectives has full targets, these too.
        """
        most, of_target = self.room(spec.max_source), self.target_room(spec)
        has_full = any(objective.target == "full" for objective in objectives)
        return most if of_target is None or not has_full else min(most, of_target)

    def target_room(self, spec: Training) -> int | None:
        """Return the most tokens of text that a target holds; None without a decoder."""
        return None if self.start is None else max(0, spec.max_target - self.added("max_target"))

    def limits(self, spec: Training, longest: int) -> tuple[int, int] | None:
        """Return the room of a target and the number of sentinels, which limit the masked spans.

        None if they do not limit those of any passage of at most `longest` tokens.
        """
        room, longest = self.target_room(spec), min(longest, self.room(spec.max_source))
        sentinels = len(self.sentinels)
        is_free = room is None or (2 * longest < room and (not sentinels or longest < sentinels))
        return None if is_free or room is None else (room, sentinels)

    def without_room(self, spec: Training) -> str:
        """Explain why the sources or targets of a budget hold no text; "" if they do."""
        rooms = {"max_source": self.room(spec.max_source), "max_target": self.target_room(spec)}
        for key, room in rooms.items():
            if room == 0:
                return (
                    f"the tokenizer adds {self.added(key)} special tokens to a text, so {key[4:]}s "
                    f"of {key}: {getattr(spec, key)} tokens hold no text: raise {key}"
                )
        return ""

    def pairs(self, written: DenoisingPairs, spec: Training) -> Pairs:
        """Add the special tokens to masked passages; an empty target stays empty."""
        targets = self.wrap_targets(written.targets, spec.max_target, empty=False)
        return self._pairs(written, targets, spec)

    def at_positions(self, written: DenoisingPairs, spec: Training) -> Pairs:
        """Add the special tokens; targets are labels of source tokens, IGNORE if not masked.

        The objective must keep a source token for each token, and have the masked ones as targets.
        """
        flat = np.full(len(written.sources.flat), IGNORE, np.int32)
        assert written.masked is not None
        flat[written.masked.flat] = written.targets.flat
        labels = self._around(Ragged(flat, written.sources.bounds), spec.max_source, IGNORE)
        return self._pairs(written, labels.where(written.spans > 0), spec)

    def _pairs(self, written: DenoisingPairs, targets: Ragged, spec: Training) -> Pairs:
        sources = self.wrap(written.sources, spec.max_source)
        return Pairs(sources, targets, self._around(written.excluded, spec.max_source, False))

    def _around(self, rows: Ragged, limit: int, value: int) -> Ragged:
        """Add `value` for each special token to rows of values, one for each source token."""
        before, after = self.ends()
        return _framed(rows, limit, "start", [value] * len(before), [value] * len(after))

    def wrap(self, ids: Ragged, limit: int, keep: str = "start") -> Ragged:
        """Return each row as a source, `<s> ids </s>`, truncated to `limit` tokens.

        `keep` names the side that truncation keeps, "start" or "end".
        """
        return _framed(ids, limit, keep, *self.ends())

    def wrap_targets(self, ids: Ragged, limit: int, empty: bool = True) -> Ragged:
        """Return each row as a target, truncated to `limit` tokens.

        With `empty` False, empty rows stay empty.
        """
        framed = _framed(ids, limit, "start", *self.ends("max_target"))
        return framed if empty else framed.where(ids.lengths > 0)


def added_ends(tokenizer: PreTrainedTokenizerBase, texts: int = 1) -> tuple[tuple[int, ...], ...]:
    """Return the special tokens that a fast tokenizer adds around one or two texts."""
    pad = tokenizer.pad_token or tokenizer.eos_token or ""
    backend = backend_of(tokenizer)
    word = backend.encode(f"a {pad}", add_special_tokens=False)  # at least one token
    made = backend.post_process(word, word if texts == 2 else None)
    inside = np.flatnonzero(np.asarray(made.special_tokens_mask) == 0)
    if not len(inside):
        return ((),) * (texts + 1)
    parts = np.split(inside, texts)
    begins, ends = [0, *(part[-1] + 1 for part in parts)], [*(part[0] for part in parts), None]
    return tuple(tuple(made.ids[a:b]) for a, b in zip(begins, ends, strict=True))


def decoder_start(model: Any) -> int | None:
    """Return the first input of the decoder of a text-to-text model, or of its configuration.

    T5Gemma's is the decoder's BOS token. None: the tokenizer decides (see `Specials.of`).
    """
    config = getattr(model, "config", model)
    places = (config, getattr(model, "generation_config", None))
    starts = [getattr(place, "decoder_start_token_id", None) for place in places]
    starts.append(getattr(getattr(config, "decoder", None), "bos_token_id", None))
    return next((start for start in starts if start is not None), None)


def check_vocabulary(tokenizer: Any, model: Any, name: str = "the model") -> None:
    """Raise ConfigError if a tokenizer has more tokens than the model has embeddings.

    Also if the model counts positions from another padding's id.
    """
    rows = getattr(model.get_input_embeddings(), "num_embeddings", None)  # of a usual layer
    if rows is not None and len(tokenizer) > rows:
        raise ConfigError(
            f"{name}: has {rows} embeddings, but its tokenizer {len(tokenizer)} tokens: save its "
            "own tokenizer beside it, or call resize_token_embeddings on the model"
        )
    config, pad = model.config, tokenizer.pad_token_id
    if family_of(config).after_padding and config.pad_token_id != pad:
        raise ConfigError(
            f"{name}: gives tokens of id {config.pad_token_id} no position (pad_token_id in its "
            f"config.json), but its tokenizer pads with id {pad}: make them equal"
        )


def check_tokens(tokenizer: PreTrainedTokenizerBase, who: str, *, is_encoder: bool = False) -> None:
    """Raise ConfigError if a tokenizer lacks a special token that masking needs.

    `who` begins the line, as in "model facebook/bart-base: its tokenizer".
    """
    has_mask = tokenizer.mask_token_id is not None
    if not (is_encoder or has_mask or any(True for _ in _sentinels(tokenizer))):
        raise ConfigError(
            f"{who} has neither a mask token nor sentinels such as <extra_id_0>: name another "
            "model, or add a mask token to tokenizer and model"
        )
    of_encoder = (("mask",), ("bos", "cls")) if is_encoder else ()
    for names in (("pad",), ("eos", "sep"), *of_encoder):
        if all(getattr(tokenizer, f"{name}_token_id") is None for name in names):
            raise ConfigError(f"{who} has no {names[0]} token: add one to tokenizer and model")


def added_by_user(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Return the special tokens without a role that its user added to a tokenizer's vocabulary."""
    roles = tokenizer.special_tokens_map.values()
    others = {*roles, *tokenizer.backend_tokenizer.get_vocab(with_added_tokens=False)}
    special = (str(one) for one in tokenizer.added_tokens_decoder.values() if one.special)
    return [name for name in special if name not in others and not _PUBLISHED.match(name)]


def _sentinels(tokenizer: PreTrainedTokenizerBase) -> Iterator[int]:
    """Yield the ids of a tokenizer's sentinels, from number 0 on."""
    names = [name for name in _SENTINELS if _id(tokenizer, name.format(0)) is not None]
    for number in count() if names else ():
        sentinel = _id(tokenizer, names[0].format(number))
        if sentinel is None:
            return
        yield sentinel


def _id(tokenizer: PreTrainedTokenizerBase, token: str) -> int | None:
    return tokenizer.backend_tokenizer.token_to_id(token)


def _framed(
    rows: Ragged, limit: int, keep: str, before: Sequence[int], after: Sequence[int]
) -> Ragged:
    """Truncate each row, and add `before` and `after`: at most `limit` elements together."""
    more = len(before) + len(after)
    lengths = np.minimum(rows.lengths, max(0, limit - more))
    first = rows.bounds[:-1] if keep == "start" else rows.bounds[1:] - lengths
    framed = Ragged.cut(rows.flat, lengths + more)
    begins, stops = framed.bounds[:-1], framed.bounds[1:]
    places = (first - begins - len(before)).repeat(lengths + more)
    places += np.arange(len(places))
    some = rows.flat if len(rows.flat) else np.zeros(1, rows.flat.dtype)
    framed.flat = some.take(places, mode="clip")  # the ends are overwritten next
    for at, value in enumerate(before):
        framed.flat[begins + at] = value
    for at, value in enumerate(reversed(after), 1):
        framed.flat[stops - at] = value
    return framed
