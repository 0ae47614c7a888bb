"""The losses of a RobertaModel in training on a CPU and their gradients (see `cpu.layers`)."""

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
    RobertaModel,
)

from maskpolicy.models import crossentropy
from maskpolicy.models.cpu.layers import (
    Embedding,
    Encoder,
    FeedForward,
    Heads,
    Linear,
    Norm,
    Positions,
    Residual,
    SelfAttention,
    Tokens,
    gelu_backward,
    joined,
)
from maskpolicy.models.exclusion import packed
from maskpolicy.models.masked_encoder import MaskedEncoder, OwnHead
from maskpolicy.models.training.batching import IGNORE, Batch

HeadLoss: TypeAlias = Callable[[Tensor, Batch], tuple[Tensor, int]]
"""(last states, (b, n, d), batch) -> the summed loss, and its units; differentiable"""


class Body:
    """A RobertaModel whose weights `training.optimization.Weights` holds."""

    def __init__(self, model: Any) -> None:
        table = model.embeddings.word_embeddings
        self.weight = table.weight
        self.tokens = Tokens(table)
        self.embedding = Embedding(self.tokens, _positions(model))
        self.layers = _layers(model)

    def __call__(
        self, ids: Tensor, seen: Tensor, positions: Tensor | None = None
    ) -> tuple[Tensor, Callable[[Tensor], None]]:
        """Return the last states, (rows * length, d), of ids (rows, length).

        Positions are by default in order. RoBERTa gives padding a position of its own; here it has
        another one, because it follows the text and what is not `seen` has no influence.
        """
        embedded, to_embedded = self.embedding(ids, positions)
        states, to_states = self.layers(embedded, seen)
        return states, lambda gradient: to_embedded(to_states(gradient))


class PretrainingGradients:
    """A `MaskedEncoder` of a RobertaModel, or its own head, for `encoders.token_loss`."""

    def __init__(self, module: MaskedEncoder) -> None:
        self.body, decoder = Body(module.encoder), module.decoder
        self.decoder = None if decoder is None else (_positions(decoder), _layers(decoder))
        dense, norm, bias = _head(module)
        self.dense, self.norm = Linear(dense), Norm(norm)
        self.bias, self.bias_gradient = joined([bias])
        self.weight = self.body.weight

    def run(self, batch: Batch) -> tuple[Tensor, int, Callable[[float], None]]:
        """Return the loss, its units and a callback (see `cpu.layers.Gradients`)."""
        states, to_states = self._states(batch)
        places = (batch.labels != IGNORE).flatten().nonzero()[:, 0]
        hidden, to_hidden = self.dense(states[places])
        normed, to_normed = self.norm(gelu(hidden))
        labels = batch.labels.flatten()[places]
        head, head_gradient = self.body.tokens.weight, self.body.tokens.weight_gradient
        loss, slopes = crossentropy.with_gradient(normed, head, self.bias, labels)
        shape = states.shape

        def backward(scale: float) -> None:
            head_gradient.addmm_(slopes.t(), normed, alpha=scale)
            self.bias_gradient.add_(slopes.sum(0), alpha=scale)
            inner = to_normed((slopes @ head).mul_(scale))
            gradient = slopes.new_zeros(shape)
            gradient.index_copy_(0, places, to_hidden(gelu_backward(inner, hidden)))
            to_states(gradient)

        return loss, len(labels), backward

    def _states(self, batch: Batch) -> tuple[Tensor, Callable[[Tensor], None]]:
        """Return the last states, (rows * length, d), of the encoder, or of MAE-LM's decoder."""
        if self.decoder is None:
            return self.body(batch.source, batch.seen)
        kept, visible, places = packed(batch)
        found, to_found = self.body(batch.source.gather(1, places), visible, places)
        full, to_full = self.body.tokens(batch.source)
        full[kept] = found[visible.flatten()]
        positions, layers = self.decoder
        embedded, to_embedded = positions(full)
        states, to_states = layers(embedded, batch.seen)

        def backward(gradient: Tensor) -> None:
            gradient = to_embedded(to_states(gradient))
            inner = torch.zeros_like(found)
            inner[visible.flatten()] = gradient[kept]
            to_full(gradient.masked_fill(kept[..., None], 0))
            to_found(inner)

        return states, backward


class TaskGradients:
    """A RobertaModel under the head of a task, of which autograd computes the gradients."""

    def __init__(self, body: Body, loss: HeadLoss) -> None:
        self.body, self.loss, self.weight = body, loss, body.weight

    def run(self, batch: Batch) -> tuple[Tensor, int, Callable[[float], None]]:
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


def _head(module: MaskedEncoder) -> tuple[Any, Any, Any]:
    """Return the matrix, the LayerNorm and the bias of a head like RoBERTa's."""
    if isinstance(module, OwnHead):
        head = module.model.lm_head
        return head.dense, head.layer_norm, head.bias
    return module.dense, module.norm, module.bias


def _positions(body: Any) -> Positions:
    parts = body.embeddings
    return Positions(
        parts.position_embeddings,
        parts.LayerNorm,
        parts.dropout.p,
        first=parts.padding_idx + 1,
        types=parts.token_type_embeddings,
    )


def _layers(body: Any) -> Encoder:
    is_relu = body.config.hidden_act == "relu"
    return Encoder(
        [(_attention(each), _feed_forward(each, is_relu)) for each in body.encoder.layer]
    )


def _attention(layer: Any) -> SelfAttention:
    own = layer.attention.self
    heads = Heads(own.num_attention_heads, own.scaling, own.dropout.p)
    end = _residual(layer.attention.output)
    return SelfAttention(heads, end, "qkv", own.query, own.key, own.value)


def _feed_forward(layer: Any, is_relu: bool) -> FeedForward:
    return FeedForward(layer.intermediate.dense, _residual(layer.output), is_relu=is_relu)


def _residual(output: Any) -> Residual:
    return Residual(output.dense, output.LayerNorm, output.dropout.p)


def pretraining_gradients(module: Any) -> PretrainingGradients | None:
    """Return the gradients of a RobertaModel with a head like its own; None for any other module.

    A head of its own must share the matrix of the input embeddings.
    """
    if isinstance(module, OwnHead):
        model = module.model
        rows = model.get_input_embeddings().weight
        if type(model) is not RobertaForMaskedLM or model.lm_head.decoder.weight is not rows:
            return None
    parts = (part for part in (module.encoder, module.decoder) if part is not None)
    return PretrainingGradients(module) if all(map(_is_known, parts)) else None


def task_gradients(model: Any, loss: HeadLoss) -> TaskGradients | None:
    """Return the gradients of a RobertaModel under a head; None for any other model."""
    known = (RobertaForSequenceClassification, RobertaForQuestionAnswering)
    if type(model) not in known or not _is_known(model.roberta):
        return None
    return TaskGradients(Body(model.roberta), loss)


def _is_known(body: Any) -> bool:
    """Return whether a RobertaModel has eager attention, and ReLU or GELU."""
    config = body.config
    return (
        type(body) is RobertaModel
        and config._attn_implementation == "eager"
        and config.hidden_act in ("relu", "gelu")
        and not config.is_decoder
    )
