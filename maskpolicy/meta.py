"""The meta-learner's episode: what a policy hides is judged by the question answered after it.

Ye et al. 2021, Figure 2: (a) hide a span of the context by the current policy and step on that
masked-LM loss, (b) step on (q, a); the loss on (q, a) after both is the policy's. The relaxation is
over losses, not over text: the policy scores K candidate spans, each is hidden in the ordinary way
and has its own loss L_k, and step (a) is on sum_k w_k L_k, w being a Gumbel-softmax of the scores.
The one loop trains it (training.py): its module is the policy, its units are episodes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from maskpolicy.batching import Batch, Order, Pair, collate
from maskpolicy.budgets import Training
from maskpolicy.errors import DataError, StageError
from maskpolicy.innerloop import Inner, Lesson, backend
from maskpolicy.masking import generator, hide_all
from maskpolicy.objectives import Specials
from maskpolicy.schema import Count, Positive
from maskpolicy.training import Step
from maskpolicy.types import How, Passage, Spans

if TYPE_CHECKING:
    import torch

Score: TypeAlias = "Callable[[Any, Sequence[Passage], int], list[tuple[Spans, torch.Tensor]]]"
"""(policy network, passages, k) -> at most k candidates of each, (n, 2), and their scores, (n,)."""


@dataclass(frozen=True)
class Episode:
    """How an episode is made."""

    candidates: Count = 8  # K
    hard: bool = True  # straight-through: one candidate is hidden, all get a gradient
    temperature: Positive = 1.0  # of the Gumbel-softmax at the first outer step
    cooled: Positive = 0.3  # and at the last one; exponential between
    query: Literal["same", "held-out"] = "same"  # what the outer loss is on
    sharing: Count = 1  # episodes with one set of fast weights; 1: each has its own (the paper)


@dataclass(frozen=True, eq=False)
class Question:
    """One training example: its context, and its source and target."""

    id: str
    passage: Passage
    pair: Pair


@dataclass(frozen=True, eq=False)
class Episodes:
    """e episodes that share one set of fast weights: what they hide in, and ask."""

    ids: tuple[str, ...]
    passages: tuple[Passage, ...]
    noise: torch.Tensor | None  # (e, K); None: the policy's first choice, without noise
    temperature: float
    step: int  # with the seed, it seeds what hiding draws
    query: Batch
    held: Batch

    def to(self, device: torch.device) -> Episodes:
        """Return the episodes on another device."""
        noise = None if self.noise is None else self.noise.to(device)
        query, held = self.query.to(device), self.held.to(device)
        return replace(self, noise=noise, query=query, held=held)


@dataclass(frozen=True, eq=False)
class EpisodeSteps:
    """The steps of the outer loop: a fixed number of episodes each, in fresh noise.

    Order, noise and held-out questions are functions of (seed, step, id) alone.
    """

    questions: Sequence[Question]
    episode: Episode
    specials: Specials
    spec: Training

    @cached_property
    def order(self) -> Order:
        """The order of the questions."""
        lengths = np.asarray([len(question.passage.tokens) for question in self.questions])
        return Order(lengths, self.spec.passages, self.spec.seed)

    @cached_property
    def others(self) -> dict[str, list[Question]]:
        """The questions about each context, by its text."""
        found: dict[str, list[Question]] = {}
        for question in self.questions:
            found.setdefault(question.passage.text, []).append(question)
        return found

    def __call__(self, number: int) -> Step:
        """Make the episodes of one outer step."""
        asked = [self.questions[item] for item, _ in self.order.step(number)]
        size = self.episode.sharing
        batches = [self._made(asked[i : i + size], number) for i in range(0, len(asked), size)]
        return Step(batches, len(asked), Counter(episodes=len(asked)))

    def first_choices(self) -> list[Episodes]:
        """Return all questions as episodes of the policy's first choices, without noise."""
        return [self._made([question], 0, noisy=False) for question in self.questions]

    def _made(self, asked: Sequence[Question], number: int, noisy: bool = True) -> Episodes:
        import torch

        draws = [generator(self.spec.seed, number, one.id, "gumbel") for one in asked]
        noise = np.stack([rng.gumbel(size=self.episode.candidates) for rng in draws])
        held = [self._held(one, number) for one in asked]
        return Episodes(
            tuple(one.id for one in asked),
            tuple(one.passage for one in asked),
            torch.from_numpy(noise) if noisy else None,
            temperature(self.episode, number, self.spec.steps),
            number,
            self._collated(asked),
            self._collated(held),
        )

    def _held(self, asked: Question, number: int) -> Question:
        """Return the question of the outer loss: `asked`, or another one about its context."""
        if self.episode.query == "same":
            return asked
        others = [one for one in self.others[asked.passage.text] if one.id != asked.id]
        return others[generator(self.spec.seed, number, asked.id, "held").integers(len(others))]

    def _collated(self, questions: Sequence[Question]) -> Batch:
        pairs = [question.pair for question in questions]
        return collate(pairs, self.specials.pad, self.specials.start)


def usable(questions: Sequence[Question], episode: Episode) -> list[Question]:
    """Return the questions that an episode can be made of; the others have nothing to teach.

    A context must have a token to hide; for a held-out query, another question about it. Raises
    DataError when none is left.
    """
    kept = [question for question in questions if len(question.passage.tokens)]
    if episode.query == "held-out":
        count = Counter(question.passage.text for question in kept)
        kept = [question for question in kept if count[question.passage.text] > 1]
    if not kept:
        what = "with a second question" if episode.query == "held-out" else "that is not empty"
        raise DataError(f"none of {len(questions)} training examples has a context {what}")
    return kept


@dataclass(frozen=True, eq=False)
class EpisodeLoss:
    """loss(policy network, episodes) -> (sum of outer losses, episodes), for training.train."""

    model: Any  # in evaluation mode, with eager attention; it is not changed
    score: Score
    how: How
    episode: Episode
    inner: Inner
    backend: str
    specials: Specials
    spec: Training

    def __call__(self, module: Any, episodes: Episodes) -> tuple[torch.Tensor, int]:
        """Raise StageError, naming the example, when the outer loss is no number."""
        import torch

        scored = self.score(module, episodes.passages, self.episode.candidates)
        w = torch.cat([self._weights(scores, i, episodes) for i, (_, scores) in enumerate(scored)])
        spans = [spans for spans, _ in scored]
        candidates = self._candidates(episodes, spans).to(w.device)
        lesson = Lesson(candidates, episodes.query, episodes.held)
        count = len(episodes.passages)
        outer = backend(self.backend)(self.model, lesson, w / count, self.inner)
        if not math.isfinite(outer.item()):
            raise StageError(
                f"the outer loss of example {episodes.ids[0]!r} became {outer.item()} in outer "
                f"step {episodes.step + 1}: lower inner.lr (now {self.inner.lr}) or "
                f"inner.query_lr (now {self.inner.query_lr})"
            )
        return outer * count, count

    def _weights(self, scores: torch.Tensor, index: int, episodes: Episodes) -> torch.Tensor:
        if episodes.noise is None:
            return relaxed(scores.detach(), 0.0, 1.0, hard=True)
        noise = episodes.noise[index, : len(scores)].to(scores.dtype)
        return relaxed(scores, noise, episodes.temperature, self.episode.hard)

    def _candidates(self, episodes: Episodes, spans: Sequence[Spans]) -> Batch:
        """Hide every candidate of every passage in the ordinary way, one row for each."""
        owners = [p for p, found in zip(episodes.passages, spans, strict=True) for _ in found]
        single = [found[i : i + 1] for found in spans for i in range(len(found))]
        steps = [episodes.step] * len(single)
        seed, mask = self.spec.seed, self.specials.mask
        masked = hide_all(owners, single, self.how, mask, seed, steps)
        pairs = [self.specials.pair(one, self.spec) for one in masked]
        return collate(pairs, self.specials.pad, self.specials.start)


def relaxed(
    scores: torch.Tensor, noise: torch.Tensor | float, temperature: float, hard: bool
) -> torch.Tensor:
    """Return the Gumbel-softmax of scores, (n,); hard: one-hot with the gradient of the soft one.

    Maddison et al. 2017; Jang et al. 2017, section 2.2 (straight-through).
    """
    soft = ((scores + noise) / temperature).softmax(-1)
    if not hard:
        return soft
    chosen = soft.new_zeros(len(soft)).index_fill(0, soft.argmax().reshape(1), 1.0)
    return chosen + (soft - soft.detach())


def temperature(episode: Episode, number: int, steps: int) -> float:
    """Return the temperature of outer step `number` of `steps`, counted from 0."""
    done = number / max(1, steps - 1)
    return episode.temperature * (episode.cooled / episode.temperature) ** done


def mean_outer_loss(loss: EpisodeLoss, module: Any, episodes: Sequence[Episodes]) -> float:
    """Return the mean outer loss over groups of episodes, whose noise is None."""
    device = next(module.parameters()).device
    module.eval()
    found = [loss(module, group.to(device)) for group in episodes]
    return sum(value.item() for value, _ in found) / sum(count for _, count in found)
