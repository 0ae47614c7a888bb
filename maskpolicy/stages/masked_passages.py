"""The passages of a training, masked step by step, and those that it is validated on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from maskpolicy.config.budgets import Training
from maskpolicy.errors import DataError
from maskpolicy.masking.members import Masker
from maskpolicy.models.model_kinds import MODEL_KINDS
from maskpolicy.stages.leaf_inputs import open_statistics, open_views
from maskpolicy.stages.params import GeneralParams, IntermediateParams
from maskpolicy.training.held_out_loss import held_out_losses
from maskpolicy.training.interfaces import Loss
from maskpolicy.training.specials import Specials
from maskpolicy.training.steps import MaskedSteps
from maskpolicy.types import Json

VALIDATED = "validation"  # the fact of a manifest
VALIDATION = "validation-"  # begins the names of the inputs with the text to validate on
_PASSAGES = 1024  # the most passages to validate on
_BATCH = 32  # of them at a time


def masked_steps(
    policy: Any,
    specials: Specials,
    spec: Training,
    params: GeneralParams | IntermediateParams,
    inputs: Mapping[str, Path],
) -> MaskedSteps:
    """Return the steps over the corpus, with the columns and statistics that the policy reads."""
    leaves = len(Masker.of(policy, params.how).leaves)
    views, statistics = open_views(inputs, leaves), open_statistics(inputs, leaves)
    pairs = MODEL_KINDS[params.kind].pairs
    return MaskedSteps(views[0], policy, params.how, specials, spec, pairs, views, statistics)


@dataclass(frozen=True)
class Validation:
    """The loss of a model on passages that it is not trained on, always with the same masks.

    These are all passages of the text, or 1,024 of them drawn at random. Called with a module in
    training, it returns the negative loss, so that the best score is the lowest loss.
    """

    steps: MaskedSteps
    count: int  # steps
    loss: Loss

    @classmethod
    def of(
        cls,
        policy: Any,
        specials: Specials,
        spec: Training,
        params: GeneralParams | IntermediateParams,
        inputs: Mapping[str, Path],
    ) -> Validation | None:
        """Return the validation of a training; None without text for it.

        Raises DataError if the policy masks nothing in that text.
        """
        own = {name: path for name, path in inputs.items() if not name.startswith(VALIDATION)}
        for name, path in inputs.items():
            if name.startswith(VALIDATION):
                own[name.removeprefix(VALIDATION)] = path
        if own.keys() == inputs.keys():
            return None
        steps = masked_steps(policy, specials, spec, params, own)
        passages = min(_PASSAGES, len(steps.passages))
        size = min(_BATCH, passages)
        count = passages // size  # so that a policy's schedule runs from its beginning to its end
        steps = replace(steps, spec=replace(spec, steps=count, batch_size=size, seed=0))
        if steps.masks_nothing(count):
            raise DataError(
                f"policy {params.policy}: masks nothing in the validation text: give more of it"
            )
        return cls(steps, count, MODEL_KINDS[params.kind].token_loss)

    def __call__(self, module: Any) -> float:
        """Return the negative mean loss of a target token, in nats."""
        sums, tokens = held_out_losses(module, self.loss, self.steps, self.count)
        return -sum(sums) / sum(tokens)

    def facts(self, before: float | None, module: Any, done: Mapping[str, Any]) -> Json:
        """Return what a manifest records of a training of `module` with the result `done`.

        `before` is the loss before it, if it was measured.
        """
        return {
            "passages": self.count * self.steps.spec.batch_size,
            "before": before,
            "after": -self(module),
            "step": done["best_step"],
            "losses": [[step, -score] for step, score in done["scores"]],
        }
