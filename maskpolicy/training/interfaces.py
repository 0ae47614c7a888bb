"""What the training loop is given: steps, a loss, checkpoints, and callbacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

Loss = Callable[[Any, Any], "tuple[torch.Tensor, int]"]
"""loss(module, micro-batch) -> (sum over its units, number of units); a unit is a token mostly."""


@dataclass(frozen=True)
class Step:
    """What one optimizer step learns from: micro-batches, their units, and the work done."""

    batches: Sequence[Any]  # each has .to(device)
    units: int  # over all micro-batches: what the loss is divided by
    work: Mapping[str, int] = field(default_factory=dict)  # e.g. passages, hidden_tokens


class Checkpoints(Protocol):
    """Where a stage under way keeps its state (see store.Checkpoints)."""

    def save(self, step: int, write: Callable[[Path], None]) -> None: ...  # noqa: D102
    def latest(self) -> tuple[int, Path] | None: ...  # noqa: D102


Keep = Callable[[Any, Mapping[str, int], float], None]
"""keep(module, work, loss): is given a copy of a model on its way, and the mean of late losses."""

Progress = Callable[[int, int, str], None]
"""progress(done, total, note): told before the first step and after each."""
