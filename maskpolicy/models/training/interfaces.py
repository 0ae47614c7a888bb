"""Interfaces of the training loop: steps, losses, checkpoints, and callbacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

    from maskpolicy.experiment.budgets import Training

Loss = Callable[[Any, Any], "tuple[torch.Tensor, int]"]
"""loss(module, micro-batch) -> (sum over units, number of units); mostly, a unit is a token."""


@dataclass(frozen=True)
class Step:
    """Data of one optimizer step: micro-batches, their number of units, and the work counted."""

    batches: Sequence[Any]  # each has .to(device)
    units: int  # over all micro-batches; the loss is divided by it
    work: Mapping[str, int] = field(default_factory=dict)  # e.g. passages, hidden_tokens
    tokens: int = 0  # that the model reads and writes, without padding; 0: not counted


@dataclass(frozen=True)
class Start:
    """Where a part of a training begins; the default is the beginning of the training."""

    done: int = 0  # steps of the parts before
    state: Path | None = None  # the folder to which the part before wrote its state
    work: Mapping[str, int] = field(default_factory=dict)  # done for this part before its steps


class StepCheckpoints(Protocol):
    """Saves and finds the state of a running stage (see store.checkpoints.Checkpoints)."""

    def save(self, step: int, write: Callable[[Path], None]) -> None: ...  # noqa: D102
    def latest(self) -> tuple[int, Path] | None: ...  # noqa: D102


Keep = Callable[[Any, Mapping[str, int], float], None]
"""keep(module, work, loss): receives a copy of the module in training, and the recent mean loss."""

Progress = Callable[[int, int, str], None]
"""progress(done, total, note): called before the first step and after each step."""


class Trains(Protocol):
    """Trains modules with the checkpoints, progress and tracker of a stage."""

    def train(
        self, module: Any, steps: Callable[[int], Step], loss: Loss, spec: Training, **more: Any
    ) -> dict[str, Any]:
        """Train `module` in place and return the result of `training.loop.train`."""

    def progress(self, done: int, total: int, note: str = "") -> None:
        """Report that `done` of `total` units are finished."""
