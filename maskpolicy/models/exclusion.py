"""MAE-LM: run the encoder without the excluded `<mask>` tokens (Meng et al. 2024)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from maskpolicy.errors import ConfigError

if TYPE_CHECKING:
    import torch

    from maskpolicy.training.batching import Batch


def encode(model: Any, batch: Batch) -> torch.Tensor:
    """Return the encoder states of all source positions, (b, n, d), for the decoder to attend to.

    Excluded tokens are removed from the encoder's input. The tokens that are kept have the position
    embeddings of their indices in the corrupted source. The state at an excluded position is the
    output of BART's input layer for `<mask>`, without dropout: layernorm(embed(`<mask>`) +
    position). This is Meng et al. 2024, with the decoder that BART already has. Padding is never
    attended to. Raises ConfigError for an encoder without learned positions.
    """
    import torch
    from torch.nn.functional import embedding

    encoder = model.get_encoder()
    table: Any = getattr(encoder, "embed_positions", None)
    if not hasattr(table, "offset"):
        raise ConfigError(
            f"mask_exclusion: the encoder of {type(model).__name__} has no learned positions: "
            "set mask_exclusion: 0"
        )
    kept, visible, position = _packed(batch)
    tokens = encoder.embed_tokens(batch.source.gather(1, position))
    states = _layers(encoder, tokens + embedding(position + table.offset, table.weight), visible)
    places = torch.arange(batch.source.shape[1], device=batch.source.device) + table.offset
    full: torch.Tensor = encoder.layernorm_embedding(
        encoder.embed_tokens(batch.source) + embedding(places, table.weight)
    )
    full[kept] = states[visible].to(full.dtype)
    return full


def scattered(encoder: Any, batch: Batch) -> torch.Tensor:
    """Return the input of MAE-LM's decoder for a RoBERTa encoder, (b, n, d).

    As `encode`, but an excluded position holds only the encoder's word embedding of `<mask>`: the
    decoder adds the positions.
    """
    kept, visible, position = _packed(batch)
    states = encoder(
        input_ids=batch.source.gather(1, position),
        attention_mask=visible.long(),
        position_ids=position + encoder.embeddings.padding_idx + 1,
    ).last_hidden_state
    full: torch.Tensor = encoder.embeddings.word_embeddings(batch.source)
    full[kept] = states[visible].to(full.dtype)
    return full


def _packed(batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
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
