"""The loss of a training; on a CPU, BART and RoBERTa have a backward pass of their own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import torch

    from maskpolicy.models.cpu.layers import Gradients
    from maskpolicy.models.training.batching import Batch, Loss

Make: TypeAlias = "Callable[[Any, Any], Gradients]"
"""make(`cpu.backpropagation`, module) -> the module's gradients.

Raises LookupError for an unknown module, and for weights that are frozen or not in a training.
"""


class TrainingLoss:
    """The loss of one training; on a CPU, known models have a backward pass of their own."""

    def __init__(self, loss: Loss, make: Make) -> None:
        """Take the loss that autograd differentiates, and the constructor of the gradients."""
        self._loss, self._make = loss, make
        self._is_begun = False
        self._gradients: Gradients | None = None

    def __call__(self, module: Any, batch: Batch) -> tuple[torch.Tensor, int]:
        """Return the summed loss of a batch and its units.

        The module and the tensors of its weights and gradients must be the same in all calls.
        """
        import torch

        if torch.compiler.is_compiling():
            return self._loss(module, batch)
        if not self._is_begun:
            self._is_begun = True
            if next(module.parameters()).device.type == "cpu":
                from maskpolicy.models.cpu import backpropagation

                with suppress(LookupError):
                    self._gradients = self._make(backpropagation, module)
        if self._gradients is None:
            return self._loss(module, batch)
        from maskpolicy.models.cpu.layers import with_gradients

        return with_gradients(self._gradients, batch)
