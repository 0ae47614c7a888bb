"""Layers of BART in training, each with a backward pass of its own instead of autograd's.

As in Thinc, a layer returns its output and a callback, which takes the gradient of the output,
adds those of the layer's weights to `weight.grad`, and returns that of the input. In contrast to
autograd over Transformers' modules, gradients are added where they are stored, linear layers of
one input are one product, and heads are separated by one copy. States are (rows * length, d);
dropout draws the numbers that Transformers' modules would draw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding, gelu

Backward = Callable[[Tensor], Tensor]
_aten: Any = torch.ops.aten


class Linear:
    """Linear layers of one input as one product; their weights follow each other in memory."""

    def __init__(self, *layers: torch.nn.Linear) -> None:
        self.weight, self.weight_gradient = joined([layer.weight for layer in layers])
        self.bias, self.bias_gradient = joined([layer.bias for layer in layers])

    def __call__(self, inputs: Tensor) -> tuple[Tensor, Backward]:
        """Return the outputs of all layers, (n, k), side by side, for inputs (n, d)."""

        def backward(gradient: Tensor) -> Tensor:
            self.weight_gradient.addmm_(gradient.t(), inputs)
            self.bias_gradient.add_(gradient.sum(0))
            return gradient @ self.weight

        return torch.addmm(self.bias, inputs, self.weight.t()), backward


def joined(parameters: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return parameters as one tensor, and their gradients.

    Raises LookupError if one has no gradient, or they do not follow each other in memory, as those
    of `training.weights.Weights` do.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    if len(gradients) < len(parameters):
        raise LookupError("a weight has no gradient")
    return _as_one([p.detach() for p in parameters]), _as_one(gradients)


def _as_one(parts: Sequence[Tensor]) -> Tensor:
    if len(parts) == 1:
        return parts[0]
    place = parts[0].data_ptr()
    for part in parts:
        if part.data_ptr() != place or not part.is_contiguous():
            raise LookupError("weights do not follow each other in memory")
        place += part.nbytes
    shape = (sum(map(len, parts)), *parts[0].shape[1:])
    return parts[0].as_strided(shape, parts[0].stride())


def dropout(values: Tensor, probability: float) -> tuple[Tensor, Backward]:
    """Set values to 0 with a probability, and scale the others."""
    if not probability:
        return values, lambda gradient: gradient
    noise = torch.empty_like(values).bernoulli_(1 - probability).div_(1 - probability)
    return values * noise, lambda gradient: gradient * noise


class Norm:
    """LayerNorm."""

    def __init__(self, norm: torch.nn.LayerNorm) -> None:
        self.shape, self.eps = norm.normalized_shape, norm.eps
        self.weight, self.weight_gradient = joined([norm.weight])
        self.bias, self.bias_gradient = joined([norm.bias])

    def __call__(self, inputs: Tensor) -> tuple[Tensor, Backward]:
        """Return the normalized inputs, (n, d)."""
        output, mean, scale = torch.native_layer_norm(
            inputs, self.shape, self.weight, self.bias, self.eps
        )

        def backward(gradient: Tensor) -> Tensor:
            found: tuple[Tensor, Tensor, Tensor] = _aten.native_layer_norm_backward(
                gradient, inputs, self.shape, mean, scale, self.weight, self.bias, [True] * 3
            )
            self.weight_gradient.add_(found[1])
            self.bias_gradient.add_(found[2])
            return found[0]

        return output, backward


class Embedding:
    """The embeddings of tokens and positions of an encoder or decoder, LayerNorm and dropout."""

    def __init__(self, body: Any) -> None:
        self.tokens, self.table = body.embed_tokens, body.embed_positions
        self.probability = body.dropout
        self.weight, self.weight_gradient = joined([self.tokens.weight])
        self.places, self.places_gradient = joined([self.table.weight])
        self.norm = Norm(body.layernorm_embedding)

    def __call__(
        self, ids: Tensor, positions: Tensor | None = None, *, is_dropped: bool = True
    ) -> tuple[Tensor, Callable[[Tensor], None]]:
        """Return the states of tokens (rows, length) at positions of that shape, or else in order.

        The callback returns nothing.
        """
        (rows, length), scale = ids.shape, self.tokens.embed_scale
        if positions is None:
            positions = torch.arange(length)
        positions = positions + self.table.offset
        found = embedding(ids, self.weight)
        if scale != 1:
            found *= scale
        found += embedding(positions, self.places)
        normed, to_normed = self.norm(found.view(rows * length, -1))
        states, to_states = dropout(normed, self.probability if is_dropped else 0.0)

        def backward(gradient: Tensor) -> None:
            gradient = to_normed(to_states(gradient)).view(rows, length, -1)
            by_place = gradient if positions.ndim > 1 else gradient.sum(0)
            self.places_gradient.add_(_of_rows(by_place, positions, self.places))
            if scale != 1:
                gradient = gradient * scale
            padding = self.tokens.padding_idx
            self.weight_gradient.add_(_of_rows(gradient, ids, self.weight, padding))

        return states, backward


def _of_rows(gradient: Tensor, rows: Tensor, table: Tensor, padding: int = -1) -> Tensor:
    found: Tensor = _aten.embedding_dense_backward(gradient, rows, len(table), padding, False)
    return found


class Residual:
    """The end of each block: a linear layer, dropout, the residual connection and LayerNorm."""

    def __init__(
        self, linear: torch.nn.Linear, norm: torch.nn.LayerNorm, probability: float
    ) -> None:
        self.linear, self.norm, self.probability = Linear(linear), Norm(norm), probability

    def __call__(
        self, inner: Tensor, states: Tensor
    ) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, Tensor]]]:
        """Return the next states; the callback returns the gradients of `inner` and `states`."""
        made, to_made = self.linear(inner)
        dropped, to_dropped = dropout(made, self.probability)
        output, to_output = self.norm(dropped.add_(states))

        def backward(gradient: Tensor) -> tuple[Tensor, Tensor]:
            total = to_output(gradient)
            return to_made(to_dropped(total)), total

        return output, backward


class FeedForward:
    """The two linear layers of an encoder's or decoder's layer; the activation is ReLU or GELU."""

    def __init__(self, layer: Any) -> None:
        self.first = Linear(layer.fc1)
        self.end = Residual(layer.fc2, layer.final_layer_norm, layer.dropout)
        self.probability = layer.activation_dropout
        self.is_relu = isinstance(layer.activation_fn, torch.nn.ReLU)

    def __call__(self, states: Tensor) -> tuple[Tensor, Backward]:
        """Return the next states, (n, d)."""
        hidden, to_hidden = self.first(states)
        active = hidden.relu_() if self.is_relu else gelu(hidden)
        used, to_used = dropout(active, self.probability)
        output, to_output = self.end(used, states)

        def backward(gradient: Tensor) -> Tensor:
            inner, total = to_output(gradient)
            inner = to_used(inner)
            if self.is_relu:
                inner = _aten.threshold_backward(inner, hidden, 0)
            else:
                inner = _aten.gelu_backward(inner, hidden)
            return total.add_(to_hidden(inner))

        return output, backward


class SelfAttention:
    """Multi-head attention of states to each other."""

    def __init__(self, layer: Any) -> None:
        module = layer.self_attn
        self.heads, self.scale, self.probability = module.num_heads, module.scaling, module.dropout
        self.inputs = Linear(module.k_proj, module.v_proj, module.q_proj)
        self.end = Residual(module.out_proj, layer.self_attn_layer_norm, layer.dropout)

    def __call__(self, states: Tensor, rows: int, mask: Tensor | None) -> tuple[Tensor, Backward]:
        """Return the next states; `mask`, (rows * heads, m, n) or less, is added to the scores."""
        made, to_made = self.inputs(states)
        keys, values, queries = _split(made, rows, self.heads, 3).unbind()
        found, to_found = _attend(queries, keys, values, mask, self.scale, self.probability)
        output, to_output = self.end(_merge(found[None], rows), states)

        def backward(gradient: Tensor) -> Tensor:
            inner, total = to_output(gradient)
            parts = keys.new_empty(3, *keys.shape)
            to_found(_split(inner, rows, self.heads, 1)[0], parts[0], parts[1], parts[2])
            return total.add_(to_made(_merge(parts, rows)))

        return output, backward


class CrossAttention:
    """Multi-head attention of a decoder's states to the encoder's."""

    def __init__(self, layer: Any) -> None:
        module = layer.encoder_attn
        self.heads, self.scale, self.probability = module.num_heads, module.scaling, module.dropout
        self.queries = Linear(module.q_proj)
        self.memory = Linear(module.k_proj, module.v_proj)
        self.end = Residual(module.out_proj, layer.encoder_attn_layer_norm, layer.dropout)

    def __call__(
        self, states: Tensor, memory: Tensor, rows: int, mask: Tensor | None
    ) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, Tensor]]]:
        """Return the next states; the callback returns the gradients of states and memory."""
        made, to_made = self.memory(memory)
        keys, values = _split(made, rows, self.heads, 2).unbind()
        asked, to_asked = self.queries(states)
        queries = _split(asked, rows, self.heads, 1)[0]
        found, to_found = _attend(queries, keys, values, mask, self.scale, self.probability)
        output, to_output = self.end(_merge(found[None], rows), states)

        def backward(gradient: Tensor) -> tuple[Tensor, Tensor]:
            inner, total = to_output(gradient)
            parts, own = keys.new_empty(2, *keys.shape), torch.empty_like(queries)
            to_found(_split(inner, rows, self.heads, 1)[0], parts[0], parts[1], own)
            to_memory = to_made(_merge(parts, rows))
            return total.add_(to_asked(_merge(own[None], rows))), to_memory

        return output, backward


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
    scale: float,
    probability: float,
) -> tuple[Tensor, Callable[[Tensor, Tensor, Tensor, Tensor], None]]:
    """Return the attended values for queries (k, m, w), keys and values (k, n, w).

    The callback (gradient, keys, values, queries) writes gradients into its last three arguments.
    """
    scores = _product(queries, keys.transpose(1, 2), scale, mask)
    weights = scores.float().softmax(-1)  # softmax of short rows is slow in bf16
    used, to_used = dropout(weights.to(values.dtype), probability)

    def backward(gradient: Tensor, to_keys: Tensor, to_values: Tensor, to_queries: Tensor) -> None:
        torch.bmm(used.transpose(1, 2), gradient, out=to_values)
        slopes = to_used(gradient @ values.transpose(1, 2)).float()
        slopes = _aten._softmax_backward_data(slopes, weights, -1, slopes.dtype)
        slopes = slopes.to(values.dtype)
        _product(slopes.transpose(1, 2), queries, scale, out=to_keys)
        _product(slopes, keys, scale, out=to_queries)

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
