"""Predictions of the model in training for the tokens of passages: the argument of `reannotate`.

Each token is masked once, together with a share of the other tokens, with the row's own denoising
objective: its loss is the loss that it would add in training.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskpolicy.core import hardware
from maskpolicy.core.errors import ConfigError
from maskpolicy.core.seeding import Streams
from maskpolicy.core.types import Denoising, Passage, Spans, as_spans
from maskpolicy.data.corpus.annotation import check_columns
from maskpolicy.experiment.budgets import Training
from maskpolicy.masking.denoising import PLACE, denoising_pairs, placed
from maskpolicy.models.loading import set_attention
from maskpolicy.models.model_kinds import Kind
from maskpolicy.models.training.batching import IGNORE, Batch, Loss, Pairs, collate, micro_batches
from maskpolicy.models.training.optimization import load_trained
from maskpolicy.models.training.specials import Specials
from maskpolicy.plugins import hooks
from maskpolicy.plugins.registry import policy_errors, policy_fault, policy_name

_CHUNK = 256  # passages that are masked at a time


@dataclass(frozen=True, eq=False)
class Guesses:
    """A model's predictions for the tokens of passages; each list has an array per passage.

    Tokens beyond the length at which training truncates passages have loss and entropy 0.
    """

    losses: list[NDArray[np.float32]]  # (t,) nats: -log of the probability of the right token
    entropies: list[NDArray[np.float32]]  # (t,) nats, of the distribution over the vocabulary
    best: list[NDArray[np.int32]]  # (t,) the likeliest token; -1: none


def in_training(
    kind: Kind, model: Any, denoising: Denoising, layers: int, spec: Training, state: Path | None
) -> Any:
    """Return the training module of a model on its device, with the weights of a saved state.

    It is in evaluation mode, in the precision of `spec`. Without a state, it has its first weights;
    returns None if its head is new then, because it has no guesses yet.
    """
    if state is None and kind.has_new_head(model, denoising):
        return None
    module = kind.training_module(model, denoising, layers, spec.seed)
    set_attention(module, spec.attention)
    load_trained(module, spec, state)
    return module.eval()


def smoothed(kind: Kind, reference: Any, share: float) -> Loss:
    """Return the loss of a kind of model with labels smoothed by another model's predictions.

    A label is the right token with weight 1 - `share`, and the distribution that the module
    `reference` predicts for the same micro-batch with weight `share` (token-specific label
    smoothing, Zhong et al. 2023).
    """
    import torch
    from torch.nn.functional import nll_loss

    def loss(module: Any, batch: Any) -> tuple[torch.Tensor, int]:
        labels = batch.targets
        known = kind.label_logits(module, batch).float().log_softmax(1)
        with torch.no_grad():
            guess = kind.label_logits(reference, batch).float().softmax(1)
            guess = guess * (labels != IGNORE)[:, None]  # places that fill up a bucket
        if (weights := batch.label_weights) is not None:
            known = known * weights[:, None]
        right = nll_loss(known, labels, reduction="sum")
        return (1 - share) * right - share * (guess * known).sum(), len(labels)

    return loss


@dataclass(frozen=True, eq=False)
class Guesser:
    """A model in training, and the objective with which it reads masked passages."""

    module: Any  # the training module, on its device
    kind: Kind
    specials: Specials
    spec: Training
    denoising: Denoising

    def guess(
        self,
        passages: Sequence[Passage],
        rate: float,
        draw: int,
        report: Callable[[int, int], None] = lambda passages, tokens: None,
    ) -> Guesses:
        """Return the model's guesses for all tokens; each is masked once.

        About `rate` of a passage's tokens are masked at a time, in ceil(1 / rate) passes over the
        passage, or in more if there are too few sentinels or targets are too short. (seed, `draw`,
        passage) decide which tokens are masked together. `report(passages, tokens)` gets the number
        of passages since the last report, and of tokens of their sources and targets.
        """
        import torch

        found = Guesses([], [], [])
        was_training = self.module.training
        self.module.eval()
        with torch.inference_mode():
            for begin in range(0, len(passages), _CHUNK):
                end = min(begin + _CHUNK, len(passages))
                chunk = [passages[place] for place in range(begin, end)]
                report(len(chunk), self._guess(chunk, math.ceil(1 / rate), draw, found))
        self.module.train(was_training)
        return found

    @property
    def room(self) -> int:
        """The length, in tokens, to which training truncates passages."""
        return self.specials.kept(self.spec, [self.denoising])

    @property
    def _most(self) -> int | None:
        """The most tokens of a passage that a pass masks: what sentinels and a target hold."""
        sentinels, room = self.specials.most, self.specials.target_room(self.spec)
        if room is None or self.denoising.target == "full":
            return sentinels
        tokens = (room - 1) // 2 if self.denoising.join == "mask" else room
        return max(1, tokens if sentinels is None else min(tokens, sentinels))

    def _guess(self, chunk: list[Passage], rounds: int, draw: int, found: Guesses) -> int:
        """Append the guesses for a few passages; return the number of tokens of all passes."""
        lengths = np.asarray([len(passage.tokens) for passage in chunk])
        size, tokens = int(lengths.sum()), 0
        losses, entropies = np.zeros(size, np.float32), np.zeros(size, np.float32)
        best = np.full(size, -1, np.int32)
        for spans in _rounds(chunk, rounds, self.spec.seed, draw, self._most, self.room):
            for batch, places in self._batches(chunk, spans, draw):
                tokens += int(batch.seen.sum()) + int((batch.labels != IGNORE).sum())
                at, values = self._predict(batch, places, spans, lengths)
                losses[at], entropies[at], best[at] = values
        cuts = lengths.cumsum()[:-1]
        for rows, flat in zip(vars(found).values(), (losses, entropies, best), strict=True):
            rows.extend(np.split(flat, cuts))
        return tokens

    def _batches(
        self, chunk: list[Passage], spans: list[Spans], draw: int
    ) -> Iterator[tuple[Batch, NDArray[np.int64]]]:
        """Yield micro-batches, and for each of their labels the index of its token; -1: none.

        Tokens are numbered over all passages of the chunk. The passages are written twice in the
        same way: with their tokens, and with the tokens' places.
        """
        pairs, places = (self._pairs(each, spans, draw) for each in (chunk, placed(chunk)))
        limits = self.spec.batch_tokens, self.specials.start is not None
        both = zip(micro_batches(pairs, *limits), micro_batches(places, *limits), strict=True)
        for cut, cut_places in both:
            table = cut_places.targets.padded(IGNORE)
            batch = collate(cut, self.specials.pad, self.specials.start)
            yield batch, np.where(table >= PLACE, table - PLACE, -1)

    def _pairs(self, passages: list[Passage], spans: list[Spans], draw: int) -> Pairs:
        written = denoising_pairs(
            passages,
            spans,
            replace(self.denoising, replacement=None),
            self.specials,
            self.spec.seed,
            epochs=[draw] * len(passages),
            room=self.room,
            target_room=self.specials.target_room(self.spec),
        )
        return self.kind.pairs(self.specials, written, self.spec)

    def _predict(
        self,
        batch: Batch,
        places: NDArray[np.int64],
        spans: list[Spans],
        lengths: NDArray[np.int64],
    ) -> tuple[NDArray[np.int64], tuple[NDArray[Any], ...]]:
        """Return the masked tokens among a batch's labels, (k,), with loss, entropy and guess."""
        import torch

        starts = (lengths.cumsum() - lengths).repeat([len(each) for each in spans])
        is_masked = np.zeros(int(lengths.sum()), bool)
        is_masked[np.concatenate(spans)[:, 0] + starts] = True
        masked = (places >= 0) & is_masked[places]
        labels = batch.labels.masked_fill(torch.from_numpy(~masked), IGNORE)
        asked = replace(batch, labels=labels).to(hardware.device())
        known = self.kind.label_logits(self.module, asked).float().log_softmax(1)
        right = asked.targets
        losses = -known.gather(1, right[:, None])[:, 0]
        entropies = -(known.exp() * known).sum(1)
        values = tuple(each.cpu().numpy() for each in (losses, entropies, known.argmax(1)))
        return places[masked], values


def _rounds(
    passages: Sequence[Passage],
    rounds: int,
    seed: int,
    draw: int,
    most: int | None = None,
    room: int | None = None,
) -> Iterator[list[Spans]]:
    """Yield the tokens to mask in each pass: each of the first `room` in exactly one of them.

    If a pass would mask more than `most` tokens of a passage, the passage has further passes.
    """
    streams = Streams()
    orders = [
        streams.at(seed, draw, passage.id, "guess").permutation(len(passage.tokens[:room]))
        for passage in passages
    ]
    own = [rounds if most is None else max(rounds, math.ceil(len(o) / most)) for o in orders]
    for number in range(max(own, default=0)):
        pairs = zip(orders, own, strict=True)
        chosen = [np.sort(o[number::n] if number < n else o[:0]) for o, n in pairs]
        yield [as_spans(np.stack([at, at + 1], axis=1)) for at in chosen]


RATE = 0.3  # share of a passage's tokens that are masked at a time


@dataclass(eq=False)
class Current:
    """The model in training, after `steps` steps of the intermediate stage."""

    vocabulary: int  # tokens
    steps: int = 0
    guesser: Guesser | None = None  # None: the model cannot predict tokens yet
    state: dict[str, NDArray[Any]] = field(default_factory=dict)
    """Arrays by name that the policy keeps from one `reannotate` to the next."""
    fitted: Path | None = None  # the folder of a learned policy
    report: Callable[[int], None] = lambda passages: None
    tokens: int = 0  # of all sources and targets that the model has read so far

    @property
    def module(self) -> Any:
        """The training module on its device (a text-to-text model itself), or None.

        Do not change its weights or gradients.
        """
        return None if self.guesser is None else self.guesser.module

    def guess(self, passages: Sequence[Passage], rate: float = RATE) -> Guesses:
        """Return loss and entropy of each token of passages, in nats, and the likeliest token.

        Each token is masked once, with a share of about `rate` of the others: the model reads a
        passage ceil(1 / rate) times, or more if the targets are too short, under the row's
        denoising objective. If the model begins with a new head, as most encoders do, all tokens
        are equally likely before the first step. Raises ConfigError for a rate outside (0, 1].
        """
        if not 0 < rate <= 1:
            raise ConfigError(f"guess: rate must be above 0 and at most 1, not {rate}")
        if self.guesser is None:
            flat, sizes = np.float32(math.log(self.vocabulary)), [len(p.tokens) for p in passages]
            losses, entropies = ([np.full(size, flat) for size in sizes] for _ in range(2))
            return Guesses(losses, entropies, [np.full(size, -1, np.int32) for size in sizes])
        return self.guesser.guess(passages, rate, self.steps, self._count)

    def _count(self, passages: int, tokens: int) -> None:
        self.tokens += tokens
        self.report(passages)


def reannotated(
    policy: Any, passages: Sequence[Passage], current: Current
) -> dict[str, list[NDArray[Any]]]:
    """Return the columns of a policy's `reannotate`, checked; raises StageError."""
    with policy_errors(policy, lambda: f"reannotate after {current.steps} steps"):
        try:
            columns: dict[str, list[NDArray[Any]]] = policy.reannotate(passages, current)
        except ConfigError as error:  # of a call of ours, which does not know the policy
            raise ConfigError(f"{policy_name(policy)}: reannotate: {error}") from error
    check_columns(policy, hooks.REANNOTATE.name, columns, passages)
    for key, value in current.state.items():
        is_array = isinstance(value, np.ndarray)
        if not is_array or value.dtype.kind not in "biuf":
            kind = f"of {value.dtype}" if is_array else type(value).__name__
            fault = f"current.state[{key!r}] must be a NumPy array of numbers, not {kind}"
            raise policy_fault(policy, fault)
    return columns
