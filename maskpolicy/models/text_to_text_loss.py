"""The loss of a text-to-text model of any family on a batch, and the logits of its labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from maskpolicy.models import decoder_states, families
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


class TrainingLoss:
    """`token_loss` within one training; a BART on a CPU has a backward pass of its own there."""

    def __init__(self) -> None:
        self._is_begun = False
        self._gradients: BartGradients | None = None

    def __call__(self, model: Any, batch: Batch) -> tuple[torch.Tensor, int]:
        """Return the summed cross-entropy of a batch's labels and their number.

        The model and the tensors of its weights and gradients are the same in all calls.
        """
        import torch

        from maskpolicy.models import bart_gradients

        if torch.compiler.is_compiling():
            return token_loss(model, batch)
        if not self._is_begun:
            self._is_begun, self._gradients = True, bart_gradients.of(model)
        if self._gradients is None:
            return token_loss(model, batch)
        return self._gradients.token_loss(batch)


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
