"""The loss of a BART in training on a CPU and its gradients, without autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from maskpolicy.models import crossentropy
from maskpolicy.models.cpu.layers import (
    CrossAttention,
    Embedding,
    Encoder,
    FeedForward,
    Heads,
    Positions,
    Residual,
    SelfAttention,
    Tokens,
    joined,
    padding_mask,
)
from maskpolicy.models.exclusion import packed
from maskpolicy.models.training.batching import IGNORE, Batch


class BartGradients:
    """A BART whose weights `training.optimization.Weights` holds."""

    def __init__(self, model: Any) -> None:
        encoder, decoder = model.model.encoder, model.model.decoder
        self.sources, self.targets = _embedding(encoder), _embedding(decoder)
        self.encoder = Encoder(
            [(_self_attention(each), _feed_forward(each)) for each in encoder.layers]
        )
        self.decoder = [
            (_self_attention(each), _cross_attention(each), _feed_forward(each))
            for each in decoder.layers
        ]
        self.weight = model.lm_head.weight
        self.head, self.head_gradient = joined([self.weight])
        bias = model.final_logits_bias[0].to(self.head.dtype)  # not trained; mostly zeros
        self.bias = bias if bool(bias.any()) else None

    def run(self, batch: Batch) -> tuple[Tensor, int, Callable[[float], None]]:
        """Return `text_to_text.token_loss` and a callback (see `cpu.layers.Gradients`)."""
        memory, to_memory = self._encode(batch)
        states, to_states = self._decode(batch, memory)
        places = (batch.labels != IGNORE).flatten().nonzero()[:, 0]
        chosen, labels = states[places], batch.labels.flatten()[places]
        loss, slopes = crossentropy.with_gradient(chosen, self.head, self.bias, labels)
        shape = states.shape

        def backward(scale: float) -> None:
            self.head_gradient.addmm_(slopes.t(), chosen, alpha=scale)
            gradient = slopes.new_zeros(shape)
            gradient.index_copy_(0, places, (slopes @ self.head).mul_(scale))
            to_memory(to_states(gradient))

        return loss, len(labels), backward

    def _encode(self, batch: Batch) -> tuple[Tensor, Callable[[Tensor], None]]:
        """Return the encoder's states, (rows * length, d); excluded masks are not in its input."""
        if batch.excluded is None:
            return self._encoded(batch.source, batch.seen, None)
        kept, visible, positions = packed(batch)
        found, to_found = self._encoded(batch.source.gather(1, positions), visible, positions)
        full, to_full = self.sources(batch.source, is_dropped=False)
        kept, visible = kept.flatten(), visible.flatten()
        full[kept] = found[visible]

        def backward(gradient: Tensor) -> None:
            inner = torch.zeros_like(found)
            inner[visible] = gradient[kept]
            to_full(gradient.masked_fill(kept[:, None], 0))
            to_found(inner)

        return full, backward

    def _encoded(
        self, ids: Tensor, seen: Tensor, positions: Tensor | None
    ) -> tuple[Tensor, Callable[[Tensor], None]]:
        embedded, to_embedded = self.sources(ids, positions)
        states, to_states = self.encoder(embedded, seen)
        return states, lambda gradient: to_embedded(to_states(gradient))

    def _decode(self, batch: Batch, memory: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """Return the decoder's states, and a callback that returns the gradient of `memory`."""
        assert batch.decoder is not None
        rows, length = batch.decoder.shape
        lowest = torch.finfo(memory.dtype).min
        causal = memory.new_full((length, length), lowest).triu_(1)
        mask = padding_mask(batch.seen, self.decoder[0][1].heads, memory.dtype)
        states, to_embedded = self.targets(batch.decoder)
        callbacks = []
        for attention, cross, feed_forward in self.decoder:
            states, to_attended = attention(states, rows, causal)
            states, to_crossed = cross(states, memory, rows, mask)
            states, to_states = feed_forward(states)
            callbacks.append((to_attended, to_crossed, to_states))

        def backward(gradient: Tensor) -> Tensor:
            to_memory = torch.zeros_like(memory)
            while callbacks:
                to_attended, to_crossed, to_states = callbacks.pop()
                gradient, part = to_crossed(to_states(gradient))
                to_memory.add_(part)
                gradient = to_attended(gradient)
            to_embedded(gradient)
            return to_memory

        return states, backward


def _embedding(body: Any) -> Embedding:
    table = body.embed_positions
    positions = Positions(table, body.layernorm_embedding, body.dropout, first=table.offset)
    return Embedding(Tokens(body.embed_tokens, body.embed_tokens.embed_scale), positions)


def _self_attention(layer: Any) -> SelfAttention:
    own = layer.self_attn
    end = Residual(own.out_proj, layer.self_attn_layer_norm, layer.dropout)
    return SelfAttention(_heads(own), end, "kvq", own.k_proj, own.v_proj, own.q_proj)


def _cross_attention(layer: Any) -> CrossAttention:
    own = layer.encoder_attn
    end = Residual(own.out_proj, layer.encoder_attn_layer_norm, layer.dropout)
    return CrossAttention(_heads(own), end, own.q_proj, own.k_proj, own.v_proj)


def _heads(attention: Any) -> Heads:
    return Heads(attention.num_heads, attention.scaling, attention.dropout)


def _feed_forward(layer: Any) -> FeedForward:
    end = Residual(layer.fc2, layer.final_layer_norm, layer.dropout)
    is_relu = isinstance(layer.activation_fn, torch.nn.ReLU)
    return FeedForward(layer.fc1, end, is_relu=is_relu, probability=layer.activation_dropout)


def bart_gradients(model: Any) -> BartGradients | None:
    """Return the gradients of a BART in training; None for any other model.

    Attention must be eager, the activation ReLU or GELU, and no layer dropped.
    """
    config = model.config
    is_known = (
        config.model_type == "bart"
        and config._attn_implementation == "eager"
        and config.activation_function in ("relu", "gelu")
        and not (config.encoder_layerdrop or config.decoder_layerdrop)
    )
    return BartGradients(model) if is_known else None
