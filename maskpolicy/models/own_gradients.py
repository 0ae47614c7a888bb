"""Wrap the backward pass of a model's own layers (see `layers`) as a function of autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from maskpolicy.training.batching import Batch


class Gradients(Protocol):
    """A model whose weights `training.weights.Weights` holds."""

    weight: Tensor
    """Any of its weights."""

    def run(self, batch: Batch) -> tuple[Tensor, int, Callable[[float], None]]:
        """Return the summed loss of a batch, its units, and a callback.

        The callback adds the gradients of the loss times a number to those of the weights.
        """


class _Loss(torch.autograd.Function):
    """The loss as a function of any weight, whose backward pass adds the gradients of all."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, model: Gradients, batch: Batch) -> Any:
        loss, units, ctx.add = model.run(batch)
        return loss, units

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor, *_: Any) -> tuple[None, None, None]:
        add, ctx.add = ctx.add, None
        add(scale.item())
        return None, None, None


def with_gradients(model: Gradients, batch: Batch) -> tuple[Tensor, int]:
    """Return the summed loss of a batch and its units.

    Its backward pass adds the gradients of the model's weights to `weight.grad`, as autograd would.
    """
    apply: Callable[..., tuple[Tensor, int]] = _Loss.apply
    return apply(model.weight, model, batch)
