"""Run a text-to-text model of any family on a batch, up to its LM head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from maskpolicy.models.families import family_of
from maskpolicy.models.text_to_text_exclusion import encode

if TYPE_CHECKING:
    import torch

    from maskpolicy.training.batching import Batch


def states(model: Any, batch: Batch) -> torch.Tensor:
    """Return what the matrix of the LM head multiplies, (b, m, d): the decoder's last states.

    T5 scales them by d ** -0.5 if it was trained with tied embeddings.
    """
    memory = None if batch.excluded is None else encode(model, batch)
    for name in ("model", "led"):  # the body has both parts in all families but T5's
        if (body := getattr(model, name, None)) is not None:
            return _last(body, batch, memory)
    if memory is None:
        memory = model.encoder(input_ids=batch.source, attention_mask=batch.seen).last_hidden_state
    found: torch.Tensor = model.decoder(
        input_ids=batch.decoder,
        encoder_hidden_states=memory,
        encoder_attention_mask=batch.seen,
        use_cache=False,
    ).last_hidden_state
    config = model.config
    if config.model_type == "mt5":  # never scales
        return found
    is_scaled = getattr(config, "scale_decoder_outputs", config.tie_word_embeddings)
    return found * config.d_model**-0.5 if is_scaled else found


def logits(model: Any, batch: Batch, kept: torch.Tensor) -> torch.Tensor:
    """Return the logits, (k, v), at the k labelled positions that `kept`, (b, m), marks.

    The matrix runs on these positions alone, except in a model of an unknown family.
    """
    head = family_of(model.config).head
    if head != "own":
        found: torch.Tensor = model.lm_head(states(model, batch)[kept])
        if head == "capped" and (cap := model.config.decoder.final_logit_softcapping):
            found = (found / cap).tanh() * cap
        bias = getattr(model, "final_logits_bias", None)
        return found if bias is None else found + bias[0].to(found.dtype)
    from transformers.modeling_outputs import BaseModelOutput

    seen: dict[str, Any] = {"input_ids": batch.source}
    if batch.excluded is not None:
        seen = {"encoder_outputs": BaseModelOutput(last_hidden_state=encode(model, batch))}
    every: torch.Tensor = model(  # some of these compute with the mask as a number
        **seen, attention_mask=batch.seen.long(), decoder_input_ids=batch.decoder, use_cache=False
    ).logits
    return every[kept]


def _last(body: Any, batch: Batch, memory: torch.Tensor | None) -> torch.Tensor:
    from transformers.modeling_outputs import BaseModelOutput

    seen: dict[str, Any] = {"input_ids": batch.source}
    if memory is not None:
        seen = {"encoder_outputs": BaseModelOutput(last_hidden_state=memory)}
    found: torch.Tensor = body(
        **seen, attention_mask=batch.seen, decoder_input_ids=batch.decoder, use_cache=False
    ).last_hidden_state
    return found
