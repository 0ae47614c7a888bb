"""The head of a task, and how examples are answered: parameters in the keys of stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from maskpolicy.core.schema import omitted
from maskpolicy.experiment.task_kinds import TEXT


def _writes_text(params: Any) -> bool:
    return bool(params.head == TEXT)


@dataclass(frozen=True, kw_only=True)
class HeadParams:
    """The head of a task, and what its answers may be."""

    head: str = omitted(TEXT)  # a kind of task
    unanswerable: bool = omitted(False, _writes_text)  # span tasks: "" is an answer
    # text tasks: write an answer, or take the likeliest choice
    choose: Literal["generate", "likelihood"] = omitted("generate")


@dataclass(frozen=True, kw_only=True)
class AnswerParams(HeadParams):
    """HeadParams, and the side of a source that truncation keeps."""

    keep: Literal["start", "end"]
