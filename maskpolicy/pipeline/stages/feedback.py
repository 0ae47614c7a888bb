"""The stage between two parts of a training: columns of a policy, computed with the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from maskpolicy.core.errors import ConfigError
from maskpolicy.data.corpus.passages import (
    PASSAGES_FILE,
    Chosen,
    Passages,
    rows_of,
    write_passages,
)
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.definition import PolicyBlock
from maskpolicy.models.families import bounded
from maskpolicy.models.guesses import Current, Guesser, in_training, reannotated
from maskpolicy.models.loading import load_tokenizer
from maskpolicy.models.model_kinds import MODEL_KINDS
from maskpolicy.models.training.batching import Order
from maskpolicy.pipeline.graph.nodes import Folders, StageRun, stage
from maskpolicy.pipeline.stages.model_training import WORK
from maskpolicy.pipeline.stages.params import FeedbackParams
from maskpolicy.pipeline.stages.training_text import ANNOTATE
from maskpolicy.plugins import hooks

MOST_PARTS = 100  # of one training: each has two stages, and writes the weights three times
STATE = "policy.safetensors"  # the state that the policy keeps from one part to the next


def every(block: PolicyBlock) -> int:
    """Return the number of steps between two annotations of a row's policy; 0: no feedback."""
    return hooks.EVERY.of(block.policy) if hooks.REANNOTATE.of(block.policy) is not None else 0


def bounds(block: PolicyBlock, spec: Training, where: str = "") -> list[int]:
    """Return the first step of each part of a row's training, [0] for one without feedback.

    Raises ConfigError for too many parts; `where` is `Experiment.where`.
    """
    size = every(block)
    found = list(range(0, spec.steps, size)) if size and spec.steps else [0]
    if len(found) > MOST_PARTS:
        least = -(-spec.steps // MOST_PARTS)
        raise ConfigError(
            f"{where}policies: {block.label}: every: {size} cuts the {spec.steps} steps of the "
            f"intermediate stage into {len(found)} parts, more than {MOST_PARTS}: "
            f"set every to {least} or more"
        )
    return found


@stage("intermediate-feedback", version=2)
def feedback(params: FeedbackParams, inputs: Folders, out: Path, run: StageRun) -> None:
    """Compute a policy's columns of the passages, truncated, that the next part of training reads.

    inputs: those of the training, "state" of the previous part, and "before", the stage of this
    kind before that part. Without "state", the model is that before the intermediate stage.
    """
    policy: Any = params.instance()
    annotated = [inputs[ANNOTATE]] if ANNOTATE in inputs else []
    passages = Passages.open(inputs["corpus"], *annotated)
    order = Order(passages.lengths, params.spec.batch_size, params.spec.seed)
    items = order.items(params.first, params.until)
    current, room = _current(params, inputs, len(items), run)
    chosen = Chosen(Passages(passages.arrays, remembered=0).cut(room), items)
    if current.guesser is None and params.until == params.spec.steps:
        run.warn(
            "the model's head is new, so it predicts nothing before the first step, and it is not "
            f"asked again: set `every` below the {params.spec.steps} steps"
        )
    columns = reannotated(policy, chosen, current)
    write_passages(out / PASSAGES_FILE, chosen.spread(rows_of(columns)))
    if current.state:
        whole = {name: np.asarray(each, order="C") for name, each in current.state.items()}
        save_file(dict(sorted(whole.items())), out / STATE)  # which ignores strides
    work = {"feedback_tokens": current.tokens} if current.tokens else {}
    (out / WORK).write_text(json.dumps(work))


def _current(
    params: FeedbackParams, inputs: Folders, count: int, run: StageRun
) -> tuple[Current, int]:
    """Return the model in training, and the most tokens that it reads of a passage.

    It has no guesser at step 0 if its head is new.
    """
    kind = MODEL_KINDS[params.kind]
    tokenizer = load_tokenizer(str(inputs["tokenizer"]))
    model, state, done = kind.load(str(inputs["model"])), inputs.get("state"), 0
    spec, specials = bounded(params.spec, model), kind.specials(tokenizer, model)
    module = in_training(kind, model, params.how, params.decoder_layers, spec, state)
    guesser = None
    if module is not None:
        guesser = Guesser(module, kind, specials, spec, params.how)

    def report(passages: int) -> None:
        nonlocal done
        done += passages
        run.progress(min(done, count), count, "passages")

    before = inputs["before"] / STATE if "before" in inputs else None
    current = Current(
        vocabulary=len(tokenizer),
        steps=params.first,
        guesser=guesser,
        state=load_file(before) if before is not None and before.exists() else {},
        fitted=inputs.get("fit"),
        report=report,
    )
    return current, specials.kept(spec, [params.how])
