"""Mask likely answers, found by a reader that never sees the question (Ye et al. 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from maskpolicy import Count, DataError, Json, Passage, Spans, policy
from maskpolicy.models.learned import Context, Contexts, Tools, Training, candidates, hits

DROPOUT = 0.1  # of the reader, unless the budget `fit` sets `dropout`


@policy("supervised", target="spans")
@dataclass(frozen=True)
class Supervised:
    """Mask a span that looks like an answer of `train_on` (Ye et al. 2021: +Supervised).

    It is one of the `top_k` best spans, drawn with probability proportional to exp(score).
    """

    train_on: tuple[str, ...]  # task names, or labels of the experiment's columns
    top_k: Count = 1  # draw the masked span from this many best spans
    max_words: Count = 10  # maximum number of words in a span
    hidden: Count = 128  # hidden size of the LSTM in each direction
    # span: one softmax over spans; start-end: one over first tokens, one over last (the paper)
    loss: Literal["span", "start-end"] = "span"
    overlap: bool = False  # allow the best spans to overlap, as in the paper
    only_select: ClassVar = ("top_k",)  # fields that neither fit nor annotate reads

    def __post_init__(self) -> None:
        """Raise ConfigError for an empty `train_on`, or a `top_k` or `max_words` too large."""
        candidates.check(self.train_on, self.top_k, self.max_words)

    def fit(self, data: Sequence[Contexts], spec: Training, out: Path, tools: Tools) -> Json:
        """Train the reader on contexts that hold an answer and keep the best on dev.

        Raises DataError if no context holds an answer of at most `max_words` words.
        """
        from maskpolicy.models.learned import extractor, windows

        held = [context for task in data for context in hits.answered(task.train)]
        cuts = windows.cut_all([(one.passage, one.answers) for one in held], self.max_words)
        if not cuts:
            raise DataError(_nothing(data, self.max_words))
        embeddings = tools.embeddings()
        dropout = DROPOUT if spec.dropout is None else spec.dropout
        reader = extractor.build(embeddings, spec.seed, self.hidden, dropout)
        dev = [context for task in data for context in hits.answered(task.dev)]
        done = tools.train(
            reader,
            windows.WindowSteps(cuts, spec),
            extractor.loss(self.max_words) if self.loss == "span" else extractor.start_end_loss,
            spec,
            validate=(lambda module: self._reciprocal_rank(module, dev)) if dev else None,
        )
        reader.save(out)
        return {"windows": len(cuts), **{name: done[name] for name in sorted(done)}}

    def _reciprocal_rank(self, reader: Any, dev: Sequence[Context]) -> float:
        """Return the mean reciprocal rank of the first correct candidate; 0 if there is none."""
        from maskpolicy.models.learned import windows

        reader.eval()
        passages = [context.passage for context in dev]
        found = windows.candidates(reader, passages, candidates.KEPT, self.max_words, self.overlap)
        ranks = [hits.rank(context, spans) for context, (spans, _) in zip(dev, found, strict=True)]
        return float(np.mean([1 / (1 + place) for place in ranks]))

    def annotate(
        self, passages: Sequence[Passage], fitted: Path | None = None
    ) -> dict[str, list[NDArray[Any]]]:
        """Return the columns "candidates" (token spans, best first) and "scores"."""
        return candidates.find("supervised", fitted, passages, self.max_words, self.overlap)

    def select(self, passage: Passage, rng: np.random.Generator) -> Spans:
        """Draw one of the `top_k` best candidates; no span if the passage has no word."""
        return candidates.draw(passage, self.top_k, rng)


def _nothing(data: Sequence[Contexts], max_words: int) -> str:
    if held := sum(len(hits.answered(task.train)) for task in data):
        return (
            f"policy supervised: every answer in {held} contexts has more than {max_words} words: "
            "there is nothing to learn from; raise max_words"
        )
    counts = ", ".join(f"0 of {len(task.train)} contexts of {task.name}" for task in data)
    return (
        f"policy supervised: no answer occurs in its context ({counts}): there is nothing to learn "
        "from; train on a task whose answers occur in their contexts"
    )
