"""The text of a training, masked step by step, and the text that it is validated on.

Each leaf of its policy reads columns and statistics: the policies that select, one or all members
of a mixture (see `masking.selection.Masker`). A single leaf's inputs are called "annotate" and
"statistics", those of several "annotate-00", "annotate-01", ..
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from maskpolicy.core.errors import DataError, StageError
from maskpolicy.core.types import Json
from maskpolicy.data.corpus.passages import Passages
from maskpolicy.experiment.budgets import Training
from maskpolicy.masking.selection import Masker
from maskpolicy.models.model_kinds import MODEL_KINDS
from maskpolicy.models.training.batching import Loss
from maskpolicy.models.training.loop import held_out_losses
from maskpolicy.models.training.specials import Specials
from maskpolicy.models.training.steps import MaskedSteps
from maskpolicy.pipeline.stages.params import GeneralParams, IntermediateParams
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.plugins.hooks import STATISTICS
from maskpolicy.plugins.statistics import Statistics

FEEDBACK = "feedback"  # the input with the columns of `reannotate`
ROOM_FACT = "room"  # of a training that cuts passages: the most tokens of one that it reads
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


def annotate_names(leaves: int) -> list[str]:
    """Return the names of the inputs with the columns of each leaf."""
    return _numbered("annotate", leaves)


def statistics_names(leaves: int) -> list[str]:
    """Return the names of the inputs with the statistics that each leaf's `select` reads."""
    return _numbered(STATISTICS, leaves)


def _numbered(name: str, leaves: int) -> list[str]:
    return [name] if leaves == 1 else [f"{name}-{i:02d}" for i in range(leaves)]


def open_views(inputs: Mapping[str, Path], leaves: int) -> list[Passages]:
    """Open the corpus of a stage once for each leaf, with the leaf's columns."""
    return [
        Passages.open(
            inputs["corpus"], *(inputs[each] for each in (name, FEEDBACK) if each in inputs)
        )
        for name in annotate_names(leaves)
    ]


def open_statistics(inputs: Mapping[str, Path], leaves: int) -> list[Statistics | None]:
    """Open the statistics that each leaf's `select` reads; None for a leaf that reads none."""
    names = statistics_names(leaves)
    return [Statistics.open(inputs[name]) if name in inputs else None for name in names]


def statistics_keys(inputs: Mapping[str, str], leaves: int, store: Store) -> list[str | None]:
    """Return the key of the statistics that each leaf of a computed training read, or None.

    `inputs` are the keys of the training's inputs. A leaf's statistics are an input of the training
    if `select` reads them, and of the stage of its columns if `annotate` does.
    """
    found: list[str | None] = []
    for own, name in zip(statistics_names(leaves), annotate_names(leaves), strict=True):
        found.append(inputs.get(own) or inputs_of(inputs.get(name), store).get(STATISTICS))
    return found


def inputs_of(key: str | None, store: Store) -> Mapping[str, str]:
    """Return the keys of a computed stage's inputs by name; {} if the store lacks the stage."""
    known = store.peek(key) if key else None
    return known["record"]["inputs"] if known else {}
