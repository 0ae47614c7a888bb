"""Mask the span whose recovery most helps to learn a question (Ye et al. 2021, Figure 2)."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from maskpolicy import (
    ConfigError,
    Count,
    DataError,
    Json,
    Passage,
    Positive,
    Spans,
    Steps,
    omitted,
    policy,
)
from maskpolicy.models.learned import (
    Contexts,
    Tools,
    Training,
    bounded,
    candidates,
    episodes,
    hits,
    innerloop,
    meta,
)

_log = logging.getLogger(__name__)
LEAST = 0.2  # smallest share of contexts with an answer to start from `init` on the same tasks


@dataclass(frozen=True)
class Outer:
    """The outer loop, which trains the policy; all other settings come from the budget `fit`."""

    steps: Steps = 100  # steps of the outer loop
    episodes: Count = 8  # episodes per outer step
    lr: Positive = 1e-3  # peak learning rate of the policy
    # outer steps of linear warm-up; if omitted and `steps` is at most 20: steps // 10
    warmup: Steps = 10
    eval_every: Steps = 25  # outer steps between evaluations on dev; 0: never
    dev: Count = 64  # maximum number of dev questions to evaluate on


@policy("meta-learned", target="spans")
@dataclass(frozen=True)
class MetaLearned:
    """Mask the span whose recovery helps most to learn `train_on` (+Meta-learned).

    It is one of the `top_k` best spans, drawn with probability proportional to exp(score).
    """

    train_on: tuple[str, ...]  # task names, or labels of the experiment's columns
    # the learned policy to start from; one given by name is fitted on the same tasks
    init: str | dict[str, Any] = "supervised"
    # computes the gradient: our implementation, or the library `higher`; both give the same
    backend: Literal["functional", "higher"] = "functional"
    top_k: Count = 1  # draw the masked span from this many best spans
    max_words: Count = 10  # maximum number of words in a span
    overlap: bool = omitted(False)  # allow the best spans to overlap, as in the paper
    episode: episodes.Episode = field(default_factory=episodes.Episode)
    inner: innerloop.Inner = field(default_factory=innerloop.Inner)
    outer: Outer = field(default_factory=Outer)
    only_select: ClassVar = ("top_k",)  # fields that neither fit nor annotate reads
    fits_to_denoising: ClassVar = True

    def __post_init__(self) -> None:
        """Raise ConfigError for an empty `train_on` or `init`, or too many candidates."""
        candidates.check(self.train_on, self.top_k, self.max_words)
        if not self.init:
            raise ConfigError("init: is empty: name a learned policy")
        if (compared := self.episode.candidates) > candidates.MOST:
            raise ConfigError(
                f"episode.candidates: must be at most {candidates.MOST}, not {compared}"
            )

    def fit(self, data: Sequence[Contexts], spec: Training, out: Path, tools: Tools) -> Json:
        """Train the initial policy on episodes and keep the best on dev, the initial one included.

        Raises ConfigError if the initial policy has too few answers to learn from, and DataError
        if no question can form an episode.
        """
        from maskpolicy.models.learned import extractor

        if tools.init is None:
            raise ConfigError("policy meta-learned: the policy to start from is missing: set init")
        self._check_start(data)
        loss, tokenizer = self._loss(spec, tools), tools.load_tokenizer()
        train, dev = (self._questions(data, split, loss, tokenizer) for split in ("train", "dev"))
        if not train:
            counts = ", ".join(f"{len(task.train)} of {task.name}" for task in data)
            what = "with a second question" if self.episode.query == "held-out" else "with a word"
            raise DataError(f"policy meta-learned: no example has a context {what} ({counts})")
        steps = episodes.EpisodeSteps(train, self.episode, loss.specials, loss.spec)
        examined = replace(steps, questions=dev).first_choices(self.outer.dev)

        def validate(reader: Any) -> float:
            return -meta.mean_outer_loss(loss, reader, examined)

        initial, reader = (extractor.Extractor.load(tools.init).to(tools.device) for _ in range(2))
        reader.dropout.p = 0.0  # the only randomness is the Gumbel noise
        judged = bool(examined and loss.spec.eval_every)
        before = validate(initial) if judged else -math.inf
        done = tools.train(reader, steps, loss, loss.spec, validate=validate if judged else None)
        learnt = not judged or done.get("best_score", -math.inf) > before
        (reader if learnt else initial).save(out)
        if not learnt:
            _log.info(
                "policy meta-learned: no step lowers the loss on dev: the policy stays as `init` is"
            )
        facts: dict[str, Json] = {"questions": len(train), "initial_stays": not learnt}
        facts |= {"initial_score": before} if judged else {}
        return facts | {name: done[name] for name in sorted(done)}

    def _check_start(self, data: Sequence[Contexts]) -> None:
        """Raise ConfigError for a start on the same tasks if too few contexts hold an answer."""
        if not isinstance(self.init, str):
            return
        contexts = [context for task in data for context in task.train]
        share = len(hits.answered(contexts)) / max(1, len(contexts))
        if share < LEAST:
            raise ConfigError(
                f"policy meta-learned: init: {self.init} would learn from "
                f"{', '.join(self.train_on)}, where {share:.1%} of {len(contexts)} contexts hold "
                f"an answer, not {LEAST:.0%}: start from a policy that is learned on another task, "
                f"e.g. init: {{name: {self.init}, train_on: [triviaqa]}}"
            )

    def _loss(self, spec: Training, tools: Tools) -> meta.EpisodeLoss:
        """Return the episode loss, with the training settings of the outer loop."""
        from maskpolicy.models.learned import windows

        # eager: sdpa has no second derivative; fp32: bf16 would round small inner steps away
        model = tools.load_model(attn_implementation="eager")
        outer = replace(
            spec,
            steps=self.outer.steps,
            batch_size=self.outer.episodes,
            lr=self.outer.lr,
            warmup=self.outer.warmup,
            eval_every=self.outer.eval_every,
            patience=0,
            precision="fp32",
        )
        return meta.EpisodeLoss(
            model=model.eval(),
            score=partial(windows.rank, max_words=self.max_words, overlap=self.overlap),
            denoising=tools.denoising,
            episode=self.episode,
            inner=self.inner,
            backend=self.backend,
            specials=tools.specials(model),
            spec=bounded(outer, model),
        )

    def _questions(
        self, data: Sequence[Contexts], split: str, loss: meta.EpisodeLoss, tokenizer: Any
    ) -> list[episodes.Question]:
        found: list[episodes.Question] = []
        for task in data:
            contexts = getattr(task, split)
            given = (tokenizer, loss.specials, loss.spec, loss.denoising)
            found += episodes.questions(contexts, task.task, *given)
        return episodes.usable(found, self.episode)

    def annotate(
        self, passages: Sequence[Passage], fitted: Path | None = None
    ) -> dict[str, list[NDArray[Any]]]:
        """Return the columns "candidates" (token spans, best first) and "scores"."""
        return candidates.find("meta-learned", fitted, passages, self.max_words, self.overlap)

    def select(self, passage: Passage, rng: np.random.Generator) -> Spans:
        """Draw one of the `top_k` best candidates; no span if the passage has no word."""
        return candidates.draw(passage, self.top_k, rng)
