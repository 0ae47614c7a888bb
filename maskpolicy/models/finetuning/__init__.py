"""The heads of each kind of task: how they are fine-tuned, and how they answer.

Models score minimal pairs without fine-tuning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from maskpolicy.core.types import Example
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.task_kinds import (
    LABEL,
    PAIRS,
    SPAN,
    TAGS,
    TEXT,
    AnswerParams,
    HeadParams,
)
from maskpolicy.models.finetuning import pair_scores, text
from maskpolicy.models.finetuning.encoder_tasks import LabelTask, SpanTask
from maskpolicy.models.finetuning.tag_tasks import TagTask
from maskpolicy.models.training.batching import Loss
from maskpolicy.models.training.steps import Cut, ExampleSteps


@dataclass(frozen=True)
class Answering:
    """How models answer one kind of task; the fields are names of its module or class."""

    load: Callable[[Path], Any]
    """(folder) -> a model that answers"""
    answer: Callable[..., list[str]]
    """(model, tokenizer, examples, params, spec, progress) -> a prediction for each example"""


@dataclass(frozen=True)
class Head(Answering):
    """How models answer one kind of task after fine-tuning, and how they are fine-tuned."""

    start: Callable[[Path, Sequence[Example], int], Any]
    """(folder, train examples, seed) -> the pre-trained model with a fresh head"""
    steps: Callable[[Any, Any, Sequence[Example], Training, AnswerParams], ExampleSteps]
    """(model, tokenizer, examples, spec, params)"""
    loss: Loss
    training_loss: Callable[[], Loss]  # called once for each training: an equal loss, faster
    cuts: Callable[[Any, Sequence[Example], Training, HeadParams, bool], list[Cut]]
    """(tokenizer, examples, spec, params, whether they are trained on) -> texts that are cut"""


def _head(task: Any) -> Head:
    return Head(**{field.name: getattr(task, field.name) for field in fields(Head)})


TASK_HEADS: Mapping[str, Head] = {
    TEXT: _head(text),
    LABEL: _head(LabelTask()),
    SPAN: _head(SpanTask()),
    TAGS: _head(TagTask()),
}
ANSWERING: Mapping[str, Answering] = {
    **TASK_HEADS,
    PAIRS: Answering(pair_scores.load, pair_scores.answer),
}
