"""The facts of each kind of task, which is the kind of its answers: one row for each.

The fine-tuned heads are in models.finetuning, the guesses without a model in data.majority.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from maskpolicy.core.errors import ConfigError, unknown
from maskpolicy.core.schema import omitted
from maskpolicy.experiment.definition import ENCODER, SEQ2SEQ, TaskBlock
from maskpolicy.plugins.discovery import find_plugin
from maskpolicy.plugins.registry import Registered

TEXT, LABEL, SPAN, TAGS, PAIRS = "text", "label", "span", "tags", "pairs"
Choose = Literal[
    "generate", "likelihood", "auto", "pll", "within_word_l2r", "enc_dec_mask", "enc_dec_prefix"
]
PAIR_SCORES: Mapping[str, tuple[Choose, ...]] = {
    ENCODER: ("pll", "within_word_l2r"),
    SEQ2SEQ: ("enc_dec_mask", "enc_dec_prefix"),
}
"""By kind of model, the ways to score a text of a pair; "auto" means the first."""


@dataclass(frozen=True)
class TaskKind:
    """The facts of one kind."""

    model: str  # the kind of model that does such tasks; "": both
    auto_class: str  # of Transformers, for the fine-tuned model; "": there is none
    hub: str  # the Hub's name of such tasks
    reads_context: bool = True  # whether the model always reads the context
    has_classes: bool = False  # whether answers are classes or numbers
    zero_shot: bool = False  # whether the pre-trained model answers, without train and dev


TASK_KINDS: Mapping[str, TaskKind] = {
    TEXT: TaskKind(SEQ2SEQ, "AutoModelForSeq2SeqLM", "text2text-generation", reads_context=False),
    LABEL: TaskKind(
        ENCODER, "AutoModelForSequenceClassification", "text-classification", has_classes=True
    ),
    SPAN: TaskKind(ENCODER, "AutoModelForQuestionAnswering", "question-answering"),
    TAGS: TaskKind(ENCODER, "AutoModelForTokenClassification", "token-classification"),
    PAIRS: TaskKind("", "", "fill-mask", zero_shot=True),
}


def kind_of(task: Registered) -> str:
    """Return the name of a registered task's kind; raises ConfigError for an unknown one."""
    name = task.facts.get("kind", TEXT)
    if name not in TASK_KINDS:
        where = f"{task.where}: @task({task.name!r})"
        raise ConfigError(f"{where}: {unknown('kind', name, TASK_KINDS)}")
    return str(name)


def is_zero_shot(task: TaskBlock) -> bool:
    """Return whether models do a task without fine-tuning."""
    return TASK_KINDS[kind_of(find_plugin("task", task.name))].zero_shot


@dataclass(frozen=True, kw_only=True)
class HeadParams:
    """The head of a task, and the form of its answers."""

    head: str = omitted(TEXT)  # a kind of task
    unanswerable: bool = omitted(
        False, lambda params: params.head == TEXT
    )  # span tasks: "" is an answer
    # text tasks: write an answer, or take the likeliest choice; pairs: one of PAIR_SCORES
    choose: Choose = omitted("generate")


@dataclass(frozen=True, kw_only=True)
class AnswerParams(HeadParams):
    """HeadParams, and the side of a source that truncation keeps."""

    keep: Literal["start", "end"]
