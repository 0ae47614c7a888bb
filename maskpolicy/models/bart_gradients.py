"""The loss of a BART in training on a CPU and its gradients, without autograd (see `layers`)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from maskpolicy.models import crossentropy
from maskpolicy.models.layers import CrossAttention, Embedding, FeedForward, SelfAttention, joined
from maskpolicy.models.text_to_text_exclusion import packed
from maskpolicy.training.batching import IGNORE, Batch

_log = logging.getLogger(__name__)


class BartGradients:
    """A BART whose weights `training.weights.Weights` holds."""

    def __init__(self, model: Any) -> None:
        encoder, decoder = model.model.encoder, model.model.decoder
        self.sources, self.targets = Embedding(encoder), Embedding(decoder)
        self.encoder = [(SelfAttention(each), FeedForward(each)) for each in encoder.layers]
        self.decoder = [
            (SelfAttention(each), CrossAttention(each), FeedForward(each))
            for each in decoder.layers
        ]
        self.weight = model.lm_head.weight
        self.head, self.head_gradient = joined([self.weight])
        bias = model.final_logits_bias[0].to(self.head.dtype)  # not trained; mostly zeros
        self.bias = bias if bool(bias.any()) else None

    def token_loss(self, batch: Batch) -> tuple[Tensor, int]:
        """Return `text_to_text_loss.token_loss`.

        Its backward pass adds the gradients of the weights to `weight.grad`, as autograd would.
        """
        apply: Callable[..., tuple[Tensor, int]] = _Loss.apply
        return apply(self.weight, self, batch)

    def run(self, batch: Batch) -> tuple[Tensor, int, Callable[[float], None]]:
        """Return the summed cross-entropy of a batch's labels, their number, and a callback.

        The callback adds the gradients of the loss times a number to those of the weights.
        """
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
        states, to_embedded = self.sources(ids, positions)
        rows, mask = len(ids), self._mask(seen, self.encoder[0][0].heads)
        callbacks = []
        for attention, feed_forward in self.encoder:
            states, to_attended = attention(states, rows, mask)
            states, to_states = feed_forward(states)
            callbacks += [to_attended, to_states]

        def backward(gradient: Tensor) -> None:
            while callbacks:  # each holds arrays of its layer until it is gone
                gradient = callbacks.pop()(gradient)
            to_embedded(gradient)

        return states, backward

    def _decode(self, batch: Batch, memory: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """Return the decoder's states, and a callback that returns the gradient of `memory`."""
        assert batch.decoder is not None
        rows, length = batch.decoder.shape
        lowest = torch.finfo(memory.dtype).min
        causal = memory.new_full((length, length), lowest).triu_(1)
        mask = self._mask(batch.seen, self.decoder[0][1].heads)
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

    def _mask(self, seen: Tensor, heads: int) -> Tensor | None:
        """Return what hides padding, (rows * heads, 1, n); None if there is none."""
        if bool(seen.all()):
            return None
        mask = torch.zeros(seen.shape, dtype=self.head.dtype)
        mask.masked_fill_(~seen, torch.finfo(mask.dtype).min)
        return mask.repeat_interleave(heads, 0)[:, None]


class _Loss(torch.autograd.Function):
    """The loss as a function of any weight, whose backward pass adds the gradients of all."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, model: BartGradients, batch: Batch) -> Any:
        loss, units, ctx.add = model.run(batch)
        return loss, units

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor, *_: Any) -> tuple[None, None, None]:
        add, ctx.add = ctx.add, None
        add(scale.item())
        return None, None, None


def of(model: Any) -> BartGradients | None:
    """Return the gradients of a BART whose training on a CPU begins; None for any other model.

    Attention must be eager, the activation ReLU or GELU, no layer dropped, and no weight frozen.
    """
    if model.device.type != "cpu":
        return None
    config = model.config
    if (
        config.model_type == "bart"
        and config._attn_implementation == "eager"
        and config.activation_function in ("relu", "gelu")
        and not (config.encoder_layerdrop or config.decoder_layerdrop)
    ):
        try:
            return BartGradients(model)
        except LookupError:
            pass
    _say_once(config.model_type)
    return None


@cache
def _say_once(name: str) -> None:
    _log.info(
        "%s: trained with Transformers' own layers; those of maskpolicy, which are faster on a "
        "CPU, are of BART with eager attention, ReLU or GELU, and without LayerDrop",
        name,
    )
