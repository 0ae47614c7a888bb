"""Span tasks: the answer is a part of the context, read in windows that overlap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maskpolicy.core.ragged import Ragged
from maskpolicy.core.types import Example
from maskpolicy.data.corpus.passages import encode
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.task_kinds import SPAN, TASK_KINDS
from maskpolicy.models.finetuning import encoder_inputs
from maskpolicy.models.finetuning.encoder_inputs import TwoTexts, batches, outputs, tuned, with_head
from maskpolicy.models.finetuning.head_params import AnswerParams, HeadParams
from maskpolicy.models.training.batching import Batch, Pairs
from maskpolicy.models.training.interfaces import Progress
from maskpolicy.models.training.specials import Specials
from maskpolicy.models.training.steps import Cut, ExampleSteps, tokenize

if TYPE_CHECKING:
    import torch

AUTO_CLASS = TASK_KINDS[SPAN].auto_class
_OVERLAP = 128  # tokens that two windows share at most (BERT's and RoBERTa's stride)
_LONGEST = 30  # tokens of an answer, as in BERT's evaluation
_NOTHING = (0, 0)  # the place that means "no answer here": <s>
load = partial(tuned, AUTO_CLASS)


@dataclass(frozen=True, eq=False)
class _Window:
    """One window of an example: its input, and where its context tokens lie in the text."""

    example: int
    source: NDArray[np.int32]
    first: int  # index in source of its first context token
    offsets: NDArray[np.int32]  # (k, 2) characters of the context


def start(folder: Path, examples: Sequence[Example], seed: int) -> Any:
    """Return the encoder with Transformers' head for extractive question answering."""
    return with_head(AUTO_CLASS, folder, seed)


def steps(
    model: Any, tokenizer: Any, examples: Sequence[Example], spec: Training, params: AnswerParams
) -> ExampleSteps:
    """Return the steps over windows with the first answer's place, or <s> where it is not."""
    marks = Specials.of_encoder(tokenizer)
    windows = list(_windows(examples, tokenizer, spec))
    places = [np.asarray(_place(window, examples[window.example])) for window in windows]
    sources = Ragged.of((window.source for window in windows), np.int32)
    return ExampleSteps(Pairs(sources, Ragged.of(places, np.int32)), marks, spec)


def loss(model: Any, batch: Batch) -> tuple[torch.Tensor, int]:
    """Return the summed cross-entropies of start and end, two for each window."""
    return _loss_of(_logits(model, batch), batch)


training_loss = encoder_inputs.training_loss(
    loss,
    lambda model, states, batch: _loss_of(_without_padding(model.qa_outputs(states), batch), batch),
)


def _loss_of(logits: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, int]:
    from torch.nn.functional import cross_entropy

    return cross_entropy(logits, batch.labels, reduction="sum"), batch.labels.numel()


def answer(
    model: Any,
    tokenizer: Any,
    examples: Sequence[Example],
    params: AnswerParams,
    spec: Training,
    progress: Progress | None = None,
) -> list[str]:
    """Return the best span of each example's windows.

    params.unanswerable allows "": where <s> scores above every span, in each window.
    """
    import torch

    marks = Specials.of_encoder(tokenizer)
    windows = list(_windows(examples, tokenizer, spec))
    best = [(-np.inf, "")] * len(examples)
    nothing = [np.inf] * len(examples)
    sources = Ragged.of((window.source for window in windows), np.int32)
    for chosen, batch in batches(model, sources, marks, progress):
        with torch.inference_mode():
            logits = _logits(model, batch).cpu().numpy()
        for index, scores in zip(chosen, logits, strict=True):
            window = windows[index]
            found = _best(window, scores, examples[window.example].context or "")
            best[window.example] = max(best[window.example], found, key=lambda pair: pair[0])
            none = float(scores[0].sum())
            nothing[window.example] = min(nothing[window.example], none)
    return [
        "" if params.unanswerable and none > score else text
        for (score, text), none in zip(best, nothing, strict=True)
    ]


def cuts(
    tokenizer: Any, examples: Sequence[Example], spec: Training, params: HeadParams, training: bool
) -> list[Cut]:
    """Count the questions that lose an end; contexts are read whole, window by window."""
    questions = tokenize([example.source for example in examples], tokenizer)
    most = _room(spec, TwoTexts.of(tokenizer)) // 2
    return [Cut.of("questions", questions.lengths, most, "max_source")]


def _logits(model: Any, batch: Batch) -> torch.Tensor:
    """Return the scores of start and end, (b, n, 2); padding scores as low as can be."""
    import torch

    out = outputs(model, batch)
    return _without_padding(torch.stack([out.start_logits, out.end_logits], dim=2), batch)


def _without_padding(logits: torch.Tensor, batch: Batch) -> torch.Tensor:
    import torch

    both = logits.float()
    return both.masked_fill(~batch.seen[:, :, None], torch.finfo(both.dtype).min)


def _windows(examples: Sequence[Example], tokenizer: Any, spec: Training) -> Iterator[_Window]:
    """Yield the windows of each example; a question takes half of the room at most."""
    questions = tokenize([example.source for example in examples], tokenizer)
    contexts = encode([example.context or "" for example in examples], tokenizer)
    both = TwoTexts.of(tokenizer)
    room = _room(spec, both)
    for number, (question, context) in enumerate(zip(questions, contexts, strict=True)):
        question = question[: room // 2]
        size = room - len(question)
        ids = np.asarray(context.ids, np.int32)
        offsets = np.asarray(context.offsets, np.int32).reshape(-1, 2)
        step = size - min(_OVERLAP, size // 2)
        for begin in range(0, max(1, len(ids)), step):
            end = begin + size
            source = both.joined(question, ids[begin:end])
            yield _Window(number, source, both.offset(question), offsets[begin:end])
            if end >= len(ids):
                break


def _room(spec: Training, both: TwoTexts) -> int:
    return max(2, spec.max_source - len(both))


def _place(window: _Window, example: Example) -> tuple[int, int]:
    """Return the first and last token of the answer in a window that holds it whole."""
    begin = example.start
    if begin is None or not len(window.offsets):
        return _NOTHING
    end = begin + len(example.targets[0])
    if begin < window.offsets[0, 0] or end > window.offsets[-1, 1]:
        return _NOTHING
    first = int(np.searchsorted(window.offsets[:, 1], begin, side="right"))
    last = int(np.searchsorted(window.offsets[:, 0], end, side="left")) - 1
    return (window.first + first, window.first + last) if first <= last else _NOTHING


def _best(window: _Window, scores: NDArray[Any], context: str) -> tuple[float, str]:
    """Return score and text of the best span of context tokens, at most _LONGEST long."""
    count = len(window.offsets)
    if not count:
        return -np.inf, ""
    starts, ends = scores[window.first : window.first + count].T
    table = np.triu(starts[:, None] + ends[None, :])
    allowed = np.triu(np.ones((count, count), bool)) & ~np.triu(
        np.ones((count, count), bool), _LONGEST
    )
    table = np.where(allowed, table, -np.inf)
    i, j = np.unravel_index(int(table.argmax()), table.shape)
    text = context[window.offsets[i, 0] : window.offsets[j, 1]].strip()
    return float(table[i, j]), text
