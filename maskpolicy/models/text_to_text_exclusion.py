"""MAE-LM for text-to-text models: run the encoder without the excluded masks (Meng et al. 2024)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from maskpolicy.models.families import check_exclusion, family_of

if TYPE_CHECKING:
    import torch

    from maskpolicy.training.batching import Batch
    from maskpolicy.types import Denoising


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
