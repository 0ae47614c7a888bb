"""What the text-to-text model learns from: masked passages, and the examples of a task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from maskpolicy.batching import Order, Pairs, collate, micro_batches
from maskpolicy.config import Training
from maskpolicy.corpus import Passages, encode
from maskpolicy.masking import Written, hide_all, select
from maskpolicy.ragged import Ragged
from maskpolicy.training import Step
from maskpolicy.types import Example, How, Passage, Policy, Spans

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Specials:
    """The special tokens that pairs and batches need."""

    bos: int
    eos: int
    pad: int
    mask: int
    start: int  # the decoder's first input: </s> in BART

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase, start: int | None = None) -> Specials:
        """Read them from a tokenizer; `start` is the model's decoder_start_token_id."""
        t = tokenizer
        return cls(
            t.bos_token_id,
            t.eos_token_id,
            t.pad_token_id,
            t.mask_token_id,
            t.eos_token_id if start is None else start,
        )

    def pairs(self, written: Written, spec: Training) -> Pairs:
        """Add BOS and EOS to masked passages; an empty target stays empty."""
        sources = self.wrap(written.sources, spec.max_source)
        targets = self.wrap(written.targets, spec.max_target, empty=False)
        excluded = None
        if written.excluded is not None:
            marks = Ragged(written.excluded, written.sources.bounds)
            excluded = _framed(marks, spec.max_source, "start", (False, False)).flat
        return Pairs(sources, targets, excluded)

    def wrap(self, ids: Ragged, limit: int, keep: str = "start", empty: bool = True) -> Ragged:
        """Return <s> ids </s>, cut to `limit` tokens at the far side of what is kept.

        Without `empty`, no ids at all stay none.
        """
        framed = _framed(ids, limit, keep, (self.bos, self.eos))
        if empty or ids.lengths.all():
            return framed
        some = ids.lengths > 0
        return Ragged.cut(framed.take(np.flatnonzero(some)).flat, framed.lengths * some)


def _framed(rows: Ragged, limit: int, keep: str, ends: tuple[int, int]) -> Ragged:
    """Cut each row to `limit` - 2 elements at the far side of what is kept; add both ends."""
    lengths = np.minimum(rows.lengths, max(0, limit - 2))
    first = rows.bounds[:-1] if keep == "start" else rows.bounds[1:] - lengths
    framed = Ragged.cut(rows.flat, lengths + 2)
    begins, stops = framed.bounds[:-1], framed.bounds[1:]
    places = np.repeat(first - begins - 1, lengths + 2)
    places += np.arange(len(places))
    some = rows.flat if len(rows.flat) else np.zeros(1, rows.flat.dtype)
    framed.flat = some.take(places, mode="clip")  # both ends are written over
    framed.flat[begins], framed.flat[stops - 1] = ends
    return framed


@dataclass(frozen=True, eq=False)
class MaskedSteps:
    """The steps of a pre-training stage: a fixed number of passages each, freshly masked."""

    passages: Passages
    policy: Policy
    how: How
    specials: Specials
    spec: Training

    @cached_property
    def order(self) -> Order:
        """The order of the passages: the same for every policy."""
        return Order(self.passages.lengths, self.spec.passages, self.spec.seed)

    def __call__(self, number: int) -> Step:
        """Mask the passages of one step."""
        passages, epochs, spans = self._chosen(number)
        mask, seed = self.specials.mask, self.spec.seed
        written = hide_all(passages, spans, self.how, mask, seed, epochs)
        pairs = self.specials.pairs(written, self.spec)
        work = Counter(
            passages=len(written),
            passages_without_span=int((written.spans == 0).sum()),
            spans=int(written.spans.sum()),
            hidden_tokens=int(written.hidden.sum()),
            source_tokens=len(pairs.sources.flat),
            target_tokens=len(pairs.targets.flat),
        )
        return _step(pairs, self.specials, self.spec, work)

    def hide_nothing(self) -> bool:
        """Whether not one token is hidden in all the steps: then there is nothing to learn.

        It ends at the first hidden token, so it costs next to nothing where there is one.
        """
        numbers = range(self.spec.steps)
        return not any(len(spans) for number in numbers for spans in self._chosen(number)[2])

    def _chosen(self, number: int) -> tuple[list[Passage], list[int], list[Spans]]:
        """Return the passages of a step, the epoch of each, and the spans that are hidden."""
        places = self.order.step(number)
        passages = [self.passages[item] for item, _ in places]
        epochs = [epoch for _, epoch in places]
        return passages, epochs, select(self.policy, passages, self.spec.seed, epochs)


@dataclass(frozen=True, eq=False)
class ExampleSteps:
    """The steps of fine-tuning on a task's examples."""

    pairs: Pairs
    specials: Specials
    spec: Training

    @classmethod
    def of(
        cls,
        examples: Sequence[Example],
        tokenizer: PreTrainedTokenizerBase,
        specials: Specials,
        spec: Training,
        keep: str = "start",
    ) -> ExampleSteps:
        """Tokenise (source, first target) of each example; `keep` says what a cut leaves."""
        sources = tokenize([example.source for example in examples], tokenizer)
        targets = tokenize([example.targets[0] for example in examples], tokenizer)
        pairs = Pairs(
            specials.wrap(sources, spec.max_source, keep), specials.wrap(targets, spec.max_target)
        )
        return cls(pairs, specials, spec)

    @cached_property
    def order(self) -> Order:
        """The order of the examples."""
        lengths = self.pairs.sources.lengths + self.pairs.targets.lengths
        return Order(lengths, self.spec.passages, self.spec.seed)

    def __call__(self, number: int) -> Step:
        """Collate the examples of one step."""
        pairs = self.pairs.take(np.asarray([item for item, _ in self.order.step(number)]))
        return _step(pairs, self.specials, self.spec, Counter(examples=len(pairs)))


def tokenize(texts: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> Ragged:
    """Return the ids of each text without special tokens."""
    return Ragged.of((one.ids for one in encode(texts, tokenizer)), np.int32)


def _step(pairs: Pairs, specials: Specials, spec: Training, work: Counter[str]) -> Step:
    cuts = micro_batches(pairs, spec.micro_tokens)
    batches = [collate(cut, specials.pad, specials.start) for cut in cuts]
    return Step(batches, len(pairs.targets.flat), work)
