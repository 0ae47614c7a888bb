"""The heads of each kind of task: how they are fine-tuned, and how they answer.

Models score minimal pairs without fine-tuning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maskpolicy.experiment.task_kinds import LABEL, PAIRS, SPAN, TAGS, TEXT
from maskpolicy.models.finetuning import pair_scores, text
from maskpolicy.models.finetuning.encoder_tasks import LabelTask, SpanTask
from maskpolicy.models.finetuning.tag_tasks import TagTask

TASK_HEADS: Mapping[str, Any]
TASK_HEADS = {TEXT: text, LABEL: LabelTask(), SPAN: SpanTask(), TAGS: TagTask()}
"""By kind of task, a module or an object with these functions:

start(folder, train examples, seed) -> the pre-trained model with a fresh head
steps(model, tokenizer, examples, spec, params) -> ExampleSteps
loss(model, batch), and training_loss() -> an equal loss, faster; called once for each training
cuts(tokenizer, examples, spec, params, whether they are trained on) -> texts that are cut
load(folder) -> a model that answers
answer(model, tokenizer, examples, params, spec, progress) -> a prediction for each example
"""
ANSWERING: Mapping[str, Any] = {**TASK_HEADS, PAIRS: pair_scores}
"""By kind of task, a module or an object with `load` and `answer`."""
