"""Layers of BART and RoBERTa in training, each with a backward pass of its own, without autograd.

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


def gelu_backward(gradient: Tensor, inputs: Tensor) -> Tensor:
    """Return the gradient of the inputs of `gelu`."""
    found: Tensor = _aten.gelu_backward(gradient, inputs)
    return found


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

    def __call__(self, ids: Tensor) -> tuple[Tensor, Callable[[Tensor], None]]:
        """Return the vectors of tokens, (.., d) for ids (..); the callback returns nothing."""
        found = embedding(ids, self.weight)
        if self.scale != 1:
            found *= self.scale

        def backward(gradient: Tensor) -> None:
            if self.scale != 1:
                gradient = gradient * self.scale
            padding = -1 if self.padding is None else self.padding
            self.weight_gradient.add_(_of_rows(gradient, ids, self.weight, padding))

        return found, backward


class Positions:
    """Embeddings of positions and types, which are added to those of tokens, LayerNorm and dropout.

    `types` are embeddings of token types: all tokens have the first one.
    """

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
        self.types: Tensor | None = None
        self.types_gradient: Tensor | None = None
        if types is not None:
            self.types, self.types_gradient = joined([types.weight])
        self.norm, self.probability, self.first = Norm(norm), probability, first

    def __call__(
        self, vectors: Tensor, positions: Tensor | None = None, *, is_dropped: bool = True
    ) -> tuple[Tensor, Backward]:
        """Return the states, (rows * length, d), of vectors (rows, length, d), which it overwrites.

        Their positions, (rows, length), are by default in order. The callback returns the gradient
        of the vectors in their shape.
        """
        rows, length, _ = vectors.shape
        places = (torch.arange(length) if positions is None else positions) + self.first
        if self.types is not None:
            vectors += self.types[0]
        vectors += embedding(places, self.weight)
        normed, to_normed = self.norm(vectors.view(rows * length, -1))
        states, to_states = dropout(normed, self.probability if is_dropped else 0.0)

        def backward(gradient: Tensor) -> Tensor:
            gradient = to_normed(to_states(gradient)).view(rows, length, -1)
            by_place = gradient.sum(0) if positions is None else gradient
            self.weight_gradient.add_(_of_rows(by_place, places, self.weight))
            if self.types_gradient is not None:
                self.types_gradient[0].add_(by_place.flatten(0, -2).sum(0))
            return gradient

        return states, backward


class Embedding:
    """The states of tokens before the first layer."""

    def __init__(self, tokens: Tokens, positions: Positions) -> None:
        self.tokens, self.positions = tokens, positions

    def __call__(
        self, ids: Tensor, positions: Tensor | None = None, *, is_dropped: bool = True
    ) -> tuple[Tensor, Callable[[Tensor], None]]:
        """Return the states, (rows * length, d), of ids (rows, length); see `Positions`."""
        vectors, to_vectors = self.tokens(ids)
        states, to_states = self.positions(vectors, positions, is_dropped=is_dropped)
        return states, lambda gradient: to_vectors(to_states(gradient))


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
