"""Encoders of any family: loaded, and pre-trained by masked language modelling or as MAE-LM."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from maskpolicy.core.errors import ConfigError
from maskpolicy.core.seeding import generator
from maskpolicy.experiment.definition import HeadChoice
from maskpolicy.models.cpu import TrainingLoss
from maskpolicy.models.families import check_exclusion, family_of, freeze_constants
from maskpolicy.models.loading import load_config, load_reported, load_weights

if TYPE_CHECKING:
    import torch

    from maskpolicy.core.types import Denoising
    from maskpolicy.models.training.batching import Batch

Wanted = HeadChoice | Literal["saved"]
_POOLER = "pooler"
_DISCRIMINATORS = ("mask_predictions.", "discriminator_predictions.")
_DEBERTA_HEAD = "lm_predictions."  # of the released DeBERTa; stock classes expect `cls.`
log = logging.getLogger(__name__)


def load(name: str, revision: str | None = None, head: Wanted = "saved") -> Any:
    """Load an encoder from a folder or Hub name in float32.

    Returns Transformers' model for masked language modelling, with its head, if `head` is "own"; if
    it is "auto", the weights have a head and the family is not RoBERTa's; or if it is "saved" and
    the folder was saved from such a model. Else returns the body alone. Raises ConfigError if the
    model does not exist, is not an encoder, or lacks weights.
    """
    config = load_config(name, revision)
    _check(config, name)
    body, others = _body(config, name, revision)
    if not _wants_head(config, head):
        return body
    model = _with_head(body, others, name, revision)
    if model is not None:
        return model
    if head == "own":
        raise ConfigError(
            f"model {name}: its weights have no head for masked language modelling: set "
            "model.head: new"
        )
    log.warning(
        "model %s: its weights have no head for masked language modelling%s: a new one is trained",
        name,
        " (they are a discriminator's)" if _is_discriminator(others) else "",
    )
    return body


def is_masked_lm(model: Any) -> bool:
    """Return True if a model of `load` has its own head for masked language modelling."""
    return model.base_model is not model


def masked_lm_class(config: Any) -> str | None:
    """Return the name of Transformers' class for masked language modelling; None: there is none."""
    from transformers import MODEL_FOR_MASKED_LM_MAPPING

    known: Any = MODEL_FOR_MASKED_LM_MAPPING
    return known[type(config)].__name__ if type(config) in known else None


def _check(config: Any, name: str) -> None:
    """Raise ConfigError unless Transformers has a masked language model of the configuration."""
    family = config.model_type
    if config.is_encoder_decoder:
        raise ConfigError(f"model {name}: {family} is a text-to-text model: leave model.kind out")
    if masked_lm_class(config) is None:
        raise ConfigError(
            f"model {name}: {family} is not an encoder that AutoModelForMaskedLM loads: choose one "
            "of `maskpolicy list models`"
        )


def _wants_head(config: Any, head: Wanted) -> bool:
    if head == "saved":
        return masked_lm_class(config) in (config.architectures or ())
    if head == "auto":
        return not family_of(config).new_head
    return head == "own"


def _body(config: Any, name: str, revision: str | None) -> tuple[Any, list[str]]:
    """Return the encoder, with its pooler if the weights have one, and the names of other weights.

    RoBERTa's pooler is left out: its masked language modelling never trained it.
    """
    from transformers import AutoModel

    has_none = family_of(config).new_head
    settings = {"add_pooling_layer": False} if has_none else {}
    found, info = load_reported(AutoModel, name, revision, optional=_POOLER, **settings)
    if info["missing_keys"]:
        found.pooler = None
    return found, sorted(info["unexpected_keys"])


def _with_head(body: Any, others: list[str], name: str, revision: str | None) -> Any | None:
    """Return the masked language model with `body` as its body; None if its head lacks weights."""
    from transformers import AutoModelForMaskedLM

    if _is_discriminator(others):
        return None
    released = any(key.startswith(_DEBERTA_HEAD) for key in others)
    settings = {"output_loading_info": True, **({"legacy": False} if released else {})}
    model, info = load_weights(AutoModelForMaskedLM, name, revision, **settings)
    state, lacking = model.state_dict(), set(info["missing_keys"])
    for key in info["missing_keys"]:  # older files of untied models have the head's bias once
        bias = key.replace(".decoder.bias", ".bias")
        if bias in state.keys() - info["missing_keys"]:
            state[key].copy_(state[bias])
            lacking.remove(key)
    if lacking:
        return None
    for part in (_POOLER, "pooler_activation"):  # stock masked language models have none
        if getattr(body, part, None) is not None:
            setattr(model.base_model, part, getattr(body, part))
    return model


def _is_discriminator(others: list[str]) -> bool:
    """Return True if weights are from a model that was trained to detect replaced tokens.

    DeBERTa-v3's include the head of its generator, which does not fit the discriminator's body.
    """
    return any(key.startswith(_DISCRIMINATORS) for key in others)


def training_module(model: Any, denoising: Denoising, layers: int, seed: int) -> Any:
    """Return the training module that pre-trains `model`, in place, on masked tokens.

    A model with a head keeps it. Else `seed` decides the weights of a new one: the head of the
    family's own class, or, on top of a decoder, one like RoBERTa's. If `denoising` sets
    mask_exclusion or shallow_decoder, there is a decoder of `layers` layers; it is discarded after
    training, with the head that reads it, as are ELECTRA's generator and head. Raises ConfigError
    if masks cannot be excluded from the model's input.
    """
    import torch

    from maskpolicy.models.masked_encoder import (
        SHORTENED,
        MaskedEncoder,
        OwnHead,
        ReplacedTokenDetector,
        head_layers,
        masked_lm,
        shallow_decoder,
    )

    encoder = model.base_model
    if denoising.mask_exclusion > 0:
        check_exclusion(encoder.config.model_type, "encoder")
    if getattr(encoder, "pooler", None) is not None:
        encoder.pooler.requires_grad_(False)  # without a gradient, it would still decay
    freeze_constants(encoder)
    drawn = generator(seed, 0, "", "learner").integers(2**63)
    with torch.random.fork_rng():
        torch.manual_seed(int(drawn))  # another stream than the encoder's weights
        if (detection := denoising.replaced_token_detection) is not None:
            return ReplacedTokenDetector(encoder, detection.generator)
        decoder = shallow_decoder(encoder.config, layers) if has_decoder(denoising) else None
        if decoder is None and not is_masked_lm(model):
            if family_of(encoder.config).new_head:
                return MaskedEncoder(encoder, None)
            model = masked_lm(encoder, "cpu")
            model.tie_weights()
        if decoder is not None and encoder.config.model_type in SHORTENED:  # by masks of its own
            for part in (model, encoder):
                part._supports_flash_attn = part._supports_flex_attn = False
        keeps = is_masked_lm(model) and (decoder is None or head_layers(model))
        return OwnHead(model, decoder) if keeps else MaskedEncoder(encoder, decoder)


def has_new_head(model: Any, denoising: Denoising) -> bool:
    """Return True if the head of a model's training module begins with random weights."""
    return drops_head(denoising) or not is_masked_lm(model)


def token_loss(module: Any, batch: Batch) -> tuple[torch.Tensor, int]:
    """Return the summed cross-entropy of the masked tokens, weighted, and their number.

    Replaced-token detection adds its weighted sum.
    """
    from maskpolicy.models import crossentropy

    labels, weights = batch.targets, batch.label_weights
    if hasattr(module, "bias") and crossentropy.in_chunks(batch.source):
        hidden, rows = module.hidden(module(batch)), module.encoder
        rows = rows.get_input_embeddings().weight
        return crossentropy.summed(hidden, rows, module.bias, labels, weights), len(labels)
    logits = module.label_logits(batch)
    loss = crossentropy.of_logits(logits, labels, weights)
    if batch.detection is not None:
        loss = loss + module.detection_loss(batch, logits)
    return loss, len(labels)


training_loss = partial(
    TrainingLoss, token_loss, lambda cpu, module: cpu.PretrainingGradients(module)
)
"""training_loss() returns `token_loss` for one training."""


def has_decoder(denoising: Denoising) -> bool:
    """Return True if an encoder is trained below MAE-LM's decoder."""
    return denoising.mask_exclusion > 0 or denoising.shallow_decoder


def drops_head(denoising: Denoising) -> bool:
    """Return True if an encoder is saved without the head that its training has."""
    return has_decoder(denoising) or denoising.replaced_token_detection is not None
