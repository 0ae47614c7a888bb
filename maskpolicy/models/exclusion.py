"""MAE-LM: the encoder runs without the excluded `<mask>` tokens (Meng et al. 2024)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from maskpolicy.errors import ConfigError

if TYPE_CHECKING:
    import torch

    from maskpolicy.training.batching import Batch


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
    """Return what MAE-LM's decoder is given for a RoBERTa encoder, (b, n, d).

    As `encode`, but an excluded position holds the encoder's own row of `<mask>` alone: positions
    are added by the decoder.
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
    """Return which tokens are kept, (b, n), and of the shorter input, (b, k), what it holds.

    That is: which of its places are filled, and the original positions of the tokens there.
    """
    import torch

    kept = batch.seen if batch.excluded is None else batch.seen & ~batch.excluded
    lengths = kept.sum(1)
    width = int(lengths.max())
    position = torch.argsort(~kept, dim=1, stable=True)[:, :width]
    visible = torch.arange(width, device=kept.device) < lengths[:, None]
    return kept, visible, position


def _layers(encoder: Any, embedded: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
    """Run BART's encoder behind its embeddings, as BartEncoder.forward does."""
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
