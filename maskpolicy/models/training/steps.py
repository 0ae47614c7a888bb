"""Training data of each step: masked passages, or the examples of a task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maskpolicy.core.errors import DataError
from maskpolicy.core.ragged import Ragged
from maskpolicy.core.seeding import Streams
from maskpolicy.core.types import Denoising, Example, Passage, Policy
from maskpolicy.data.corpus.passages import Passages, encode
from maskpolicy.experiment.budgets import Training
from maskpolicy.masking.denoising import PLACE, DenoisingPairs, mixed_pairs, placed
from maskpolicy.masking.selection import Masker, Selection, check_repeats
from maskpolicy.models.training.batching import (
    IGNORE,
    WHOLE,
    Order,
    Pairs,
    Share,
    Step,
    collate,
    micro_batches,
)
from maskpolicy.models.training.specials import Specials
from maskpolicy.plugins import hooks
from maskpolicy.plugins.registry import gives_examples, policy_errors, policy_fault, policy_name
from maskpolicy.plugins.statistics import Statistics

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Cut:
    """The number of texts that are truncated because they exceed the model's limit."""

    what: str  # sources, targets, questions or choices
    count: int
    texts: int
    limit: int  # most tokens of a text
    key: str  # key of the budget: max_source or max_target

    @classmethod
    def of(cls, what: str, lengths: NDArray[np.int64], limit: int, key: str) -> Cut:
        """Count the lengths, shape (n,) in tokens, above `limit`."""
        return cls(what, int((lengths > limit).sum()), len(lengths), limit, key)


def examples_of(policy: Policy, passages: Sequence[Passage]) -> NDArray[np.int64]:
    """Return the passage of each example, and its number in the passage, (n, 2).

    Raises PluginError if a user's `examples_of` fails, or returns something else.
    """
    count: Any = hooks.EXAMPLES_OF.of(policy)
    with policy_errors(policy, lambda: "examples_of"):
        counts = np.asarray(count(passages))
        if counts.shape != (len(passages),) or counts.dtype.kind not in "iu" or (counts < 0).any():
            raise policy_fault(
                policy,
                "examples_of must return a whole number from 0 for each of the "
                f"{len(passages)} passages",
            )
    counts = counts.astype(np.int64)  # NumPy joins other kinds to floats
    numbers = np.arange(counts.sum()) - (counts.cumsum() - counts).repeat(counts)
    return np.stack([np.arange(len(counts)).repeat(counts), numbers], axis=1)


@dataclass(frozen=True, eq=False)
class MaskedSteps:
    """Steps of a pre-training stage: `spec.batch_size` passages each, masked dynamically."""

    passages: Passages
    policy: Policy
    denoising: Denoising
    specials: Specials
    spec: Training
    # writes masked passages as training pairs of the model's kind
    pairs: Callable[[Specials, DenoisingPairs, Training], Pairs] = Specials.pairs
    views: Sequence[Passages] = ()  # the passages with the columns of each leaf; (): `passages`
    statistics: Sequence[Statistics | None] = ()  # that `select` of each leaf reads; (): none
    share: Share = WHOLE

    @cached_property
    def masker(self) -> Masker:
        """The policy, with the members that it draws from if it does."""
        return Masker.of(self.policy, self.denoising, self.statistics)

    @cached_property
    def room(self) -> int:
        """The most tokens of a passage that a pair holds; the others are cut before masking."""
        return self.specials.kept(self.spec, (leaf.denoising for leaf in self.masker.leaves))

    @cached_property
    def shown(self) -> list[Passages]:
        """The passages of each leaf: with its columns, cut to `room`."""
        whole = self.passages.cut(self.room)
        return [view.cut(self.room) for view in self.views] or [whole] * len(self.masker.leaves)

    @cached_property
    def is_cut(self) -> bool:
        """Whether a passage is longer than the room of a source."""
        return bool((self.passages.lengths > self.room).any())

    @property
    def limits(self) -> tuple[int, int] | None:
        """The limits of masked spans that a passage may exceed; see `Specials.limits`."""
        return self.specials.limits(self.spec, int(self.passages.lengths.max(initial=0)))

    @cached_property
    def examples(self) -> NDArray[np.int64] | None:
        """The examples of a policy that gives them; None: one each.

        Raises DataError for a policy that gives no example at all.
        """
        if not gives_examples(self.policy):
            return None
        found = examples_of(self.policy, self.shown[0])
        if not len(found):
            raise DataError(
                f"{policy_name(self.policy)}: gives no example of any passage: use a "
                "corpus in which it masks something"
            )
        return found

    @cached_property
    def order(self) -> Order:
        """The order of the passages, or of their examples.

        With one example per passage, it is the same for every policy.
        """
        lengths = self.passages.lengths
        if self.examples is not None:
            lengths = lengths[self.examples[:, 0]]
        share, most = self.share, self.room
        return Order(lengths, self.spec.batch_size, self.spec.seed, share=share, most=most)

    def __call__(self, number: int) -> Step:
        """Return the data of one step: its passages, masked."""
        if not self.order.step(number):  # fewer passages than processes
            return Step([], 0)
        selected = self._selected(number)
        written = self._written(number, selected)
        pairs = self.pairs(self.specials, written, self.spec)
        if self.denoising.replaced_token_detection is not None:
            pairs = self._detected(number, selected, pairs)
        units: float = _units(pairs)
        if self.masker.weighs:
            pairs = replace(pairs, weights=self._weights(number, selected, pairs))
            units = _weighted_units(selected, pairs)
        lengths = self.order.lengths[[item for item, _ in self.order.step(number)]]
        work = Counter(
            passages=len(selected.passages),
            passage_tokens=int(lengths.sum()),
            passages_without_span=int((written.spans == 0).sum()),
            spans=int(written.spans.sum()),
            hidden_tokens=int(written.masked_tokens.sum()),
            source_tokens=len(pairs.sources.flat),
            target_tokens=_units(pairs),
        )
        if written.left_out:
            work["spans_without_sentinel"] = written.left_out
        if written.without_room:
            work["spans_without_room"] = written.without_room
        if self.is_cut:
            work["cut_tokens"] = int(np.maximum(lengths - self.room, 0).sum())
        return _step(pairs, self.specials, self.spec, work, units, self.spec.compile is True)

    def too_long(self) -> tuple[int, str]:
        """Return how many passages are cut, and by which key.

        The key is max_source, or max_target if the target is the full text and its limit is lower.
        """
        is_by_source = self.room == self.specials.room(self.spec.max_source)
        count = int((self.passages.lengths > self.room).sum())
        return count, "max_source" if is_by_source else "max_target"

    def masks_nothing(self, steps: int) -> bool:
        """Return True if no token is masked in the first `steps`: there is nothing to learn.

        Tokens of weight 0 do not count. Stops at the first masked token, so that the check is cheap
        for a policy that masks any.
        """
        selected = map(self._selected, range(steps))
        pairs = (pair for each in selected for pair in zip(each.spans, each.weights, strict=True))
        return not any(len(spans) and np.any(weight) for spans, weight in pairs)

    def check_repeats(self, steps: int) -> None:
        """Raise ConfigError if the first or the last of `steps` is not the same a second time.

        A policy whose rate rises from 0 masks nothing in the first step.
        """
        for number in {0, steps - 1}:
            check_repeats(self.policy, self._selected(number), self._selected(number))

    def masks_everything(self, steps: int) -> bool:
        """Return True if the first `steps` mask every token: there is nothing to read.

        Stops at the first step that leaves a token.
        """
        sources = (self.written(number).sources.flat for number in range(steps))
        return all(self.specials.written(source).all() for source in sources)

    def written(self, number: int) -> DenoisingPairs:
        """Return the passages of one step, masked."""
        return self._written(number, self._selected(number))

    def _written(self, number: int, selected: Selection) -> DenoisingPairs:
        epochs = [epoch for _, epoch in self.order.step(number)]
        limits = self.room, self.specials.target_room(self.spec)
        return mixed_pairs(selected, self.specials, self.spec.seed, epochs, *limits)

    def _weights(self, number: int, selected: Selection, pairs: Pairs) -> Ragged:
        """Return the weight of the loss of each target token."""
        passages = selected.passages
        means = [np.mean(own) for own in selected.weights]
        weights = np.repeat(means, pairs.targets.lengths).astype(np.float32)
        if any(map(np.ndim, selected.weights)):
            places = self._written(number, replace(selected, passages=placed(passages)))
            at = self.pairs(self.specials, places, self.spec).targets.flat
            rows = zip(selected.weights, passages, strict=True)
            of_tokens = np.concatenate([np.broadcast_to(own, len(p.tokens)) for own, p in rows])
            weights[at >= PLACE] = of_tokens[at[at >= PLACE] - PLACE]
        return Ragged(weights, pairs.targets.bounds)

    @cached_property
    def _whole(self) -> MaskedSteps:
        """The same steps for one process."""
        return replace(self, share=WHOLE)

    def _detected(self, number: int, selected: Selection, pairs: Pairs) -> Pairs:
        """Return pairs with the draws and weights of replaced-token detection.

        The loss of a step, divided by its labels, is then the mean over the labels plus `weight`
        times the mean over all tokens of the passages with labels, also for several processes.
        """
        whole, bounds = pairs, pairs.targets.bounds
        epochs = [epoch for _, epoch in self.order.step(number)]
        if self.share.ranks > 1:
            whole = self.pairs(self.specials, self._whole.written(number), self.spec)
        detection: Any = self.denoising.replaced_token_detection
        weight = detection.weight * _units(whole) / max(1, len(whole.targets.flat))
        rows = zip(selected.passages, epochs, pairs.targets.lengths.tolist(), strict=True)
        streams, seed = Streams(), self.spec.seed
        draws = [
            streams.at(seed, epoch, passage.id, "generator").random(size, np.float32)
            for passage, epoch, size in rows
        ]
        weights = np.full(len(pairs.targets.flat), weight, np.float32)
        drawn = Ragged(np.concatenate(draws), bounds)
        return replace(pairs, draws=drawn, detection=Ragged(weights, bounds))

    def _selected(self, number: int) -> Selection:
        """Return the passages of one step with the spans to mask.

        Schedules run over all of `spec.steps`, even if the training stops earlier.
        """
        items, epochs = map(list, zip(*self.order.step(number), strict=True))
        examples: Sequence[int] | None = None
        if self.examples is not None:
            items, examples = self.examples[items].T.tolist()
        progress = number / self.spec.steps
        return self.masker.select(self.shown, items, self.spec.seed, epochs, progress, examples)


@dataclass(frozen=True, eq=False)
class ExampleSteps:
    """Steps of fine-tuning on a task's examples."""

    pairs: Pairs
    specials: Specials
    spec: Training
    share: Share = WHOLE

    @classmethod
    def of(
        cls,
        examples: Sequence[Example],
        tokenizer: PreTrainedTokenizerBase,
        specials: Specials,
        spec: Training,
        keep: str = "start",
    ) -> ExampleSteps:
        """Tokenize source and first target of each example; truncation keeps the `keep` side."""
        sources = tokenize([example.source for example in examples], tokenizer)
        targets = tokenize([example.targets[0] for example in examples], tokenizer)
        pairs = Pairs(
            specials.wrap(sources, spec.max_source, keep),
            specials.wrap_targets(targets, spec.max_target),
        )
        return cls(pairs, specials, spec)

    @cached_property
    def order(self) -> Order:
        """The order of the examples."""
        lengths = self.pairs.sources.lengths + self.pairs.targets.lengths
        return Order(lengths, self.spec.batch_size, self.spec.seed, share=self.share)

    def __call__(self, number: int) -> Step:
        """Return the data of one step: its examples, collated."""
        pairs = self.pairs.take(np.asarray([item for item, _ in self.order.step(number)], np.int64))
        work = Counter(examples=len(pairs))
        return _step(pairs, self.specials, self.spec, work, _units(pairs))


def tokenize(texts: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> Ragged:
    """Return the ids of each text without special tokens."""
    return Ragged.of((one.ids for one in encode(texts, tokenizer)), np.int32)


def _step(
    pairs: Pairs,
    specials: Specials,
    spec: Training,
    work: Counter[str],
    units: float,
    in_buckets: bool = False,
) -> Step:
    decodes = specials.start is not None
    cuts = micro_batches(pairs, spec.batch_tokens, decodes, in_buckets)
    limits = (spec.max_source, spec.max_target if decodes else spec.max_source)
    widths = limits if in_buckets else None
    padded = (collate(cut, specials.pad, specials.start, widths) for cut in cuts)
    batches = [replace(batch, has_types=specials.has_types) for batch in padded]
    written = len(pairs.targets.flat) if decodes else 0
    return Step(batches, units, work, len(pairs.sources.flat) + written)


def _units(pairs: Pairs) -> int:
    labels = pairs.targets.flat
    return len(labels) if labels.dtype.kind == "f" else int((labels != IGNORE).sum())


def _weighted_units(selected: Selection, pairs: Pairs) -> float:
    """Return the divisor of the weighted loss of passages.

    It is the sum of the labels' weights; for passages that their objective weighs, as in masked
    diffusion, the number of all their tokens.
    """
    assert pairs.weights is not None
    is_equal = np.asarray([how.loss_weight == "equal" for how in selected.denoisings])
    counted = (pairs.targets.flat != IGNORE) & is_equal.repeat(pairs.targets.lengths)
    tokens = np.asarray([len(passage.tokens) for passage in selected.passages])
    return float(pairs.weights.flat[counted].sum(dtype=np.float64) + tokens[~is_equal].sum())
