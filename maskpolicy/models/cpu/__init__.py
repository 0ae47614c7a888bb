"""The loss of a training; on a CPU, BART and RoBERTa have a backward pass of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import torch

    from maskpolicy.models.cpu.layers import Gradients
    from maskpolicy.models.training.batching import Batch, Loss

Finder: TypeAlias = "Callable[[Any, Any], Gradients | None]"
"""find(`cpu.backpropagation`, module) -> the module's gradients; None for one that is not known.

Raises LookupError for weights that are frozen or not in a training.
"""


class TrainingLoss:
    """A loss within one training, for which known models have a backward pass of their own."""

    def __init__(self, loss: Loss, find: Finder) -> None:
        """Take the loss that autograd differentiates, and what finds a model's gradients."""
        self._loss, self._find = loss, find
        self._is_begun = False
        self._gradients: Gradients | None = None

    def __call__(self, module: Any, batch: Batch) -> tuple[torch.Tensor, int]:
        """Return the summed loss of a batch and its units.

        The module and the tensors of its weights and gradients are the same in all calls.
        """
        import torch

        if torch.compiler.is_compiling():
            return self._loss(module, batch)
        if not self._is_begun:
            self._is_begun, self._gradients = True, self._found(module)
        if self._gradients is None:
            return self._loss(module, batch)
        from maskpolicy.models.cpu.layers import with_gradients

        return with_gradients(self._gradients, batch)

    def _found(self, module: Any) -> Gradients | None:
        if next(module.parameters()).device.type != "cpu":
            return None
        from maskpolicy.models.cpu import backpropagation

        try:
            return self._find(backpropagation, module)
        except LookupError:
            return None
