"""Cross-entropy over a vocabulary that computes its gradient in the forward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

_SMALLEST = 1e-30  # likelihood whose logarithm is exact in single precision


class _Summed(torch.autograd.Function):
    """Sum of -log softmax(states @ weight.T + bias)[label]; differentiable once.

    PyTorch's cross-entropy keeps the logits in single precision and reads them several more times
    in the backward pass. This function keeps one array, in the precision of the states: the
    gradient of the logits (softmax minus one-hot), which the forward pass computes anyway.
    """

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor
    ) -> Tensor:
        value, gradient = with_gradient(states, weight, bias, labels)
        ctx.save_for_backward(states, weight, gradient)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor, Tensor, None, None]:
        states, weight, gradient = ctx.saved_tensors
        scale = scale.to(states.dtype)
        return (gradient @ weight) * scale, gradient.t() @ (states * scale), None, None


def with_gradient(
    states: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the summed cross-entropy, and its gradient by the logits, (n, v)."""
    logits, places = linear(states, weight, bias).float(), labels[:, None]
    gradient = logits.softmax(1)
    likelihoods = gradient.gather(1, places)
    if states.is_cuda or bool((likelihoods < _SMALLEST).any()):  # the GPU is not waited for
        losses = logits.logsumexp(1, keepdim=True) - logits.gather(1, places)
    else:
        losses = -likelihoods.log()
    gradient.scatter_(1, places, likelihoods - 1)
    return losses.sum(), gradient.to(states.dtype)


def summed(states: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> Tensor:
    """Return the summed cross-entropy of n labels, a scalar in single precision.

    Shapes: states (n, d), weight (v, d), bias (v,) or None, labels (n,) of int64. The bias receives
    no gradient.
    """
    apply: Callable[..., Tensor] = _Summed.apply
    return apply(states, weight, bias, labels)
