"""Build episodes from questions, and the steps of the outer loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from maskpolicy.core.schema import Count, Positive, omitted
from maskpolicy.core.seeding import generator
from maskpolicy.core.types import Denoising, Example, Passage
from maskpolicy.data.corpus.passages import first_tokens
from maskpolicy.data.taskfiles import sources
from maskpolicy.experiment.budgets import Training
from maskpolicy.models.learned.fit_tools import Context
from maskpolicy.models.training.batching import (
    WHOLE,
    Batch,
    Order,
    Pair,
    Pairs,
    Share,
    Step,
    collate,
)
from maskpolicy.models.training.specials import Specials
from maskpolicy.models.training.steps import ExampleSteps
from maskpolicy.plugins.discovery import find_plugin

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Episode:
    """Settings of an episode."""

    candidates: Count = 8  # number of candidate spans of a context to compare (K)
    hard: bool = True  # straight-through: mask one candidate, but give all a gradient
    temperature: Positive = 1.0  # of the Gumbel-softmax at the first outer step
    cooled: Positive = 0.3  # temperature at the last outer step; decays exponentially
    # question of the outer loss: the one of the inner steps, or another about the same context
    query: Literal["same", "held-out"] = "same"
    sharing: Count = 1  # episodes that share one set of fast weights; 1: none do (the paper)
    # span: draw a candidate; start-end: draw its first and its last token apart
    draw: Literal["span", "start-end"] = omitted("span")


@dataclass(frozen=True, eq=False)
class Question:
    """One training example: its context, source and target."""

    id: str
    passage: Passage
    pair: Pair


@dataclass(frozen=True, eq=False)
class Episodes:
    """e episodes that share one set of fast weights: passages to mask, and questions."""

    ids: tuple[str, ...]
    passages: tuple[Passage, ...]
    # Gumbel noise, (K,) each; of first and last tokens: (2, t); None: the policy's best candidate
    noise: tuple[torch.Tensor, ...] | None
    temperature: float
    step: int  # with the seed, it seeds the random choices of masking
    support: Batch  # e questions of the inner steps: part of MAML's support set
    query: Batch  # e questions of the outer loss: MAML's query set

    def to(self, device: torch.device) -> Episodes:
        """Return the episodes on another device."""
        noise = self.noise and tuple(one.to(device) for one in self.noise)
        support, query = self.support.to(device), self.query.to(device)
        return replace(self, noise=noise, support=support, query=query)


@dataclass(frozen=True, eq=False)
class EpisodeSteps:
    """The steps of the outer loop: each has a fixed number of episodes and new noise.

    Order, noise and held-out questions depend only on (seed, step, id).
    """

    questions: Sequence[Question]
    episode: Episode
    specials: Specials
    spec: Training
    share: Share = WHOLE

    @cached_property
    def order(self) -> Order:
        """The order of the questions."""
        lengths = np.asarray([len(question.passage.tokens) for question in self.questions])
        return Order(lengths, self.spec.batch_size, self.spec.seed)

    @cached_property
    def others(self) -> dict[str, list[Question]]:
        """Map the text of each context to its questions."""
        others: dict[str, list[Question]] = {}
        for question in self.questions:
            others.setdefault(question.passage.text, []).append(question)
        return others

    def __call__(self, number: int) -> Step:
        """Make the episodes of one outer step."""
        asked = [self.questions[item] for item, _ in self.order.step(number)]
        size = self.episode.sharing
        groups = [asked[i : i + size] for i in range(0, len(asked), size)]
        tokens = [sum(len(one.passage.tokens) for one in group) for group in groups]
        own = [groups[row] for row in self.share.rows(np.asarray(tokens))]
        count = sum(map(len, own))
        return Step([self._made(one, number) for one in own], count, Counter(episodes=count))

    def first_choices(self, most: int) -> list[Episodes]:
        """Return up to `most` questions, drawn with the seed, as episodes without noise."""
        drawn = generator(self.spec.seed, 0, "", "first").permutation(len(self.questions))[:most]
        return [self._made([self.questions[i]], 0, noisy=False) for i in sorted(drawn.tolist())]

    def _made(self, asked: Sequence[Question], number: int, noisy: bool = True) -> Episodes:
        import torch

        def drawn(one: Question) -> torch.Tensor:
            apart = self.episode.draw == "start-end"
            size = (2, len(one.passage.tokens)) if apart else self.episode.candidates
            rng = generator(self.spec.seed, number, one.id, "gumbel")
            return torch.from_numpy(rng.gumbel(size=size))

        queries = [self._query(one, number) for one in asked]
        return Episodes(
            ids=tuple(one.id for one in asked),
            passages=tuple(one.passage for one in asked),
            noise=tuple(map(drawn, asked)) if noisy else None,
            temperature=temperature(self.episode, number, self.spec.steps),
            step=number,
            support=self._collated(asked),
            query=self._collated(queries),
        )

    def _query(self, asked: Question, number: int) -> Question:
        """Return the question of the outer loss: `asked`, or another about the same context."""
        if self.episode.query == "same":
            return asked
        others = [one for one in self.others[asked.passage.text] if one.id != asked.id]
        return others[generator(self.spec.seed, number, asked.id, "held").integers(len(others))]

    def _collated(self, questions: Sequence[Question]) -> Batch:
        pairs = Pairs.of([question.pair for question in questions])
        return collate(pairs, self.specials.pad, self.specials.start)


def questions(
    contexts: Sequence[Context],
    task: str,
    tokenizer: Any,
    specials: Specials,
    spec: Training,
    denoising: Denoising,
) -> list[Question]:
    """Return the questions of a task's contexts, with the (source, target) pairs of fine-tuning.

    Contexts are cut to as many of their first words as a denoising pair holds; those of questions
    without an answer (SQuAD v2.0) are left out.
    """
    contexts = [one for one in contexts if one.targets]
    keep = sources.facts(find_plugin("task", task)).keep
    examples = [Example(one.id, one.group, one.source, one.targets) for one in contexts]
    pairs = ExampleSteps.of(examples, tokenizer, specials, spec, keep).pairs
    most = specials.kept(spec, [denoising])

    def cut(passage: Passage) -> Passage:
        ends = passage.words[:, 1]
        return first_tokens(passage, int(ends[ends <= most].max(initial=0)))

    read = zip(contexts, pairs, strict=True)
    return [Question(one.id, cut(one.passage), pair) for one, pair in read]


def usable(questions: Sequence[Question], episode: Episode) -> list[Question]:
    """Return the questions that can form an episode.

    The context must have a word to mask and, for a held-out query, another question.
    """
    kept = [question for question in questions if len(question.passage.words)]
    if episode.query == "held-out":
        # by id, because two columns of a task repeat a question
        asked = Counter(text for _, text in {(one.id, one.passage.text) for one in kept})
        kept = [question for question in kept if asked[question.passage.text] > 1]
    return kept


def temperature(episode: Episode, number: int, steps: int) -> float:
    """Return the temperature at outer step `number` of `steps`, counted from 0."""
    done = number / max(1, steps - 1)
    cooled: float = (episode.cooled / episode.temperature) ** done
    return episode.temperature * cooled
