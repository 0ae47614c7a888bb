"""Hide what it helps to have recovered before a question is learnt (Ye et al. 2021, Figure 2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
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
    policy,
)
from maskpolicy.learned import (
    Contexts,
    Specials,
    Tools,
    Training,
    bounded,
    candidates,
    episodes,
    hits,
    innerloop,
    meta,
)

LEAST = 0.2  # share of contexts that must hold an answer for a supervised start on the same tasks


@dataclass(frozen=True)
class Outer:
    """The outer loop: training of the policy; what is not here is as in the budget `fit`."""

    steps: Steps = 100  # steps of the outer loop
    episodes: Count = 8  # episodes in an outer step
    lr: Positive = 1e-3  # peak learning rate of the policy
    warmup: Steps = 10  # outer steps of linear warm-up; left out and steps few: a tenth of them
    eval_every: Steps = 25  # outer steps between two looks at dev; 0: none
    dev: Count = 64  # most questions of dev that are looked at


@policy("meta-learned", target="spans")
@dataclass(frozen=True)
class MetaLearned:
    """Hide the span whose recovery helps most in learning `train_on` (+Meta-learned).

    The best one, or one of the `top_k` best, drawn with probability proportional to exp(score).
    """

    train_on: tuple[str, ...]  # tasks: names, or labels of the experiment's columns
    init: str | dict[str, Any] = "supervised"  # what it starts from; a name: on the same tasks
    # the same gradient, by our rule or by the library `higher`
    backend: Literal["functional", "higher"] = "functional"
    top_k: Count = 1  # best spans of a passage that one is drawn from
    max_words: Count = 10  # most words of a span
    episode: episodes.Episode = field(default_factory=episodes.Episode)
    inner: innerloop.Inner = field(default_factory=innerloop.Inner)
    outer: Outer = field(default_factory=Outer)
    only_select: ClassVar = ("top_k",)  # what neither fit nor annotate reads
    fits_to_how: ClassVar = True

    def __post_init__(self) -> None:
        """Refuse no task at all, nothing to start from, and too many candidates."""
        candidates.check(self.train_on, self.top_k, self.max_words)
        if not self.init:
            raise ConfigError("init: is empty: name a learned policy")
        if (compared := self.episode.candidates) > candidates.MOST:
            raise ConfigError(
                f"episode.candidates: must be at most {candidates.MOST}, not {compared}"
            )

    def fit(self, data: Sequence[Contexts], spec: Training, out: Path, tools: Tools) -> Json:
        """Train the initial policy by episodes; what is best on dev stays, be it the initial one.

        Raises ConfigError for a start that has too little to learn from, DataError where no
        question is of use.
        """
        from maskpolicy.learned import extractor

        if tools.init is None:
            raise ConfigError("policy meta-learned: what it starts from was not fitted: give init")
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
        reader.dropout.p = 0.0  # chance enters by the relaxation's noise alone
        judged = bool(examined and loss.spec.eval_every)
        before = validate(initial) if judged else -math.inf
        done = tools.train(reader, steps, loss, loss.spec, validate=validate if judged else None)
        learnt = not judged or done.get("best_score", -math.inf) > before
        (reader if learnt else initial).save(out)
        facts: dict[str, Json] = {"questions": len(train), "initial_stays": not learnt}
        facts |= {"initial_score": before} if judged else {}
        return facts | {name: done[name] for name in sorted(done)}

    def _check_start(self, data: Sequence[Contexts]) -> None:
        """Refuse a start on the same tasks where too few contexts hold an answer."""
        if not isinstance(self.init, str):
            return
        contexts = [context for task in data for context in task.train]
        share = len(hits.answered(contexts)) / max(1, len(contexts))
        if share < LEAST:
            raise ConfigError(
                f"policy meta-learned: init: {self.init} would learn from "
                f"{', '.join(self.train_on)}, where {share:.1%} of {len(contexts)} contexts hold "
                f"an answer, not {LEAST:.0%}: start from a policy that is learnt on another task, "
                f"e.g. init: {{name: {self.init}, train_on: [triviaqa]}}"
            )

    def _loss(self, spec: Training, tools: Tools) -> meta.EpisodeLoss:
        """Return the episode's loss; its spec is the outer loop's."""
        from maskpolicy.learned import windows

        # eager: sdpa has no second derivative; fp32: rounding to bf16 would swallow inner steps
        model = tools.load_model(attn_implementation="eager")
        outer: dict[str, Any] = {k: v for k, v in asdict(self.outer).items() if k != "dev"}
        outer |= {"batch_size": outer.pop("episodes"), "precision": "fp32", "patience": 0}
        return meta.EpisodeLoss(
            model.eval(),
            lambda reader, passages, k: windows.rank(reader, passages, k, self.max_words),
            tools.how,
            self.episode,
            self.inner,
            self.backend,
            Specials.of(tools.load_tokenizer(), model.config.decoder_start_token_id),
            bounded(replace(spec, **outer), model),
        )

    def _questions(
        self, data: Sequence[Contexts], split: str, loss: meta.EpisodeLoss, tokenizer: Any
    ) -> list[episodes.Question]:
        found: list[episodes.Question] = []
        for task in data:
            contexts = getattr(task, split)
            found += episodes.questions(contexts, task.task, tokenizer, loss.specials, loss.spec)
        return episodes.usable(found, self.episode)

    def annotate(
        self, passages: Sequence[Passage], fitted: Path | None = None
    ) -> dict[str, list[NDArray[Any]]]:
        """Return the columns "candidates", token spans with the best first, and "scores"."""
        return candidates.find("meta-learned", fitted, passages, self.max_words)

    def select(self, passage: Passage, rng: np.random.Generator) -> Spans:
        """Draw one of the best candidates; none where the passage has no word."""
        return candidates.draw(passage, self.top_k, rng)
