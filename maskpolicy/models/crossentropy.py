"""Cross-entropy over a vocabulary that computes its gradient in the forward pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import cross_entropy, linear, pad

from maskpolicy.core import hardware
from maskpolicy.models.training.batching import IGNORE

_SMALLEST = 1e-30  # likelihood whose logarithm is exact in single precision
_AT_ONCE = 1 << 27  # logits that are in a GPU's memory at a time
_ALIGNED = 64  # a vocabulary has a multiple of so many entries while a GPU computes with it


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
    of_labels: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Return the summed cross-entropy, and its gradient by the logits, (n, v); see `summed`."""
    is_traced = torch.compiler.is_compiling()  # a graph cannot read values
    if is_traced or bool((labels == IGNORE).any()):
        is_label = (labels != IGNORE).float()
        of_labels = is_label if of_labels is None else of_labels * is_label
        labels = labels.clamp(min=0)
    logits, places = linear(states, weight, bias).float(), labels[:, None]
    gradient = logits.softmax(1)
    likelihoods = gradient.gather(1, places)
    if is_traced or bool((likelihoods < _SMALLEST).any()):
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
    receives a gradient only if the loss is computed in chunks.
    """
    if in_chunks(states):
        has_gradient = torch.is_grad_enabled()
        return _operator(states, weight, bias, labels, of_labels, has_gradient)[0]
    apply: Callable[..., Tensor] = _Summed.apply
    return apply(states, weight, bias, labels, of_labels)


def in_chunks(states: Tensor) -> bool:
    """Return whether `summed` computes the loss of states in chunks: on a GPU."""
    return states.is_cuda


def chunked(
    states: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    of_labels: Tensor | None,
    has_gradient: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the value of `summed`, and its gradients by states, weight and bias.

    The logits of one chunk of labels exist at a time. Nothing is computed again in the backward
    pass. Without `has_gradient`, the gradients are 0.
    """
    size, is_label = len(weight), (labels != IGNORE).float()
    scales = is_label if of_labels is None else of_labels * is_label
    wide = pad(weight, (0, 0, 0, -size % _ALIGNED))
    by_states, by_weight = torch.zeros_like(states), torch.zeros_like(wide, dtype=torch.float32)
    loss, by_bias = scales.new_zeros(()), by_weight.new_zeros(len(wide))
    rows = max(1, _AT_ONCE // len(wide))
    is_large = states.is_cuda and len(states) > rows  # compilation takes seconds
    compute = _compiled() if is_large else _with_slopes
    parts = zip(*(each.split(rows) for each in (states, labels, scales, by_states)), strict=True)
    for part, own, scale, by_part in parts:
        value, slopes = compute(
            linear(part, wide), size, bias, own.clamp(min=0), scale, has_gradient
        )
        loss += value
        if has_gradient:
            by_part.copy_(slopes @ wide)
            by_weight += slopes.t() @ part
            if bias is not None:
                by_bias += slopes.sum(0, dtype=torch.float32)
    return loss, by_states, by_weight[:size].to(weight.dtype), by_bias[:size].to(weight.dtype)


def _with_slopes(
    logits: Tensor,
    size: int,
    bias: Tensor | None,
    labels: Tensor,
    scales: Tensor,
    has_gradient: bool,
) -> tuple[Tensor, Tensor]:
    """Return the summed cross-entropy of labels times `scales`, and its gradient by the logits.

    The logits, (n, v), lack the bias, and are padded after `size` columns. Without `has_gradient`,
    they are returned instead.
    """
    columns, places = torch.arange(logits.shape[1], device=logits.device), labels[:, None]
    whole = logits.float()
    if bias is not None:
        whole = whole + pad(bias, (0, logits.shape[1] - size))
    whole = whole.where(columns < size, -torch.inf)
    totals = whole.logsumexp(1, keepdim=True)
    losses = (totals - whole.gather(1, places))[:, 0] * scales
    if not has_gradient:
        return losses.sum(), logits
    slopes = ((whole - totals).exp() - (columns == places).float()) * scales[:, None]
    return losses.sum(), slopes.to(logits.dtype)


@cache
def _compiled() -> Callable[..., tuple[Tensor, Tensor]]:
    """Return `_with_slopes` compiled: it reads the logits twice instead of about twelve times."""
    return hardware.compiled(_with_slopes)


_operator: Any = torch.library.custom_op(  # a graph of torch.compile has it as one operation
    "maskpolicy::cross_entropy",
    chunked,
    mutates_args=(),
    schema="(Tensor states, Tensor weight, Tensor? bias, Tensor labels, Tensor? of_labels, "
    "bool has_gradient) -> (Tensor, Tensor, Tensor, Tensor)",
)


def _shapes(states: Tensor, weight: Tensor, *others: Any) -> tuple[Tensor, ...]:
    loss, by_bias = states.new_empty((), dtype=torch.float32), weight.new_empty(len(weight))
    return loss, torch.empty_like(states), torch.empty_like(weight), by_bias


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*output[1:])


@once_differentiable
def _backward(ctx: Any, scale: Tensor, *others: Any) -> tuple[Tensor | None, ...]:
    by_states, by_weight, by_bias = (each * scale.to(each.dtype) for each in ctx.saved_tensors)
    bias = by_bias if ctx.needs_input_grad[2] else None
    return by_states, by_weight, bias, None, None, None


_operator.register_fake(_shapes)
_operator.register_autograd(_backward, setup_context=_keep)


def of_logits(logits: Tensor, labels: Tensor, of_labels: Tensor | None) -> Tensor:
    """Return the summed cross-entropy of logits, (n, v), by PyTorch; see `summed`."""
    if of_labels is None:
        return cross_entropy(logits.float(), labels, reduction="sum")
    return cross_entropy(logits.float(), labels, reduction="none") @ of_labels
