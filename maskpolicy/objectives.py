"""What the text-to-text model learns from: masked passages, and the examples of a task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from maskpolicy.batching import Order, Pair, collate, micro_batches
from maskpolicy.config import Training
from maskpolicy.corpus import Passages, encode
from maskpolicy.masking import hide_all, select
from maskpolicy.training import Step
from maskpolicy.types import Example, How, Masked, Policy

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

    def pair(self, masked: Masked, spec: Training) -> Pair:
        """Add BOS and EOS to a masked passage; an empty target stays empty."""
        source = self.wrap(masked.source, spec.max_source)
        target = self.wrap(masked.target, spec.max_target) if len(masked.target) else masked.target
        if not masked.excluded.any():
            return Pair(source, target)
        excluded = np.zeros(len(source), bool)
        excluded[1:-1] = masked.excluded[: len(source) - 2]
        return Pair(source, target, excluded)

    def wrap(self, ids: NDArray[np.int32], limit: int, keep: str = "start") -> NDArray[np.int32]:
        """Return <s> ids </s>, cut to `limit` tokens at the far side of what is kept."""
        room = max(0, limit - 2)
        ids = ids[:room] if keep == "start" else ids[max(0, len(ids) - room) :]
        wrapped = np.empty(len(ids) + 2, np.int32)
        wrapped[0], wrapped[1:-1], wrapped[-1] = self.bos, ids, self.eos
        return wrapped


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
        places = self.order.step(number)
        passages = [self.passages[item] for item, _ in places]
        epochs = [epoch for _, epoch in places]
        spans = select(self.policy, passages, self.spec.seed, epochs)
        mask, seed = self.specials.mask, self.spec.seed
        masked = hide_all(passages, spans, self.how, mask, seed, epochs)
        pairs = [self.specials.pair(one, self.spec) for one in masked]
        work = Counter(
            passages=len(masked),
            passages_without_span=sum(not one.spans for one in masked),
            spans=sum(one.spans for one in masked),
            hidden_tokens=sum(one.hidden for one in masked),
            source_tokens=sum(len(pair.source) for pair in pairs),
            target_tokens=sum(len(pair.target) for pair in pairs),
        )
        return _step(pairs, self.specials, self.spec, work)


@dataclass(frozen=True, eq=False)
class ExampleSteps:
    """The steps of fine-tuning on a task's examples."""

    pairs: Sequence[Pair]
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
        pairs = [
            Pair(
                specials.wrap(source, spec.max_source, keep),
                specials.wrap(target, spec.max_target),
            )
            for source, target in zip(sources, targets, strict=True)
        ]
        return cls(pairs, specials, spec)

    @cached_property
    def order(self) -> Order:
        """The order of the examples."""
        lengths = np.asarray([len(pair.source) + len(pair.target) for pair in self.pairs])
        return Order(lengths, self.spec.passages, self.spec.seed)

    def __call__(self, number: int) -> Step:
        """Collate the examples of one step."""
        pairs = [self.pairs[item] for item, _ in self.order.step(number)]
        return _step(pairs, self.specials, self.spec, Counter(examples=len(pairs)))


def tokenize(texts: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> list[NDArray[np.int32]]:
    """Return the ids of each text without special tokens."""
    return [np.asarray(one.ids, np.int32) for one in encode(texts, tokenizer)]


def _step(pairs: Sequence[Pair], specials: Specials, spec: Training, work: Counter[str]) -> Step:
    cuts = micro_batches(pairs, spec.micro_tokens)
    batches = [collate(cut, specials.pad, specials.start) for cut in cuts]
    return Step(batches, sum(len(pair.target) for pair in pairs), work)
