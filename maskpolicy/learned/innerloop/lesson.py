"""What an inner loop is given: its settings, and the rows that it learns from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from maskpolicy.schema import Count, Positive
from maskpolicy.training.batching import Batch

BETAS, EPS, DECAY = (0.9, 0.999), 1e-8, 0.01  # PyTorch's defaults; decay: of AdamW alone


@dataclass(frozen=True)
class Inner:
    """The inner loop of an episode; its optimizer starts afresh in every episode."""

    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"  # its state starts afresh in each episode
    lr: Positive = 0.01  # of the steps on the masked passage
    query_lr: Positive = 0.01  # of the steps on the query
    steps: Count = 1  # on the masked passage
    query_steps: Count = 1  # on the query


@dataclass(frozen=True, eq=False)
class Lesson:
    """What one set of fast weights learns from, and what it is examined on."""

    candidates: Batch  # (r, ..) one row for each candidate
    query: Batch
    held: Batch
