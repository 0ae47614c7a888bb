"""Layers of BART and RoBERTa in training, each with a backward pass of its own, without autograd.

As in Thinc, a layer returns its output and a callback, which takes the gradient of the output, adds
the gradients of the layer's weights to `weight.grad`, and returns the gradient of the input. Unlike
in autograd over Transformers' modules, gradients are added in place, linear layers of one input are
one product, and one copy separates the heads. States are (rows * length, d); dropout draws the same
numbers as Transformers' modules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding, gelu

from maskpolicy.models.training.batching import Batch

Backward: TypeAlias = Callable[[Tensor], Tensor]
Sink: TypeAlias = Callable[[Tensor], None]
"""The callback of a layer whose input needs no gradient."""
_aten: Any = torch.ops.aten


class Linear:
    """Linear layers of one input as one product; their weights are adjacent in memory."""

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

    Raises LookupError if one has no gradient, or they are not adjacent in memory, as they are in
    `training.optimization.Weights`.
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


def gelu_backward(gradient: Tensor, inputs: Tensor) -> Tensor:
    """Return the gradient of the inputs of `gelu`."""
    return _aten.gelu_backward(gradient, inputs)


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


class Tokens:
    """The embeddings of tokens."""

    def __init__(self, table: torch.nn.Embedding, scale: float = 1.0) -> None:
        self.padding, self.scale = table.padding_idx, scale
        self.weight, self.weight_gradient = joined([table.weight])

    def __call__(self, ids: Tensor) -> tuple[Tensor, Sink]:
        """Return the vectors of tokens, (.., d) for ids (..)."""
        found = embedding(ids, self.weight)
        if self.scale != 1:
            found *= self.scale

        def backward(gradient: Tensor) -> None:
            gradient = gradient.view(*ids.shape, -1)
            if self.scale != 1:
                gradient = gradient * self.scale
            padding = -1 if self.padding is None else self.padding
            self.weight_gradient.add_(_of_rows(gradient, ids, self.weight, padding))

        return found, backward


class Positions:
    """Adds the embeddings of positions and of the first token type; LayerNorm and dropout."""

    def __init__(
        self,
        table: torch.nn.Embedding,
        norm: torch.nn.LayerNorm,
        probability: float,
        *,
        first: int,
        types: torch.nn.Embedding | None = None,
    ) -> None:
        """Take the layers; `first` is the row of position 0 in `table`."""
        self.weight, self.weight_gradient = joined([table.weight])
        self.types = None if types is None else joined([types.weight])
        self.norm, self.probability, self.first = Norm(norm), probability, first

    def __call__(
        self, vectors: Tensor, positions: Tensor | None = None, *, is_dropped: bool = True
    ) -> tuple[Tensor, Backward]:
        """Return the states, (rows * length, d), of vectors (rows, length, d), which it overwrites.

        The positions, (rows, length), are in order by default. The callback returns a gradient of
        the vectors' shape.
        """
        rows, length, _ = vectors.shape
        places = (torch.arange(length) if positions is None else positions) + self.first
        if self.types is not None:
            vectors += self.types[0][0]
        vectors += embedding(places, self.weight)
        normed, to_normed = self.norm(vectors.view(rows * length, -1))
        states, to_states = dropout(normed, self.probability if is_dropped else 0.0)

        def backward(gradient: Tensor) -> Tensor:
            gradient = to_normed(to_states(gradient)).view(rows, length, -1)
            by_place = gradient.sum(0) if positions is None else gradient
            self.weight_gradient.add_(_of_rows(by_place, places, self.weight))
            if self.types is not None:
                self.types[1][0].add_(by_place.flatten(0, -2).sum(0))
            return gradient

        return states, backward


class Embedding:
    """The states of tokens before the first layer."""

    def __init__(self, tokens: Tokens, positions: Positions) -> None:
        self.tokens, self.positions = tokens, positions

    def __call__(
        self, ids: Tensor, positions: Tensor | None = None, *, is_dropped: bool = True
    ) -> tuple[Tensor, Sink]:
        """Return the states, (rows * length, d), of ids (rows, length); see `Positions`."""
        vectors, to_vectors = self.tokens(ids)
        states, to_states = self.positions(vectors, positions, is_dropped=is_dropped)
        return states, lambda gradient: to_vectors(to_states(gradient))


def _of_rows(gradient: Tensor, rows: Tensor, table: Tensor, padding: int = -1) -> Tensor:
    return _aten.embedding_dense_backward(gradient, rows, len(table), padding, False)


class Residual:
    """The last part of a block: a linear layer, dropout, the residual connection and LayerNorm."""

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
    """The two linear layers of an encoder's or decoder's layer, with ReLU or GELU in between."""

    def __init__(
        self, first: torch.nn.Linear, end: Residual, *, is_relu: bool, probability: float = 0.0
    ) -> None:
        """Take the layers, and the probability of dropout after the activation."""
        self.first, self.end = Linear(first), end
        self.probability, self.is_relu = probability, is_relu

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
                inner = gelu_backward(inner, hidden)
            return total.add_(to_hidden(inner))

        return output, backward


@dataclass(frozen=True)
class Heads:
    """The heads of an attention."""

    count: int
    scale: float  # of the products of queries and keys
    probability: float  # of dropout of the attention's weights


class SelfAttention:
    """Multi-head attention of states to each other."""

    def __init__(self, heads: Heads, end: Residual, order: str, *inputs: torch.nn.Linear) -> None:
        """Take the layers of queries, keys and values, in an order such as "qkv"."""
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

    def __init__(self, heads: Heads, end: Residual, *inputs: torch.nn.Linear) -> None:
        """Take the layers of queries, keys and values."""
        self.heads, self.end = heads, end
        self.queries, self.memory = Linear(inputs[0]), Linear(*inputs[1:])

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

        Call the callback once only.
        """
        callbacks = []
        mask = padding_mask(seen, self.layers[0][0].heads, states.dtype)
        for attention, feed_forward in self.layers:
            states, to_attended = attention(states, len(seen), mask)
            states, to_states = feed_forward(states)
            callbacks += [to_attended, to_states]

        def backward(gradient: Tensor) -> Tensor:
            while callbacks:  # `pop` frees the arrays of the layer
                gradient = callbacks.pop()(gradient)
            return gradient

        return states, backward


def padding_mask(seen: Tensor, heads: Heads, dtype: torch.dtype) -> Tensor | None:
    """Return a mask to add to attention scores, (rows * heads, 1, n); None if all are seen."""
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
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, heads: Heads
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


class Gradients(Protocol):
    """A model whose weights `training.optimization.Weights` holds."""

    weight: Tensor
    """Any of its weights."""

    def run(self, batch: Batch) -> tuple[Tensor, int, Callable[[float], None]]:
        """Return the summed loss of a batch, its units, and a callback.

        The callback takes a factor of the loss, and adds the gradients to those of the weights.
        """


class _Loss(torch.autograd.Function):
    """The loss as a function of one weight; the backward pass adds the gradients of all weights."""

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

    As with autograd, its backward pass adds the gradients of the model's weights to `weight.grad`.
    """
    apply: Callable[..., tuple[Tensor, int]] = _Loss.apply
    return apply(model.weight, model, batch)
