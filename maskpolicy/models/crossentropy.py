"""Cross-entropy over a vocabulary that computes its gradient in the forward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear


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
        logits = linear(states, weight, bias).float()
        total = logits.logsumexp(1, keepdim=True)
        rows = torch.arange(len(labels), device=labels.device)
        loss = (total[:, 0] - logits[rows, labels]).sum()
        gradient = logits.sub_(total).exp_()
        gradient[rows, labels] -= 1
        ctx.save_for_backward(states, weight, gradient.to(states.dtype))
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor, Tensor, None, None]:
        states, weight, gradient = ctx.saved_tensors
        gradient = gradient * scale.to(gradient.dtype)
        return gradient @ weight, gradient.t() @ states, None, None


def summed(states: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> Tensor:
    """Return the summed cross-entropy of n labels, a scalar in single precision.

    Shapes: states (n, d), weight (v, d), bias (v,) or None, labels (n,) of int64. The bias receives
    no gradient.
    """
    apply: Callable[..., Tensor] = _Summed.apply
    return apply(states, weight, bias, labels)
