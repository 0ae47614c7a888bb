"""The loss of a text-to-text model of any family on a batch, and the logits of its labels."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from maskpolicy.models import decoder_states, families
from maskpolicy.models.training_loss import TrainingLoss
from maskpolicy.training.batching import IGNORE

if TYPE_CHECKING:
    import torch

    from maskpolicy.models.bart_gradients import BartGradients
    from maskpolicy.training.batching import Batch


def token_loss(model: Any, batch: Batch) -> tuple[torch.Tensor, int]:
    """Return the summed cross-entropy of a batch's labels and their number.

    The LM head runs on labelled positions only. Excluded tokens are not in the encoder's input.
    """
    from torch.nn.functional import cross_entropy

    from maskpolicy.models import crossentropy

    kept = batch.labels != IGNORE
    labels = batch.labels[kept]
    if families.family_of(model.config).head != "linear":
        found = decoder_states.logits(model, batch, kept).float()
        return cross_entropy(found, labels, reduction="sum"), len(labels)
    states = decoder_states.states(model, batch)[kept]
    weight = model.lm_head.weight
    bias = getattr(model, "final_logits_bias", None)
    bias = None if bias is None else bias[0].to(weight.dtype)
    return crossentropy.summed(states, weight, bias, labels), len(labels)


def _gradients(model: Any) -> BartGradients | None:
    from maskpolicy.models import bart_gradients

    return bart_gradients.bart_gradients(model)


training_loss = partial(TrainingLoss, token_loss, _gradients)
"""training_loss() returns `token_loss` for one training."""


def label_logits(model: Any, batch: Batch) -> torch.Tensor:
    """Return the logits of a batch's k labels, (k, v), row by row."""
    return decoder_states.logits(model, batch, batch.labels != IGNORE)


def row_losses(model: Any, batch: Batch) -> torch.Tensor:
    """Return the mean cross-entropy of each row's labels, (b,), in at least single precision.

    Every weight is used through its module's own forward, as `higher` requires, and every operation
    supports forward-mode and second derivatives (see `learned.innerloop`).
    """
    import torch
    from torch.nn.functional import cross_entropy

    kept, logits = batch.labels != IGNORE, label_logits(model, batch)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    losses = cross_entropy(logits, batch.labels[kept], reduction="none")
    counts = kept.sum(1)
    rows = torch.arange(len(counts), device=counts.device).repeat_interleave(counts)
    return losses.new_zeros(len(counts)).index_add(0, rows, losses) / counts
