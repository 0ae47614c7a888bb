"""The losses of BART and RoBERTa in training on a CPU and their gradients (see `cpu.layers`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import gelu
from transformers import (
    RobertaForMaskedLM,
    RobertaForQuestionAnswering,
    RobertaForSequenceClassification,
    RobertaForTokenClassification,
    RobertaModel,
)

from maskpolicy.models import crossentropy
from maskpolicy.models.cpu.layers import (
    Backward,
    CrossAttention,
    Embedding,
    Encoder,
    FeedForward,
    Heads,
    Linear,
    Norm,
    Positions,
    Residual,
    SelfAttention,
    Sink,
    Tokens,
    gelu_backward,
    joined,
    padding_mask,
)
from maskpolicy.models.masked_encoder import MaskedEncoder, OwnHead
from maskpolicy.models.training.batching import Batch

Run: TypeAlias = tuple[Tensor, int, Callable[[float], None]]
"""What `cpu.layers.Gradients.run` returns."""
HeadLoss: TypeAlias = Callable[[Tensor, Batch], tuple[Tensor, int]]
"""(last states, (b, n, d), batch) -> the summed loss, and its units; differentiable"""
_HEADS = (
    RobertaForQuestionAnswering,
    RobertaForSequenceClassification,
    RobertaForTokenClassification,
)


class Body:
    """The encoder of a model whose weights `training.optimization.Weights` holds."""

    def __init__(self, embedding: Embedding, layers: Encoder) -> None:
        self.embedding, self.layers = embedding, layers

    def __call__(
        self, ids: Tensor, seen: Tensor, positions: Tensor | None = None
    ) -> tuple[Tensor, Sink]:
        """Return the last states, (rows * length, d), of ids (rows, length).

        Positions are by default in order. Unlike in RoBERTa, padding continues the positions of its
        text: tokens that are not `seen` have no influence.
        """
        embedded, to_embedded = self.embedding(ids, positions)
        states, to_states = self.layers(embedded, seen)
        return states, lambda gradient: to_embedded(to_states(gradient))

    def without_excluded(
        self, batch: Batch, fill: Callable[[Tensor], tuple[Tensor, Sink]]
    ) -> tuple[Tensor, Sink]:
        """Return the states, (b * n, d), of an input without the excluded tokens.

        `fill` computes the states at excluded positions from the ids, (b, n).
        """
        visible, positions, kept, place = batch.packing
        whole = kept.flatten().nonzero()[:, 0]
        own = place.flatten()[whole]
        states, to_states = self(batch.source.gather(1, positions), visible, positions)
        full, to_full = fill(batch.source)
        full = full.flatten(0, -2)
        full[whole] = states[own]

        def backward(gradient: Tensor) -> None:
            inner = torch.zeros_like(states)
            inner[own] = gradient[whole]
            to_full(gradient.index_fill(0, whole, 0))
            to_states(inner)

        return full, backward


class TokenHead:
    """The loss of labelled tokens with a matrix, and a bias (trained or not) or none."""

    def __init__(self, weight: Tensor, bias: Tensor | None, bias_gradient: Tensor | None) -> None:
        self.weight, self.weight_gradient = joined([weight])
        self.bias, self.bias_gradient = bias, bias_gradient

    def __call__(
        self, states: Tensor, batch: Batch, before: Callable[[Tensor], tuple[Tensor, Backward]]
    ) -> tuple[Tensor, int, Callable[[float], Tensor]]:
        """Return loss and units for states (b * n, d); `before` is applied to the labelled ones.

        The callback returns the gradient of the states of the loss times a number.
        """
        places, labels = batch.places, batch.targets
        chosen, to_chosen = before(states[places])
        weights = batch.label_weights
        loss, slopes = crossentropy.with_gradient(chosen, self.weight, self.bias, labels, weights)
        shape = states.shape

        def backward(scale: float) -> Tensor:
            self.weight_gradient.addmm_(slopes.t(), chosen, alpha=scale)
            if self.bias_gradient is not None:
                self.bias_gradient.add_(slopes.sum(0), alpha=scale)
            inner = to_chosen((slopes @ self.weight).mul_(scale))
            return slopes.new_zeros(shape).index_copy_(0, places, inner)

        return loss, len(labels), backward


class BartGradients:
    """The gradients of `text_to_text.token_loss` of a BART in `training.optimization.Weights`."""

    def __init__(self, model: Any) -> None:
        """Take a model; LookupError unless it is a BART without layerdrop, see `_check`."""
        config = model.config
        if config.model_type != "bart" or config.encoder_layerdrop or config.decoder_layerdrop:
            raise LookupError("not a BART, or a BART that drops layers")
        _check(config, config.activation_function)
        encoder, decoder = model.model.encoder, model.model.decoder
        layers = [(_bart_attention(each), _bart_feed_forward(each)) for each in encoder.layers]
        self.body = Body(_bart_embedding(encoder), Encoder(layers))
        self.targets = _bart_embedding(decoder)
        self.decoder = [
            (_bart_attention(each), _cross_attention(each), _bart_feed_forward(each))
            for each in decoder.layers
        ]
        self.weight = model.lm_head.weight
        bias = model.final_logits_bias[0].to(self.weight.dtype)  # not trained; mostly zeros
        self.head = TokenHead(self.weight, bias if bool(bias.any()) else None, None)

    def run(self, batch: Batch) -> Run:
        """Return the loss, its units and a callback (see `cpu.layers.Gradients`)."""
        memory, to_memory = self._encode(batch)
        states, to_states = self._decode(batch, memory)
        loss, units, to_head = self.head(states, batch, lambda labelled: (labelled, _same))
        return loss, units, lambda scale: to_memory(to_states(to_head(scale)))

    def _encode(self, batch: Batch) -> tuple[Tensor, Sink]:
        """Return the encoder's states, (rows * length, d)."""
        if batch.excluded is None:
            return self.body(batch.source, batch.seen)
        return self.body.without_excluded(
            batch, lambda ids: self.body.embedding(ids, is_dropped=False)
        )

    def _decode(self, batch: Batch, memory: Tensor) -> tuple[Tensor, Backward]:
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


class PretrainingGradients:
    """The gradients of `encoders.token_loss` of a RobertaModel, with a new head or its own."""

    def __init__(self, module: MaskedEncoder) -> None:
        """Take a module; LookupError for another model, or an untied head of its own."""
        head: Any = module
        if not isinstance(module, MaskedEncoder):
            raise LookupError("no masked language model")
        if isinstance(module, OwnHead):
            rows, model = module.encoder.get_input_embeddings().weight, module.model
            if type(model) is not RobertaForMaskedLM or model.lm_head.decoder.weight is not rows:
                raise LookupError("another head than RoBERTa's with tied embeddings")
            head = model.lm_head
        self.body, decoder = _roberta_body(module.encoder), module.decoder
        self.decoder = None if decoder is None else (_positions(decoder), _roberta_layers(decoder))
        self.dense, self.norm = Linear(head.dense), Norm(head.layer_norm)
        self.weight = module.encoder.embeddings.word_embeddings.weight
        self.head = TokenHead(self.weight, *joined([head.bias]))

    def run(self, batch: Batch) -> Run:
        """Return the loss, its units and a callback (see `cpu.layers.Gradients`)."""
        states, to_states = self._states(batch)
        loss, units, to_head = self.head(states, batch, self._before)
        return loss, units, lambda scale: to_states(to_head(scale))

    def _before(self, states: Tensor) -> tuple[Tensor, Backward]:
        """Return the input of the head's matrix, (k, d)."""
        hidden, to_hidden = self.dense(states)
        normed, to_normed = self.norm(gelu(hidden))
        return normed, lambda gradient: to_hidden(gelu_backward(to_normed(gradient), hidden))

    def _states(self, batch: Batch) -> tuple[Tensor, Sink]:
        """Return the last states, (rows * length, d), of the encoder, or of MAE-LM's decoder."""
        if self.decoder is None:
            return self.body(batch.source, batch.seen)
        full, to_full = self.body.without_excluded(batch, self.body.embedding.tokens)
        positions, layers = self.decoder
        embedded, to_embedded = positions(full.view(*batch.source.shape, -1))
        states, to_states = layers(embedded, batch.seen)
        return states, lambda gradient: to_full(to_embedded(to_states(gradient)).flatten(0, 1))


class TaskGradients:
    """The gradients of a RobertaModel with the head of a task, which autograd differentiates."""

    def __init__(self, model: Any, loss: HeadLoss) -> None:
        """Take a model with a head and its loss; LookupError for another model."""
        if type(model) not in _HEADS:
            raise LookupError("no RoBERTa with a head")
        self.body, self.loss = _roberta_body(model.roberta), loss
        self.weight = model.roberta.embeddings.word_embeddings.weight

    def run(self, batch: Batch) -> Run:
        """Return the loss, its units and a callback (see `cpu.layers.Gradients`)."""
        found, to_found = self.body(batch.source, batch.seen)
        states = found.view(*batch.source.shape, -1).requires_grad_()
        with torch.enable_grad():
            loss, units = self.loss(states, batch)

        def backward(scale: float) -> None:
            loss.backward(torch.full_like(loss, scale))
            assert states.grad is not None
            to_found(states.grad.view_as(found))

        return loss.detach(), units, backward


def _same(gradient: Tensor) -> Tensor:
    return gradient


def _check(config: Any, activation: str) -> None:
    """Raise LookupError unless attention is eager, and the activation ReLU or GELU."""
    if config._attn_implementation != "eager" or activation not in ("relu", "gelu"):
        raise LookupError("another attention or activation")


def _bart_embedding(body: Any) -> Embedding:
    table = body.embed_positions
    positions = Positions(table, body.layernorm_embedding, body.dropout, first=table.offset)
    return Embedding(Tokens(body.embed_tokens, body.embed_tokens.embed_scale), positions)


def _bart_attention(layer: Any) -> SelfAttention:
    own = layer.self_attn
    end = Residual(own.out_proj, layer.self_attn_layer_norm, layer.dropout)
    return SelfAttention(_bart_heads(own), end, "kvq", own.k_proj, own.v_proj, own.q_proj)


def _cross_attention(layer: Any) -> CrossAttention:
    own = layer.encoder_attn
    end = Residual(own.out_proj, layer.encoder_attn_layer_norm, layer.dropout)
    return CrossAttention(_bart_heads(own), end, own.q_proj, own.k_proj, own.v_proj)


def _bart_heads(attention: Any) -> Heads:
    return Heads(attention.num_heads, attention.scaling, attention.dropout)


def _bart_feed_forward(layer: Any) -> FeedForward:
    end = Residual(layer.fc2, layer.final_layer_norm, layer.dropout)
    is_relu = isinstance(layer.activation_fn, torch.nn.ReLU)
    return FeedForward(layer.fc1, end, is_relu=is_relu, probability=layer.activation_dropout)


def _roberta_body(model: Any) -> Body:
    layers = _roberta_layers(model)
    return Body(Embedding(Tokens(model.embeddings.word_embeddings), _positions(model)), layers)


def _positions(model: Any) -> Positions:
    parts = model.embeddings
    first, types = parts.padding_idx + 1, parts.token_type_embeddings
    norm, dropped = parts.LayerNorm, parts.dropout.p
    return Positions(parts.position_embeddings, norm, dropped, first=first, types=types)


def _roberta_layers(model: Any) -> Encoder:
    kind = type(model)
    if kind is not RobertaModel or model.config.is_decoder:
        raise LookupError("not a RobertaModel that is an encoder")
    _check(model.config, model.config.hidden_act)
    is_relu, layers = model.config.hidden_act == "relu", []
    for layer in model.encoder.layer:
        own = layer.attention.self
        heads = Heads(own.num_attention_heads, own.scaling, own.dropout.p)
        end = _roberta_residual(layer.attention.output)
        attention = SelfAttention(heads, end, "qkv", own.query, own.key, own.value)
        end = _roberta_residual(layer.output)
        layers.append((attention, FeedForward(layer.intermediate.dense, end, is_relu=is_relu)))
    return Encoder(layers)


def _roberta_residual(output: Any) -> Residual:
    return Residual(output.dense, output.LayerNorm, output.dropout.p)
