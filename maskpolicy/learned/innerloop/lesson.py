"""The inputs of an inner loop: its settings and its batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from maskpolicy.schema import Count, Positive
from maskpolicy.training.batching import Batch

BETAS, EPS, DECAY = (0.9, 0.999), 1e-8, 0.01  # PyTorch's defaults; DECAY: only AdamW


@dataclass(frozen=True)
class Inner:
    """Settings of the inner loop of an episode.

    `query_lr` and `query_steps` are of the steps on the question, which is in MAML's support set.
    """

    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"  # its state is reset for each episode
    lr: Positive = 0.01  # learning rate of the steps on the masked passage
    query_lr: Positive = 0.01  # learning rate of the steps on the question
    steps: Count = 1  # number of steps on the masked passage
    query_steps: Count = 1  # number of steps on the question


@dataclass(frozen=True, eq=False)
class Lesson:
    """The batches of one set of fast weights: two for the inner steps, one for the outer loss.

    The names are MAML's (Finn et al. 2017), whose support set is `candidates` and `support`.
    """

    candidates: Batch  # (r, ..) one row per masked candidate
    support: Batch  # the questions of the inner steps
    query: Batch  # the questions of the outer loss
