"""MAE-LM in a text-to-text model: the encoder runs without the excluded `<mask>` tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from maskpolicy.errors import ConfigError

if TYPE_CHECKING:
    import torch

    from maskpolicy.batching import Batch


def encode(model: Any, batch: Batch) -> torch.Tensor:
    """Return encoder states of full length, (b, n, d), for the decoder to attend to.

    The encoder's input is physically shorter: excluded tokens are removed, kept ones look their
    positions up at their indices in the corrupted source. At an excluded position stands what
    BART's input layer makes of `<mask>` there, without dropout: layernorm(embed(`<mask>`) +
    position) (Meng et al. 2024, with the decoder that BART already has). Nothing attends padding.
    Raises ConfigError for an encoder without learned positions.
    """
    import torch
    from torch.nn.functional import embedding

    encoder = model.get_encoder()
    table: Any = getattr(encoder, "embed_positions", None)
    if not hasattr(table, "offset"):
        raise ConfigError(
            f"mask_exclusion: the encoder of {type(model).__name__} has no learned positions to "
            "look kept tokens up at: set mask_exclusion: 0"
        )
    excluded = batch.excluded
    kept = batch.seen if excluded is None else batch.seen & ~excluded
    visible, position = _packed(kept)
    tokens = encoder.embed_tokens(batch.source.gather(1, position))
    states = _layers(encoder, tokens + embedding(position + table.offset, table.weight), visible)
    places = torch.arange(batch.source.shape[1], device=batch.source.device) + table.offset
    full = encoder.layernorm_embedding(
        encoder.embed_tokens(batch.source) + embedding(places, table.weight)
    )
    full[kept] = states[visible].to(full.dtype)
    return full


def _packed(kept: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (b, k) which places of the shorter input are filled, and their original positions."""
    import torch

    lengths = kept.sum(1)
    width = int(lengths.max())
    position = torch.argsort(~kept, dim=1, stable=True)[:, :width]
    visible = torch.arange(width, device=kept.device) < lengths[:, None]
    return visible, position


def _layers(encoder: Any, embedded: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
    """Run BART's encoder behind its embeddings, as BartEncoder.forward does."""
    import torch
    from torch.nn.functional import dropout
    from transformers.masking_utils import create_bidirectional_mask

    states = encoder.layernorm_embedding(embedded)
    states = dropout(states, p=encoder.dropout, training=encoder.training)
    mask = create_bidirectional_mask(
        config=encoder.config, inputs_embeds=embedded, attention_mask=visible.long()
    )
    for layer in encoder.layers:
        if encoder.training and encoder.layerdrop and torch.rand([]) < encoder.layerdrop:
            continue
        states = layer(states, mask)
    return states
