"""Attention with a backward pass of its own (see `layers`), and the layers of an encoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from maskpolicy.models.layers import Backward, FeedForward, Linear, Residual, dropout

_aten: Any = torch.ops.aten


@dataclass(frozen=True)
class Heads:
    """The heads of an attention."""

    count: int
    scale: float  # of the products of queries and keys
    probability: float  # of dropout of the attention's weights


class SelfAttention:
    """Multi-head attention of states to each other."""

    def __init__(self, heads: Heads, end: Residual, order: str, *inputs: torch.nn.Linear) -> None:
        """Take the layers of queries, keys and values; `order` is theirs, such as "qkv"."""
        self.heads, self.end, self.inputs = heads, end, Linear(*inputs)
        self.order = [order.index(name) for name in "qkv"]

    def __call__(self, states: Tensor, rows: int, mask: Tensor | None) -> tuple[Tensor, Backward]:
        """Return the next states; `mask`, (rows * heads, m, n) or less, is added to the scores."""
        made, to_made = self.inputs(states)
        parts = _split(made, rows, self.heads.count, 3)
        queries, keys, values = (parts[place] for place in self.order)
        found, to_found = _attend(queries, keys, values, mask, self.heads)
        output, to_output = self.end(_merge(found[None], rows), states)

        def backward(gradient: Tensor) -> Tensor:
            inner, total = to_output(gradient)
            slopes = torch.empty_like(parts)
            own = (slopes[place] for place in self.order)
            to_found(_split(inner, rows, self.heads.count, 1)[0], *own)
            return total.add_(to_made(_merge(slopes, rows)))

        return output, backward


class CrossAttention:
    """Multi-head attention of a decoder's states to the encoder's."""

    def __init__(
        self,
        heads: Heads,
        end: Residual,
        queries: torch.nn.Linear,
        keys: torch.nn.Linear,
        values: torch.nn.Linear,
    ) -> None:
        self.heads, self.end = heads, end
        self.queries, self.memory = Linear(queries), Linear(keys, values)

    def __call__(
        self, states: Tensor, memory: Tensor, rows: int, mask: Tensor | None
    ) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, Tensor]]]:
        """Return the next states; the callback returns the gradients of states and memory."""
        made, to_made = self.memory(memory)
        keys, values = _split(made, rows, self.heads.count, 2).unbind()
        asked, to_asked = self.queries(states)
        queries = _split(asked, rows, self.heads.count, 1)[0]
        found, to_found = _attend(queries, keys, values, mask, self.heads)
        output, to_output = self.end(_merge(found[None], rows), states)

        def backward(gradient: Tensor) -> tuple[Tensor, Tensor]:
            inner, total = to_output(gradient)
            parts, own = keys.new_empty(2, *keys.shape), torch.empty_like(queries)
            to_found(_split(inner, rows, self.heads.count, 1)[0], own, parts[0], parts[1])
            to_memory = to_made(_merge(parts, rows))
            return total.add_(to_asked(_merge(own[None], rows))), to_memory

        return output, backward


class Encoder:
    """The layers of an encoder: attention to all tokens that are seen, and feed-forward layers."""

    def __init__(self, layers: Sequence[tuple[SelfAttention, FeedForward]]) -> None:
        self.layers = layers

    def __call__(self, states: Tensor, seen: Tensor) -> tuple[Tensor, Backward]:
        """Return the last states, (rows * length, d); `seen`, (rows, length), is False at padding.

        The callback may be called once.
        """
        callbacks = []
        mask = padding_mask(seen, self.layers[0][0].heads, states.dtype)
        for attention, feed_forward in self.layers:
            states, to_attended = attention(states, len(seen), mask)
            states, to_states = feed_forward(states)
            callbacks += [to_attended, to_states]

        def backward(gradient: Tensor) -> Tensor:
            while callbacks:  # each holds arrays of its layer until it is gone
                gradient = callbacks.pop()(gradient)
            return gradient

        return states, backward


def padding_mask(seen: Tensor, heads: Heads, dtype: torch.dtype) -> Tensor | None:
    """Return the mask of tokens that are not `seen`, (rows * heads, 1, n); None if all are.

    It is added to the scores of attention.
    """
    if bool(seen.all()):
        return None
    mask = torch.zeros(seen.shape, dtype=dtype)
    mask.masked_fill_(~seen, torch.finfo(dtype).min)
    return mask.repeat_interleave(heads.count, 0)[:, None]


def _split(values: Tensor, rows: int, heads: int, parts: int) -> Tensor:
    """(rows * length, parts * d) to (parts, rows * heads, length, d / heads)."""
    width = values.shape[1] // (parts * heads)
    apart = values.view(rows, -1, parts, heads, width).permute(2, 0, 3, 1, 4)
    return apart.reshape(parts, rows * heads, -1, width)


def _merge(values: Tensor, rows: int) -> Tensor:
    """(parts, rows * heads, length, d / heads) to (rows * length, parts * d)."""
    parts, both, length, width = values.shape
    together = values.view(parts, rows, both // rows, length, width).permute(1, 3, 0, 2, 4)
    return together.reshape(rows * length, -1)


def _attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    heads: Heads,
) -> tuple[Tensor, Callable[[Tensor, Tensor, Tensor, Tensor], None]]:
    """Return the attended values for queries (k, m, w), keys and values (k, n, w).

    The callback (gradient, queries, keys, values) writes gradients into its last three arguments.
    """
    scores = _product(queries, keys.transpose(1, 2), heads.scale, mask)
    weights = scores.float().softmax(-1)  # softmax of short rows is slow in bf16
    used, to_used = dropout(weights.to(values.dtype), heads.probability)

    def backward(gradient: Tensor, to_queries: Tensor, to_keys: Tensor, to_values: Tensor) -> None:
        torch.bmm(used.transpose(1, 2), gradient, out=to_values)
        slopes = to_used(gradient @ values.transpose(1, 2)).float()
        slopes = _aten._softmax_backward_data(slopes, weights, -1, slopes.dtype)
        slopes = slopes.to(values.dtype)
        _product(slopes.transpose(1, 2), queries, heads.scale, out=to_keys)
        _product(slopes, keys, heads.scale, out=to_queries)

    return used @ values, backward


def _product(
    one: Tensor, other: Tensor, scale: float, mask: Tensor | None = None, out: Tensor | None = None
) -> Tensor:
    """Return the products of k pairs of matrices times `scale`, plus `mask`."""
    if mask is not None:
        return torch.baddbmm(mask, one, other, alpha=scale)
    if out is None:
        out = one.new_empty(len(one), one.shape[1], other.shape[2])
    return torch.baddbmm(out, one, other, beta=0, alpha=scale, out=out)
