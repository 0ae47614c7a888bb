"""The modules that pre-train an encoder: the body, MAE-LM's decoder, and a head.

MAE-LM (Meng et al. 2024) runs the encoder without the excluded masks. ELECTRA (Clark et al. 2020)
runs it on text whose masks a generator has filled.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, gelu, linear
from transformers import (
    AutoModelForMaskedLM,
    ElectraConfig,
    ElectraForMaskedLM,
    RobertaConfig,
    RobertaModel,
)
from transformers.models.electra.modeling_electra import ElectraDiscriminatorPredictions

from maskpolicy.models.families import family_of, limits
from maskpolicy.models.training.batching import IGNORE

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
        nn.init.normal_(self.dense.weight, std=getattr(config, "initializer_range", 0.02))
        nn.init.zeros_(self.dense.bias)
        self.layer_norm = nn.LayerNorm(rows.shape[1], eps=_epsilon(config))
        self.bias = nn.Parameter(torch.zeros(len(rows)))

    def forward(self, batch: Batch) -> torch.Tensor:
        """Return the last states of a batch's k labels, (k, d), row by row."""
        body, given = self.encoder, {"input_ids": batch.source}
        if self.decoder is not None:
            body, given = self.decoder, {"inputs_embeds": scattered(self.encoder, batch)}
        with _labels_alone(body, batch):
            out = body(**given, attention_mask=batch.attended)
        return batch.labelled(out.last_hidden_state)

    def hidden(self, states: torch.Tensor) -> torch.Tensor:
        """Return the input of the head's matrix, (k, d), for the states of k positions."""
        return self.layer_norm(gelu(self.dense(states)))

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """Return the logits, (k, v), of the states of k positions, (k, d)."""
        rows = self.encoder.get_input_embeddings().weight
        return linear(self.hidden(states), rows, self.bias)

    def label_logits(self, batch: Batch) -> torch.Tensor:
        """Return the logits of a batch's k labels, (k, v), row by row."""
        return self.logits(self(batch))

    @property
    def saved(self) -> Any:
        """The model with its head; only the body if the head was trained on a decoder."""
        if self.decoder is not None:
            return self.encoder
        model = masked_lm(self.encoder, "meta")
        model.config.tie_word_embeddings = True  # or a loaded model would draw another matrix
        head = model.lm_head
        head.dense, head.layer_norm, head.bias = self.dense, self.layer_norm, self.bias
        head.decoder.bias, head.decoder.weight = self.bias, model.get_input_embeddings().weight
        return model


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
        for layer in head_layers(self.model):
            states = layer(states)
        return states

    def label_logits(self, batch: Batch) -> torch.Tensor:
        """Return the logits of a batch's k labels, (k, v), row by row."""
        if head_layers(self.model):
            return super().label_logits(batch)
        out = self.model(input_ids=batch.source, attention_mask=batch.attended)
        return batch.labelled(out.logits)

    @property
    def saved(self) -> Any:
        """The model with its head; only the body if the head was trained on a decoder."""
        return self.model if self.decoder is None else self.encoder


class ReplacedTokenDetector(nn.Module):
    """An encoder with ELECTRA's head, and the generator that fills the masks of its input."""

    def __init__(self, encoder: Any, width: float) -> None:
        super().__init__()
        model = _generator(encoder, width)
        self.encoder, self.generator = encoder, OwnHead(model, None)
        self.head = ElectraDiscriminatorPredictions(ElectraConfig(**_shape(encoder.config)))
        self.head.apply(model._init_weights)

    def label_logits(self, batch: Batch) -> torch.Tensor:
        """Return the generator's logits of a batch's k labels, (k, v), row by row."""
        return self.generator.label_logits(batch)

    def detection_loss(self, batch: Batch, logits: torch.Tensor) -> torch.Tensor:
        """Return the weighted sum of the binary cross-entropy of all tokens.

        The encoder reads a token drawn from each row of the generator's `logits`, (k, v), in place
        of a masked one. The label is 1 where that is another token; no gradient flows through it.
        """
        assert batch.draws is not None
        places, padding = batch.places, self.encoder.config.pad_token_id
        chances = logits.detach().float().softmax(1)
        if padding is not None:  # some models count positions without the padding
            chances[:, padding] = 0
        below = chances.cumsum(1)
        drawn = batch.draws.flatten()[places][:, None] * below[:, -1:]
        tokens = torch.searchsorted(below, drawn, right=True)[:, 0].clamp(max=below.shape[1] - 1)
        original = batch.labels.where(batch.labels != IGNORE, batch.source).flatten()
        tokens = tokens.where(batch.targets != IGNORE, original[places])
        filled = original.index_copy(0, places, tokens)
        is_replaced = (filled != original).float().view_as(batch.source)
        out = self.encoder(filled.view_as(batch.source), attention_mask=batch.attended)
        scores = self.head(out.last_hidden_state).float()
        return binary_cross_entropy_with_logits(
            scores, is_replaced, batch.detection, reduction="sum"
        )

    @property
    def saved(self) -> Any:
        """The body, without generator and head."""
        return self.encoder


_BLOCKS = (  # a body's layers, and the first and last part of a layer's feed-forward block
    ("encoder.layer", "intermediate", "output.dense"),
    ("transformer.layer", "ffn", "ffn"),
    ("layers", "mlp", "mlp"),
)


@contextmanager
def _labels_alone(body: Any, batch: Batch) -> Iterator[None]:
    """Let the last feed-forward block of a body compute the labelled tokens alone.

    It treats each token by itself, so their last states are the same up to rounding. Those of other
    tokens are wrong, and so is what a pooler makes of them. With gradients all tokens are computed,
    because dropout within a block would draw other numbers, and where `_last_block` knows none.
    """
    block = None if torch.is_grad_enabled() else _last_block(body)
    if block is None:
        yield
        return

    def select(_: Any, inputs: tuple[torch.Tensor]) -> torch.Tensor:
        return batch.labelled(inputs[0])[None]

    def spread(_: Any, inputs: Any, out: torch.Tensor) -> torch.Tensor:
        full = out.new_zeros(batch.source.numel(), out.shape[-1])
        return full.index_copy(0, batch.places, out[0]).view(*batch.source.shape, -1)

    hooks = block[0].register_forward_pre_hook(select), block[1].register_forward_hook(spread)
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _last_block(body: Any) -> tuple[nn.Module, nn.Module] | None:
    """Return the first and the last part of the last feed-forward block.

    None for families without a row, for a block that reads its tokens in chunks, and for DeBERTa-v2
    with a convolution, which reads the neighbours of a token.
    """
    is_chunked = getattr(body.config, "chunk_size_feed_forward", 0) > 0
    if not family_of(body.config).types or is_chunked or _has_convolution(body):
        return None
    for path, first, last in _BLOCKS:
        if (layers := _part(body, path)) is not None:
            return _part(layers[-1], first), _part(layers[-1], last)
    return None


def _has_convolution(encoder: Any) -> bool:
    """Return whether a DeBERTa-v2 has a convolution over neighbouring tokens."""
    return _part(encoder, "encoder.conv") is not None


def _part(module: Any, path: str) -> Any:
    """Return the part of a module at a path of names with dots; None if there is none."""
    return reduce(lambda part, name: getattr(part, name, None), path.split("."), module)


def _generator(encoder: Any, width: float) -> Any:
    """Return ELECTRA's generator for an encoder: a share `width` of its width, as many layers.

    It is an ElectraForMaskedLM for every encoder, with the encoder's word embeddings, and positions
    of its own. Its heads and feed-forward layers have the sizes of the released code.
    """
    config, words = encoder.config, encoder.get_input_embeddings()
    rows, size = words.weight.shape
    hidden = max(1, round(width * config.hidden_size))
    heads = (n for n in range(max(1, hidden // 64), 0, -1) if hidden % n == 0)
    values = _shape(config) | {"hidden_size": hidden, "intermediate_size": 4 * hidden}
    values |= {"vocab_size": rows, "embedding_size": size, "num_attention_heads": next(heads)}
    values["num_hidden_layers"] = config.num_hidden_layers
    dropout = next((part.p for part in encoder.modules() if isinstance(part, nn.Dropout)), 0.0)
    model = ElectraForMaskedLM(ElectraConfig(**values | dict.fromkeys(_NO_DROPOUT, dropout)))
    model.electra.embeddings.word_embeddings = words
    model.generator_lm_head.weight = words.weight
    return model


def masked_lm(body: Any, device: str) -> Any:
    """Return Transformers' masked language model of a body, with a new head on `device`."""
    known: Any = AutoModelForMaskedLM._model_mapping
    with torch.device(device):
        model = known[type(body.config)](body.config)
    setattr(model, model.base_model_prefix, body)
    return model


def shallow_decoder(config: Any, layers: int) -> Any:
    """Return MAE-LM's decoder: bidirectional, no dropout, with its own positions and LayerNorm.

    It is a RobertaModel on embeddings, to which it adds positions before LayerNorm, as in the
    released code of Meng et al. 2024. Its word embeddings are unused. Positions have the scale of
    the encoder's outputs: smaller ones have no effect (docs/development/log.md).
    """
    values = config.to_dict() if family_of(config).new_head else _shape(config)
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
    """Return the values of a RobertaConfig with layers of the shape of another family's."""
    width = config.hidden_size
    return {
        "hidden_size": width,
        "num_attention_heads": config.num_attention_heads,
        "intermediate_size": _first(config, ("intermediate_size", "hidden_dim"), 4 * width),
        "hidden_act": _first(config, ("hidden_act", "activation", "hidden_activation"), "gelu"),
        "layer_norm_eps": _epsilon(config),
        "initializer_range": getattr(config, "initializer_range", 0.02),
        "max_position_embeddings": (limits(config)[0] or _LONGEST) + 1,  # the padding's first
        "pad_token_id": 0,
    }


def _first(config: Any, names: tuple[str, ...], default: Any) -> Any:
    return next((getattr(config, name) for name in names if hasattr(config, name)), default)


def _epsilon(config: Any) -> float:
    return _first(config, ("layer_norm_eps", "norm_eps"), _EPSILON)


def head_layers(model: Any) -> list[Any]:
    """Return the layers that compute logits from states; [] if the family states none."""
    if hasattr(model, "lm_predictions"):  # DeBERTa's as released: it reads the word embeddings
        return [lambda states: model.lm_predictions(states, model.get_input_embeddings())]
    names = family_of(model.config).head_layers
    return [getattr(model, name) for name in names if hasattr(model, name)]


_PROJECTIONS = (  # of word embeddings to the width of the layers, where these differ
    "embeddings_project",
    "embeddings.embed_proj",
    "encoder.embedding_hidden_mapping_in",
)


def scattered(encoder: Any, batch: Batch) -> torch.Tensor:
    """Return the input of MAE-LM's decoder, (b, n, d), without positions.

    It holds the encoder's states, computed without attention to excluded tokens, and the word
    embedding of `<mask>` at excluded positions. Families with `exclusion: removed`, which accept
    positions, read the shorter source.
    """
    is_removed = family_of(encoder.config).exclusion == "removed"
    if is_removed and not _has_convolution(encoder):  # it would read zeros instead of masks
        packing = batch.packing
        tokens = batch.source.gather(1, packing.position)
        shortened: Any = SHORTENED.get(encoder.config.model_type, _at_positions)
        out = shortened(encoder, tokens, packing.visible, packing.position)
        return packing.scattered(out.last_hidden_state, _word_rows(encoder, batch.source))
    out = encoder(input_ids=batch.source, attention_mask=batch.kept.long())
    full = _word_rows(encoder, batch.source)
    states: torch.Tensor = out.last_hidden_state
    return states.to(full.dtype).where(batch.kept[..., None], full)


def _word_rows(encoder: Any, ids: torch.Tensor) -> torch.Tensor:
    """Return the word embeddings of ids, (b, n), in the width of the layers, (b, n, d)."""
    rows: torch.Tensor = encoder.get_input_embeddings()(ids)
    for path in _PROJECTIONS:
        if (project := _part(encoder, path)) is not None:
            rows = project(rows)
    return rows


def _at_positions(
    encoder: Any, tokens: torch.Tensor, visible: torch.Tensor, position: torch.Tensor
) -> Any:
    """Run a model with absolute positions on the shorter input; its last states are (b, k, d).

    Shapes: `tokens`, `visible` (False at padding) and `position` (in the source) are (b, k).
    """
    first = 0
    if family_of(encoder.config).after_padding:
        first = encoder.embeddings.padding_idx + 1
    positions = position + first
    return encoder(input_ids=tokens, attention_mask=visible.long(), position_ids=positions)


def _disentangled(
    encoder: Any, tokens: torch.Tensor, visible: torch.Tensor, position: torch.Tensor
) -> Any:
    """Run a DeBERTa-v2, whose attention depends on the distances of tokens.

    Its own forward uses the distances of indices. Its layers accept distances for each text and
    head, as (1, b * heads, k, k).
    """
    from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

    layers, mask = encoder.encoder, visible.long()
    embedded = encoder.embeddings(input_ids=tokens, position_ids=position, mask=mask)
    distances = None
    if layers.relative_attention:
        distances = position[:, :, None] - position[:, None, :]
        if layers.position_buckets > 0:
            distances = make_log_bucket_position(
                distances, layers.position_buckets, layers.max_relative_positions
            ).long()
        heads = encoder.config.num_attention_heads
        distances = distances.repeat_interleave(heads, dim=0)[None]
    return layers(embedded, mask, output_hidden_states=False, relative_pos=distances)


def _rotary(
    encoder: Any, tokens: torch.Tensor, visible: torch.Tensor, position: torch.Tensor
) -> Any:
    """Run a ModernBERT, whose local attention has a window of positions.

    By default the window is of indices; the model accepts masks for both kinds of layers.
    """
    near = (position[:, :, None] - position[:, None, :]).abs() <= encoder.config.sliding_window
    itself = torch.eye(tokens.shape[1], dtype=torch.bool, device=tokens.device)
    full = visible[:, None, :] | itself  # padding attends to itself: no row may be empty
    masks = {"full_attention": full, "sliding_attention": full & near}
    given = {name: _attention_mask(encoder, mask[:, None]) for name, mask in masks.items()}
    return encoder(input_ids=tokens, attention_mask=given, position_ids=position)


def _attention_mask(encoder: Any, mask: torch.Tensor) -> torch.Tensor:
    """Return a mask, (b, 1, k, k), for the model's attention: boolean, or to add if eager."""
    if encoder.config._attn_implementation != "eager":
        return mask
    lowest = torch.finfo(encoder.dtype).min
    return torch.zeros(mask.shape, dtype=encoder.dtype, device=mask.device).masked_fill(
        ~mask, lowest
    )


SHORTENED = {"deberta-v2": _disentangled, "modernbert": _rotary}
