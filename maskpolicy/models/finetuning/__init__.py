"""What a task's kind decides: the head that is fine-tuned, its steps and loss, and its answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from maskpolicy.core.types import Example
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.task_kinds import LABEL, SPAN, TEXT, AnswerParams, HeadParams
from maskpolicy.models.finetuning import text
from maskpolicy.models.finetuning.encoder_tasks import LabelTask, SpanTask
from maskpolicy.models.training.batching import Loss
from maskpolicy.models.training.steps import Cut, ExampleSteps


@dataclass(frozen=True)
class Head:
    """One kind of task; the fields are names of its module or class."""

    start: Callable[[Path, Sequence[Example], int], Any]
    """(folder, train examples, seed) -> the pre-trained model with a fresh head"""
    load: Callable[[Path], Any]
    """(folder) -> a fine-tuned model"""
    steps: Callable[[Any, Any, Sequence[Example], Training, AnswerParams], ExampleSteps]
    """(model, tokenizer, examples, spec, params)"""
    loss: Loss
    training_loss: Callable[[], Loss]  # called once for each training: an equal loss, faster
    answer: Callable[..., list[str]]
    """(model, tokenizer, examples, params, spec, progress) -> a prediction for each example"""
    cuts: Callable[[Any, Sequence[Example], Training, HeadParams, bool], list[Cut]]
    """(tokenizer, examples, spec, params, whether they are trained on) -> texts that are cut"""


def _head(task: Any) -> Head:
    return Head(**{field.name: getattr(task, field.name) for field in fields(Head)})


TASK_HEADS: Mapping[str, Head] = {
    TEXT: _head(text),
    LABEL: _head(LabelTask()),
    SPAN: _head(SpanTask()),
}
