"""Text-to-text models of any family: loading, special tokens, and the loss of a batch."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from maskpolicy.core.errors import ConfigError
from maskpolicy.core.types import Denoising
from maskpolicy.models.cpu import TrainingLoss
from maskpolicy.models.families import check_exclusion, family_of, freeze_constants
from maskpolicy.models.loading import load_config, load_reported
from maskpolicy.models.training.batching import IGNORE
from maskpolicy.models.training.specials import Specials, decoder_start

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

    from maskpolicy.models.training.batching import Batch


_KEPT = (  # of a generation_config
    *("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"),
    *("forced_bos_token_id", "forced_eos_token_id", "max_new_tokens"),
)


def load(name: str, revision: str | None = None, **settings: Any) -> Any:
    """Load a text-to-text model from a folder or Hub name in float32.

    `settings` are passed to from_pretrained, e.g. attn_implementation="eager". Raises ConfigError
    if the model does not exist, is not text-to-text, or lacks weights.
    """
    from transformers import AutoModelForSeq2SeqLM

    check_architecture(name, revision)
    model, _ = load_reported(AutoModelForSeq2SeqLM, name, revision, **settings)
    freeze_constants(model)
    if model.config.model_type == "umt5" and model.lm_head.weight is not model.shared.weight:
        model.model_dim = 1  # Transformers would scale the states of an untied head, too
    return model


def check_architecture(name: str, revision: str | None = None) -> None:
    """Raise ConfigError unless a model is text-to-text by its configuration; reads no weights."""
    from transformers import AutoModelForSeq2SeqLM

    config = load_config(name, revision)
    known = type(config) in AutoModelForSeq2SeqLM._model_mapping
    if not (known and config.is_encoder_decoder):
        raise ConfigError(
            f"model {name}: {config.model_type} is not text-to-text (an encoder needs model.kind: "
            "encoder; `maskpolicy list models` names the families)"
        )


def specials(tokenizer: PreTrainedTokenizerBase, model: Any) -> Specials:
    """Return a tokenizer's special tokens, with the first input of the model's decoder."""
    return Specials.of(tokenizer, decoder_start(model))


def complete_generation(model: Any, specials: Specials) -> None:
    """Let `generate` begin and end as targets do, whatever tokens the checkpoint states for it."""
    config, eos = model.generation_config, specials.eos
    if config.decoder_start_token_id is None:
        config.decoder_start_token_id = specials.start
    before, _ = specials.ends("max_target")
    if specials.target_ends or config.forced_bos_token_id is not None:
        config.forced_bos_token_id = before[0] if before else None
    ends = config.eos_token_id  # one or several
    if eos not in (ends if isinstance(ends, list) else [ends]):
        config.eos_token_id = eos
        if config.forced_eos_token_id is not None:
            config.forced_eos_token_id = eos


def set_greedy(model: Any) -> None:
    """Make `generate` greedy, with the model's special tokens and max_new_tokens.

    The settings of published models are for summaries: with facebook/bart-base's
    no_repeat_ngram_size 3 and four beams, some answers cannot be generated.
    """
    from transformers import GenerationConfig

    own = {name: getattr(model.generation_config, name) for name in _KEPT}
    model.generation_config = GenerationConfig(**own)


def training_module(model: Any, denoising: Denoising, layers: int, seed: int) -> Any:
    """Return the model itself; ConfigError if the objective excludes masks and it cannot."""
    if denoising.mask_exclusion:
        check_exclusion(model.config.model_type, "seq2seq")
    return model


def states(model: Any, batch: Batch) -> torch.Tensor:
    """Return the decoder's last states, (b, m, d), as input of the LM head.

    T5 scales them by d ** -0.5 if it was trained with tied embeddings.
    """
    last: torch.Tensor
    body = getattr(model, "model", getattr(model, "led", None))
    if body is not None:  # of all families but T5's
        last = body(
            **_read(model, batch),
            attention_mask=batch.mask,
            decoder_input_ids=batch.decoder,
            use_cache=False,
        ).last_hidden_state
        return last
    if batch.excluded is None:
        memory = model.encoder(input_ids=batch.source, attention_mask=batch.mask).last_hidden_state
    else:
        memory = encode(model, batch)
    last = model.decoder(
        input_ids=batch.decoder,
        encoder_hidden_states=memory,
        encoder_attention_mask=batch.mask,
        use_cache=False,
    ).last_hidden_state
    config = model.config
    is_scaled = getattr(config, "scale_decoder_outputs", config.tie_word_embeddings)
    # UMT5's `model_dim` is 1 if its head is its own: see `load`
    return last * model.model_dim**-0.5 if is_scaled and config.model_type != "mt5" else last


def label_logits(model: Any, batch: Batch) -> torch.Tensor:
    """Return the logits of a batch's k labels, (k, v), row by row.

    The LM head runs on these positions only, except in a model of an unknown family.
    """
    head = family_of(model.config).head
    if head != "own":
        logits: torch.Tensor = model.lm_head(batch.labelled(states(model, batch)))
        if head == "capped" and (cap := model.config.decoder.final_logit_softcapping):
            logits = (logits / cap).tanh() * cap
        bias = getattr(model, "final_logits_bias", None)
        return logits if bias is None else logits + bias[0].to(logits.dtype)
    every: torch.Tensor = model(
        **_read(model, batch),
        attention_mask=batch.seen.long(),  # ProphetNet subtracts it from 1
        decoder_input_ids=batch.decoder,
        use_cache=False,
    ).logits
    return batch.labelled(every)


def _read(model: Any, batch: Batch) -> dict[str, Any]:
    """Return the encoder's input as an argument, or its states if masks are excluded."""
    if batch.excluded is None:
        return {"input_ids": batch.source}
    from transformers.modeling_outputs import BaseModelOutput

    return {"encoder_outputs": BaseModelOutput(last_hidden_state=encode(model, batch))}


def encode(model: Any, batch: Batch) -> torch.Tensor:
    """Return the encoder states of all source positions, (b, n, d), for the decoder to attend to.

    The model's family decides how excluded tokens are hidden from the encoder (see
    `families.Exclusion`); all others keep their positions in the corrupted source. The state at an
    excluded position is the one of an encoder without layers: in BART layernorm(embed(`<mask>`) +
    position), without dropout. This is MAE-LM (Meng et al. 2024) with the model's own decoder.
    Nothing attends to padding.
    """
    is_removed = family_of(model.config).exclusion == "removed"
    return (_removed if is_removed else _unattended)(model.get_encoder(), batch)


def _unattended(encoder: Any, batch: Batch) -> torch.Tensor:
    """Return the states if excluded tokens stay in the input, and no token attends to them."""
    inputs: list[torch.Tensor] = []

    def keep(_: Any, args: tuple[Any, ...], more: dict[str, Any]) -> None:
        inputs.append(args[0] if args else more["hidden_states"])

    layers = encoder.block if hasattr(encoder, "block") else encoder.layers
    # of all layers, because layerdrop may leave out the first
    handles = [layer.register_forward_pre_hook(keep, with_kwargs=True) for layer in layers]
    visible = batch.kept
    try:
        states: torch.Tensor = encoder(
            input_ids=batch.source, attention_mask=visible
        ).last_hidden_state
    finally:
        for handle in handles:
            handle.remove()
    if not inputs:  # all layers were dropped
        return states
    hidden = inputs[0][:, : batch.source.shape[1]]
    for name in ("layer_norm", "final_layer_norm", "norm"):  # after the last layer
        hidden = getattr(encoder, name, lambda same: same)(hidden)
    excluded = ~visible & batch.seen
    return hidden.to(states.dtype).where(excluded[..., None], states)


def _removed(encoder: Any, batch: Batch) -> torch.Tensor:
    """Return the states of a BART encoder whose input lacks the excluded tokens."""
    import torch
    from torch.nn.functional import embedding

    table: Any = encoder.embed_positions
    packing = batch.packing
    tokens = encoder.embed_tokens(batch.source.gather(1, packing.position))
    places = embedding(packing.position + table.offset, table.weight)
    states = _layers(encoder, tokens + places, packing.visible)
    places = torch.arange(batch.source.shape[1], device=batch.source.device) + table.offset
    full = encoder.layernorm_embedding(
        encoder.embed_tokens(batch.source) + embedding(places, table.weight)
    )
    return packing.scattered(states, full)


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


def token_loss(model: Any, batch: Batch) -> tuple[torch.Tensor, int]:
    """Return the summed cross-entropy of a batch's labels, weighted, and their number.

    The LM head runs on labelled positions only. Excluded tokens are hidden from the encoder.
    """
    from maskpolicy.models import crossentropy

    labels = batch.targets
    if family_of(model.config).head != "linear":
        logits = label_logits(model, batch)
        return crossentropy.of_logits(logits, labels, batch.label_weights), len(labels)
    labelled = batch.labelled(states(model, batch))
    weight = model.lm_head.weight
    bias = getattr(model, "final_logits_bias", None)
    bias = None if bias is None else bias[0].to(weight.dtype)
    losses = crossentropy.summed(labelled, weight, bias, labels, batch.label_weights)
    return losses, len(labels)


training_loss = partial(TrainingLoss, token_loss, lambda cpu, model: cpu.BartGradients(model))
"""training_loss() returns `token_loss` for one training."""


def row_losses(model: Any, batch: Batch) -> torch.Tensor:
    """Return the mean cross-entropy of each row's labels, (b,), in at least single precision.

    Every weight is used through its module's own forward, as `higher` requires, and every operation
    supports forward-mode and second derivatives (see `learned.innerloop`).
    """
    import torch
    from torch.nn.functional import cross_entropy

    kept, logits = batch.labels != IGNORE, label_logits(model, batch)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    losses = cross_entropy(logits, batch.targets, reduction="none")
    counts = kept.sum(1)
    rows = torch.arange(len(counts), device=counts.device).repeat_interleave(counts)
    return losses.new_zeros(len(counts)).index_add(0, rows, losses) / counts
