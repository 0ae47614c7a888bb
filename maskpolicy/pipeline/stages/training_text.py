"""The text of a training, masked step by step, and the text that it is validated on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from maskpolicy.core.errors import DataError, StageError
from maskpolicy.core.types import Json
from maskpolicy.experiment.budgets import Training
from maskpolicy.masking.selection import Masker
from maskpolicy.models.model_kinds import MODEL_KINDS
from maskpolicy.models.training.batching import Loss
from maskpolicy.models.training.loop import held_out_losses
from maskpolicy.models.training.specials import Specials
from maskpolicy.models.training.steps import MaskedSteps
from maskpolicy.pipeline.stages.leaf_inputs import open_statistics, open_views
from maskpolicy.pipeline.stages.params import GeneralParams, IntermediateParams

VALIDATION_FACT = "validation"  # of the manifest of a validated training
VALIDATION_PREFIX = "validation-"  # of the inputs with the text to validate on
_PASSAGES = 1024  # the most passages to validate on
_BATCH = 32  # the most of them at a time


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
    """The loss of a model on text that it is not trained on, always with the same masks.

    The text has up to 1,024 passages, drawn at random from more of them. They are measured in
    batches of equal size, so that a few may be left over.
    """

    steps: MaskedSteps
    count: int  # batches
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

        Raises DataError if no token of that text is masked.
        """
        own = {
            name.removeprefix(VALIDATION_PREFIX): path
            for name, path in inputs.items()
            if name.startswith(VALIDATION_PREFIX)
        }
        if not own:
            return None
        steps = masked_steps(policy, specials, spec, params, {**inputs, **own})
        passages = min(_PASSAGES, len(steps.passages))
        count = -(-passages // _BATCH)
        # as many steps as batches, so that a policy's schedule runs from its beginning to its end
        size = passages // count
        steps = replace(steps, spec=replace(spec, steps=count, batch_size=size, seed=0))
        if not any(steps(number).units for number in range(count)):
            raise DataError(
                f"policy {params.policy}: masks nothing in the validation text, or only what is "
                "truncated: give more text, or lower corpus.words"
            )
        return cls(steps, count, MODEL_KINDS[params.kind].token_loss)

    def __call__(self, module: Any) -> float:
        """Return the mean loss of a target token, in nats; raises StageError if it is not finite.

        The module is in evaluation mode afterwards.
        """
        sums, tokens = held_out_losses(module, self.loss, self.steps, self.count)
        found = sum(sums) / sum(tokens)
        if not math.isfinite(found):
            raise StageError(f"the validation loss became {found}: lower intermediate.lr")
        return found

    def facts(self, before: float | None, after: float, done: Mapping[str, Any]) -> Json:
        """Return what a manifest records of a training with the result `done`.

        `before` and `after` are the losses of the model before it, if it was measured, and of the
        one that is kept.
        """
        return {
            "passages": self.count * self.steps.spec.batch_size,
            "before": before,
            "after": after,
            "step": done["best_step"],
            "steps": done["steps"],
            "losses": [[step, -score] for step, score in done["scores"]],
        }
