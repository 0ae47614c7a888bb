"""Pre-train an encoder with masked language modelling (MLM) or as MAE-LM (Meng et al. 2024)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from maskpolicy.models.encoders import is_masked_lm
from maskpolicy.models.families import check_exclusion
from maskpolicy.models.training_loss import TrainingLoss
from maskpolicy.seeding import generator
from maskpolicy.training.batching import IGNORE

if TYPE_CHECKING:
    import torch

    from maskpolicy.models.roberta_gradients import PretrainingGradients
    from maskpolicy.training.batching import Batch
    from maskpolicy.types import Denoising


def training_module(model: Any, denoising: Denoising, layers: int, seed: int) -> Any:
    """Return the training module that pre-trains `model`, in place, on masked tokens.

    A model of `encoders.load` that has a head keeps it; else a head like RoBERTa's is drawn from
    `seed`. So is a decoder of `layers` layers if `denoising` sets mask_exclusion or
    shallow_decoder. What is drawn is discarded after training. Raises ConfigError if masks cannot
    be excluded from the model's input.
    """
    import torch

    from maskpolicy.models.masked_encoder import (
        MaskedEncoder,
        OwnHead,
        head_layers,
        shallow_decoder,
    )

    encoder = model.base_model
    if denoising.mask_exclusion > 0:
        check_exclusion(encoder.config.model_type, "encoder")
    if getattr(encoder, "pooler", None) is not None:
        encoder.pooler.requires_grad_(False)  # MLM has no gradient for it, but weight decay
    drawn = generator(seed, 0, "", "learner").integers(2**63)
    with torch.random.fork_rng():
        torch.manual_seed(int(drawn))  # another stream than the encoder's weights
        decoder = shallow_decoder(encoder.config, layers) if _has_decoder(denoising) else None
        keeps = is_masked_lm(model) and (decoder is None or head_layers(model))
        return OwnHead(model, decoder) if keeps else MaskedEncoder(encoder, decoder)


def has_new_head(model: Any, denoising: Denoising) -> bool:
    """Return True if the training module of a model begins with weights drawn anew."""
    return _has_decoder(denoising) or not is_masked_lm(model)


def token_loss(module: Any, batch: Batch) -> tuple[torch.Tensor, int]:
    """Return the summed cross-entropy of the masked tokens, and their number."""
    from torch.nn.functional import cross_entropy

    labels = batch.labels[batch.labels != IGNORE]
    logits = label_logits(module, batch)
    return cross_entropy(logits.float(), labels, reduction="sum"), len(labels)


def _gradients(module: Any) -> PretrainingGradients | None:
    from maskpolicy.models import roberta_gradients

    return roberta_gradients.pretraining_gradients(module)


training_loss = partial(TrainingLoss, token_loss, _gradients)
"""training_loss() returns `token_loss` for one training."""


def label_logits(module: Any, batch: Batch) -> torch.Tensor:
    """Return the logits of a batch's k labels, (k, v), row by row."""
    found: torch.Tensor = module.scores(batch, batch.labels != IGNORE)
    return found


def _has_decoder(denoising: Denoising) -> bool:
    return denoising.mask_exclusion > 0 or denoising.shallow_decoder
