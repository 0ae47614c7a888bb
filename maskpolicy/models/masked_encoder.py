"""The modules that pre-train an encoder: the body, MAE-LM's decoder, and a head."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.functional import gelu, linear
from transformers import AutoModelForMaskedLM, RobertaConfig, RobertaModel

from maskpolicy.models.exclusion import scattered
from maskpolicy.models.families import family_of, limits
from maskpolicy.models.loading import set_attention

if TYPE_CHECKING:
    from maskpolicy.models.training.batching import Batch

_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_LONGEST = 8192  # tokens, for a configuration that states no limit
_EPSILON = 1e-12  # of BERT's LayerNorm, for configurations that state none


class MaskedEncoder(nn.Module):
    """An encoder, MAE-LM's decoder or None, and RoBERTa's LM head with tied embeddings."""

    def __init__(self, encoder: Any, decoder: Any) -> None:
        super().__init__()
        config, rows = encoder.config, encoder.get_input_embeddings().weight
        self.encoder, self.decoder = encoder, decoder
        self.dense = nn.Linear(config.hidden_size, rows.shape[1])
        nn.init.normal_(self.dense.weight, std=_first(config, ("initializer_range",), 0.02))
        nn.init.zeros_(self.dense.bias)
        self.norm = nn.LayerNorm(rows.shape[1], eps=_epsilon(config))
        self.bias = nn.Parameter(torch.zeros(len(rows)))

    def forward(self, batch: Batch) -> torch.Tensor:
        """Return the last states at all positions of the source, (b, n, d)."""
        seen = batch.seen.long()
        if self.decoder is None:
            out = self.encoder(input_ids=batch.source, attention_mask=seen)
        else:
            states = scattered(self.encoder, batch)
            out = self.decoder(inputs_embeds=states, attention_mask=seen)
        found: torch.Tensor = out.last_hidden_state
        return found

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """Return the logits, (k, v), of the states of k positions, (k, d)."""
        hidden = self.norm(gelu(self.dense(states)))
        return linear(hidden, self.encoder.get_input_embeddings().weight, self.bias)

    def scores(self, batch: Batch, kept: torch.Tensor) -> torch.Tensor:
        """Return the logits, (k, v), at the k positions where `kept`, (b, n), is True."""
        return self.logits(self(batch)[kept])

    @property
    def saved(self) -> Any:
        """The model with its head; the body alone if the head was trained on a decoder."""
        if self.decoder is not None:
            return self.encoder
        model = masked_lm(self.encoder, "meta")
        head = model.lm_head
        head.dense, head.layer_norm, head.bias = self.dense, self.norm, self.bias
        head.decoder.bias, head.decoder.weight = self.bias, model.get_input_embeddings().weight
        return model

    def set_attn_implementation(self, name: str) -> None:
        """Set the attention implementation of encoder and decoder."""
        for part in (self.encoder, self.decoder):
            if part is not None:
                set_attention(part, name)


class OwnHead(MaskedEncoder):
    """A masked language model of Transformers, and MAE-LM's decoder or None."""

    def __init__(self, model: Any, decoder: Any) -> None:
        nn.Module.__init__(self)
        self.model, self.decoder = model, decoder

    @property
    def encoder(self) -> Any:
        """The model's body."""
        return self.model.base_model

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """Return the logits, (k, v), of the states of k positions, (k, d)."""
        layers = head_layers(self.model)
        found: torch.Tensor = reduce(lambda made, layer: layer(made), layers, states)
        return found

    def scores(self, batch: Batch, kept: torch.Tensor) -> torch.Tensor:
        """Return the logits, (k, v), at the k positions where `kept`, (b, n), is True."""
        if head_layers(self.model):
            return super().scores(batch, kept)
        out = self.model(input_ids=batch.source, attention_mask=batch.seen.long())
        found: torch.Tensor = out.logits[kept]
        return found

    @property
    def saved(self) -> Any:
        """The model with its head; the body alone if the head was trained on a decoder."""
        return self.model if self.decoder is None else self.encoder


def masked_lm(body: Any, device: str) -> Any:
    """Return Transformers' masked language model of a body, with a new head on `device`."""
    known: Any = AutoModelForMaskedLM._model_mapping
    with torch.device(device):
        model = known[type(body.config)](body.config)
    setattr(model, model.base_model_prefix, body)
    return model


def shallow_decoder(config: Any, layers: int) -> Any:
    """Return MAE-LM's decoder: bidirectional, no dropout, with its own positions and LayerNorm.

    A RobertaModel that receives embeddings adds positions and normalizes, as the released code of
    Meng et al. 2024 does. Its word embeddings are unused. Positions are drawn at the scale of the
    encoder's outputs, to which they are added: smaller ones have no effect (docs/log.md).
    """
    values = config.to_dict() if family_of(config, "encoder").new_head else _shape(config)
    values = values | _NO_DROPOUT
    values.pop("model_type", None)  # the decoder is a stock RoBERTa for every encoder
    values |= {"num_hidden_layers": layers, "type_vocab_size": 1}
    values |= {"bos_token_id": None, "eos_token_id": None}
    values["vocab_size"] = values["pad_token_id"] + 1  # unused; RoBERTa requires the padding's row
    made = RobertaModel(RobertaConfig(**values), add_pooling_layer=False)
    made.embeddings.word_embeddings.weight.requires_grad_(False)
    with torch.no_grad():
        made.embeddings.position_embeddings.weight.normal_()
    return made


def _shape(config: Any) -> dict[str, Any]:
    """Return the values of a RobertaConfig whose layers have the shape of another family's."""
    width = config.hidden_size
    return {
        "hidden_size": width,
        "num_attention_heads": config.num_attention_heads,
        "intermediate_size": _first(config, ("intermediate_size", "hidden_dim"), 4 * width),
        "hidden_act": _first(config, ("hidden_act", "activation", "hidden_activation"), "gelu"),
        "layer_norm_eps": _epsilon(config),
        "initializer_range": _first(config, ("initializer_range",), 0.02),
        "max_position_embeddings": (limits(config)[0] or _LONGEST) + 1,  # the padding's first
        "pad_token_id": 0,
    }


def _first(config: Any, names: tuple[str, ...], default: Any) -> Any:
    return next((getattr(config, name) for name in names if hasattr(config, name)), default)


def _epsilon(config: Any) -> float:
    found: float = _first(config, ("layer_norm_eps", "norm_eps"), _EPSILON)
    return found


def head_layers(model: Any) -> list[Any]:
    """Return the layers that make logits of states; [] if only the whole model does."""
    if hasattr(model, "lm_predictions"):  # DeBERTa's as released: it reads the word embeddings
        return [lambda states: model.lm_predictions(states, model.get_input_embeddings())]
    names = family_of(model.config, "encoder").head_layers
    return [getattr(model, name) for name in names if hasattr(model, name)]
