"""Cross-entropy over a vocabulary that computes its gradient in the forward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import cross_entropy, linear

_IGNORE = -100  # label without loss, as in PyTorch
_SMALLEST = 1e-30  # likelihood whose logarithm is exact in single precision


class _Summed(torch.autograd.Function):
    """Sum of -log softmax(states @ weight.T + bias)[label]; differentiable once.

    PyTorch's cross-entropy keeps the logits in single precision and reads them several times in the
    backward pass. This function keeps only the gradient of the logits (softmax minus one-hot), in
    the precision of the states; the forward pass computes it anyway.
    """

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        of_labels: Tensor | None,
    ) -> Tensor:
        value, gradient = with_gradient(states, weight, bias, labels, of_labels)
        ctx.save_for_backward(states, weight, gradient)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        states, weight, gradient = ctx.saved_tensors
        scale = scale.to(states.dtype)
        return (gradient @ weight) * scale, gradient.t() @ (states * scale), None, None, None


def with_gradient(
    states: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    of_labels: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the summed cross-entropy, and its gradient by the logits, (n, v); see `summed`."""
    is_device = states.is_cuda or torch.compiler.is_compiling()  # the host does not wait for a GPU
    if is_device or bool((labels == _IGNORE).any()):
        is_label = (labels != _IGNORE).float()
        of_labels = is_label if of_labels is None else of_labels * is_label
        labels = labels.clamp(min=0)
    logits, places = linear(states, weight, bias).float(), labels[:, None]
    gradient = logits.softmax(1)
    likelihoods = gradient.gather(1, places)
    if is_device or bool((likelihoods < _SMALLEST).any()):
        losses = logits.logsumexp(1, keepdim=True) - logits.gather(1, places)
    else:
        losses = -likelihoods.log()
    gradient.scatter_(1, places, likelihoods - 1)
    if of_labels is not None:
        losses, gradient = losses * of_labels[:, None], gradient * of_labels[:, None]
    return losses.sum(), gradient.to(states.dtype)


def summed(
    states: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    of_labels: Tensor | None = None,
) -> Tensor:
    """Return the summed cross-entropy of n labels, a scalar in single precision.

    Shapes: states (n, d), weight (v, d), bias (v,) or None, labels (n,) of int64, and `of_labels`
    (n,), by which the losses are multiplied, or None. A label of -100 adds no loss. The bias
    receives no gradient.
    """
    apply: Callable[..., Tensor] = _Summed.apply
    return apply(states, weight, bias, labels, of_labels)


def of_logits(logits: Tensor, labels: Tensor, of_labels: Tensor | None) -> Tensor:
    """Return the summed cross-entropy of logits, (n, v), by PyTorch; see `summed`."""
    if of_labels is None:
        return cross_entropy(logits.float(), labels, reduction="sum")
    return cross_entropy(logits.float(), labels, reduction="none") @ of_labels
