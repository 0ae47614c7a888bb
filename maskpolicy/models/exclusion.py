"""MAE-LM (Meng et al. 2024): run the encoder without the excluded masks."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

from maskpolicy.models.families import check_exclusion, family_of

if TYPE_CHECKING:
    import torch

    from maskpolicy.core.types import Denoising
    from maskpolicy.models.training.batching import Batch


def encode(model: Any, batch: Batch) -> torch.Tensor:
    """Return the encoder states of all source positions, (b, n, d), for the decoder to attend to.

    Excluded tokens are hidden from the encoder as the model's family says (see
    `families.Exclusion`); all others keep their positions in the corrupted source. The state at an
    excluded position is what the encoder would return for `<mask>` if it had no layers: in BART
    layernorm(embed(`<mask>`) + position), without dropout. This is Meng et al. 2024, with the
    decoder that the model already has. Padding is never attended to.
    """
    if family_of(model.config).exclusion == "removed":
        return _removed(model.get_encoder(), batch)
    return _unattended(model.get_encoder(), batch)


def checked(model: Any, denoising: Denoising) -> Any:
    """Return a text-to-text model; ConfigError if it cannot have the objective's exclusion."""
    if denoising.mask_exclusion:
        check_exclusion(model.config.model_type, "seq2seq")
    return model


def _unattended(encoder: Any, batch: Batch) -> torch.Tensor:
    """Return the states where no token attends to excluded ones, which stay in the input."""
    inputs: list[torch.Tensor] = []

    def keep(_: Any, args: tuple[Any, ...], more: dict[str, Any]) -> None:
        inputs.append(args[0] if args else more["hidden_states"])

    layers = encoder.block if hasattr(encoder, "block") else encoder.layers
    handle = layers[0].register_forward_pre_hook(keep, with_kwargs=True)
    visible = batch.seen if batch.excluded is None else batch.seen & ~batch.excluded
    try:
        states: torch.Tensor = encoder(
            input_ids=batch.source, attention_mask=visible
        ).last_hidden_state
    finally:
        handle.remove()
    hidden = inputs[0][:, : batch.source.shape[1]]
    for name in ("layer_norm", "final_layer_norm", "norm"):  # after the last layer
        hidden = getattr(encoder, name, lambda same: same)(hidden)
    excluded = ~visible & batch.seen
    return states.masked_scatter(excluded[..., None], hidden[excluded].to(states.dtype))


def _removed(encoder: Any, batch: Batch) -> torch.Tensor:
    """Return the states of a BART encoder whose input lacks the excluded tokens."""
    import torch
    from torch.nn.functional import embedding

    table: Any = encoder.embed_positions
    kept, visible, position = packed(batch)
    tokens = encoder.embed_tokens(batch.source.gather(1, position))
    states = _layers(encoder, tokens + embedding(position + table.offset, table.weight), visible)
    places = torch.arange(batch.source.shape[1], device=batch.source.device) + table.offset
    full: torch.Tensor = encoder.layernorm_embedding(
        encoder.embed_tokens(batch.source) + embedding(places, table.weight)
    )
    full[kept] = states[visible].to(full.dtype)
    return full


def packed(batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the kept tokens as a mask (b, n), and two arrays of the shorter input (b, k).

    These are its attention mask and the original positions of its tokens.
    """
    import torch

    kept = batch.seen if batch.excluded is None else batch.seen & ~batch.excluded
    lengths = kept.sum(1)
    width = int(lengths.max())
    position = torch.argsort(~kept, dim=1, stable=True)[:, :width]
    visible = torch.arange(width, device=kept.device) < lengths[:, None]
    return kept, visible, position


def _layers(encoder: Any, embedded: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
    """Run BART's encoder on embedded tokens, as BartEncoder.forward does."""
    import torch
    from torch.nn.functional import dropout
    from transformers.masking_utils import create_bidirectional_mask

    normed = encoder.layernorm_embedding(embedded)
    states: torch.Tensor = dropout(normed, p=encoder.dropout, training=encoder.training)
    mask = create_bidirectional_mask(
        config=encoder.config, inputs_embeds=embedded, attention_mask=visible.long()
    )
    for layer in encoder.layers:
        if encoder.training and encoder.layerdrop and torch.rand([]) < encoder.layerdrop:
            continue
        states = layer(states, mask)
    return states


_PROJECTIONS = (  # of word embeddings to the width of the layers, where these differ
    "embeddings_project",
    "embeddings.embed_proj",
    "encoder.embedding_hidden_mapping_in",
)


def scattered(encoder: Any, batch: Batch) -> torch.Tensor:
    """Return the input of MAE-LM's decoder, (b, n, d).

    It holds the encoder's states of the tokens that it sees, and the word embedding of `<mask>` at
    excluded positions: the decoder adds the positions. The states are those of the whole source
    with no attention to excluded tokens. Families whose positions can be given are run on the
    shorter source (row `exclusion: removed`).
    """
    if _removes(encoder):
        kept, visible, position = packed(batch)
        tokens = batch.source.gather(1, position)
        shortened: Any = _SHORTENED.get(encoder.config.model_type, _at_positions)
        states = shortened(encoder, tokens, visible, position).last_hidden_state[visible]
    else:
        kept = batch.seen if batch.excluded is None else batch.seen & ~batch.excluded
        out = encoder(input_ids=batch.source, attention_mask=kept.long())
        states = out.last_hidden_state[kept]
    full = _word_rows(encoder, batch.source)
    full[kept] = states.to(full.dtype)
    return full


def _removes(encoder: Any) -> bool:
    """Return True if masks can leave the encoder's input.

    A DeBERTa-v2 with a convolution over neighbouring tokens reads zeros in their place.
    """
    has_convolution = getattr(getattr(encoder, "encoder", None), "conv", None) is not None
    return family_of(encoder.config, "encoder").exclusion == "removed" and not has_convolution


def _word_rows(encoder: Any, ids: torch.Tensor) -> torch.Tensor:
    """Return the word embeddings of ids, (b, n), in the width of the layers, (b, n, d)."""
    rows: torch.Tensor = encoder.get_input_embeddings()(ids)
    for path in _PROJECTIONS:
        project = reduce(lambda part, name: getattr(part, name, None), path.split("."), encoder)
        if project is not None:
            rows = project(rows)
    return rows


def _at_positions(
    encoder: Any, tokens: torch.Tensor, visible: torch.Tensor, position: torch.Tensor
) -> Any:
    """Run a model with absolute positions on the shorter input; its last states are (b, k, d).

    Shapes: `tokens`, `visible` (False at padding) and `position` (in the source) are (b, k).
    """
    first = 0
    if family_of(encoder.config, "encoder").after_padding:
        first = encoder.embeddings.padding_idx + 1
    positions = position + first
    return encoder(input_ids=tokens, attention_mask=visible.long(), position_ids=positions)


def _disentangled(
    encoder: Any, tokens: torch.Tensor, visible: torch.Tensor, position: torch.Tensor
) -> Any:
    """Run a DeBERTa-v2, whose attention reads the distances of tokens.

    Its own forward takes distances of indices, which are the same for all texts. The layers accept
    distances of each text and head, in one dimension, as (1, b * heads, k, k).
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
    """Run a ModernBERT, whose local attention reads a window of positions.

    Its own forward takes the window of indices; it accepts masks for both kinds of layers.
    """
    import torch

    near = (position[:, :, None] - position[:, None, :]).abs() <= encoder.config.sliding_window
    itself = torch.eye(tokens.shape[1], dtype=torch.bool, device=tokens.device)
    full = visible[:, None, :] | itself  # padding attends to itself: no row may be empty
    masks = {"full_attention": full, "sliding_attention": full & near}
    given = {name: _attention_mask(encoder, mask[:, None]) for name, mask in masks.items()}
    return encoder(input_ids=tokens, attention_mask=given, position_ids=position)


def _attention_mask(encoder: Any, mask: torch.Tensor) -> torch.Tensor:
    """Return a mask, (b, 1, k, k), as the model's attention takes it: boolean, or to be added."""
    import torch

    if encoder.config._attn_implementation != "eager":
        return mask
    lowest = torch.finfo(encoder.dtype).min
    return torch.zeros(mask.shape, dtype=encoder.dtype, device=mask.device).masked_fill(
        ~mask, lowest
    )


_SHORTENED = {"deberta-v2": _disentangled, "modernbert": _rotary}
