"""MAE-LM for encoders: the states of the tokens that are left, each at its original position."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

from maskpolicy.models.families import family_of
from maskpolicy.models.text_to_text_exclusion import packed

if TYPE_CHECKING:
    import torch

    from maskpolicy.training.batching import Batch

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
        shortened = _SHORTENED.get(encoder.config.model_type, _at_positions)
        states = shortened(encoder, tokens, visible, position)[visible]
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
) -> torch.Tensor:
    """Return the states of the shorter input, (b, k, d), of a model with absolute positions.

    Shapes: `tokens`, `visible` (False at padding) and `position` (in the source) are (b, k).
    """
    first = 0
    if family_of(encoder.config, "encoder").after_padding:
        first = encoder.embeddings.padding_idx + 1
    out = encoder(input_ids=tokens, attention_mask=visible.long(), position_ids=position + first)
    states: torch.Tensor = out.last_hidden_state
    return states


def _disentangled(
    encoder: Any, tokens: torch.Tensor, visible: torch.Tensor, position: torch.Tensor
) -> torch.Tensor:
    """Return the same of a DeBERTa-v2, whose attention reads the distances of tokens.

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
    out = layers(embedded, mask, output_hidden_states=False, relative_pos=distances)
    states: torch.Tensor = out.last_hidden_state
    return states


def _rotary(
    encoder: Any, tokens: torch.Tensor, visible: torch.Tensor, position: torch.Tensor
) -> torch.Tensor:
    """Return the same of a ModernBERT, whose local attention reads a window of positions.

    Its own forward takes the window of indices; it accepts masks for both kinds of layers.
    """
    import torch

    near = (position[:, :, None] - position[:, None, :]).abs() <= encoder.config.sliding_window
    itself = torch.eye(tokens.shape[1], dtype=torch.bool, device=tokens.device)
    full = visible[:, None, :] | itself  # padding attends to itself: no row may be empty
    masks = {"full_attention": full, "sliding_attention": full & near}
    given = {name: _attention_mask(encoder, mask[:, None]) for name, mask in masks.items()}
    out = encoder(input_ids=tokens, attention_mask=given, position_ids=position)
    states: torch.Tensor = out.last_hidden_state
    return states


def _attention_mask(encoder: Any, mask: torch.Tensor) -> torch.Tensor:
    """Return a mask, (b, 1, k, k), as the model's attention takes it: boolean, or to be added."""
    import torch

    if encoder.config._attn_implementation != "eager":
        return mask
    lowest = torch.finfo(encoder.dtype).min
    return torch.zeros(mask.shape, dtype=encoder.dtype, device=mask.device).masked_fill(
        ~mask, lowest
    )


_SHORTENED: Mapping[str, Callable[[Any, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]]
_SHORTENED = {"deberta-v2": _disentangled, "modernbert": _rotary}
