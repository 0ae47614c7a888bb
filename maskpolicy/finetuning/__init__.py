"""What a task's kind decides: the head that is fine-tuned, its steps and loss, and its answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskpolicy.config.budgets import Training
from maskpolicy.finetuning import label, span, text
from maskpolicy.finetuning.head_params import AnswerParams, HeadKind, HeadParams
from maskpolicy.models.text_to_text_loss import training_loss
from maskpolicy.training.interfaces import Loss
from maskpolicy.training.steps import Cut, ExampleSteps
from maskpolicy.types import Example


@dataclass(frozen=True)
class Head:
    """One kind of task."""

    start: Callable[[Path, Sequence[Example], int], Any]
    """(folder, train examples, seed) -> the pre-trained model with a fresh head"""
    open: Callable[[Path], Any]
    """(folder) -> a fine-tuned model"""
    steps: Callable[[Any, Any, Sequence[Example], Training, AnswerParams], ExampleSteps]
    """(model, tokenizer, examples, spec, params)"""
    loss: Loss
    training_loss: Callable[[], Loss]  # called once for each training: an equal loss, faster
    answer: Callable[..., list[str]]
    """(model, tokenizer, examples, params, spec, progress) -> a prediction for each example"""
    cuts: Callable[[Any, Sequence[Example], Training, HeadParams, bool], list[Cut]]
    """(tokenizer, examples, spec, params, whether they are trained on) -> texts that are cut"""


TASK_HEADS: Mapping[HeadKind, Head] = {
    "text": Head(
        text.start, text.load, text.steps, text.loss, training_loss, text.answer, text.cuts
    ),
    "label": Head(
        label.start,
        label.load,
        label.steps,
        label.loss,
        label.training_loss,
        label.answer,
        label.cuts,
    ),
    "span": Head(
        span.start, span.load, span.steps, span.loss, span.training_loss, span.answer, span.cuts
    ),
}
