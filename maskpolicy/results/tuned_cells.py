"""What a tuned row chose for a cell: from which values, by which scores on dev, at what cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from maskpolicy.config.axes import DEV
from maskpolicy.config.experiment import Experiment, PolicyBlock, TaskBlock
from maskpolicy.files import read_json
from maskpolicy.graph import picking
from maskpolicy.graph.nodes import Stage, topological
from maskpolicy.plugins.registry import ROW_TRAININGS
from maskpolicy.stages.model_training import WORK
from maskpolicy.stages.params import FinetuneParams, FitParams, IntermediateParams
from maskpolicy.stages.tuned_rows import is_by_task
from maskpolicy.store.artifacts import Store
from maskpolicy.types import Json

_TOKENS = ("source_tokens", "target_tokens")


@dataclass(frozen=True)
class Chosen:
    """The candidate that a cell was taken from."""

    block: PolicyBlock
    stage: Stage  # its evaluation on test
    tuning: Json  # see `chosen`


def chosen(
    experiment: Experiment, block: PolicyBlock, task: TaskBlock, stage: Stage, store: Store
) -> Chosen | None:
    """Return what a tuned row chose for a cell; None for other rows, and before there is a choice.

    `tuning` has the values that were tried and their scores on dev, the index of the chosen ones
    and the label of their stages, the tasks and seeds that the scores are means over, and the cost
    of all candidates.
    """
    if not block.candidates:
        return None
    choice = stage.inputs[picking.CHOICE]
    path = store.file(choice.key, picking.FILE)
    if path is None:
        return None
    found = read_json(path)
    index = int(found["candidate"])
    by_task = is_by_task(block)
    tasks = [task.label] if by_task else [each.label for each in experiment.tasks]
    tuning = {
        "on": DEV,
        "by": "task" if by_task else "row",
        "tried": [values(each, block.tune) for each in block.candidates],
        "scores": found["scores"],
        "chosen": index,
        "label": block.candidates[index].label,
        "tasks": tasks,
        "seeds": list(experiment.seeds),
        "cost": cost(choice, ("finetune",) if by_task else ROW_TRAININGS, store),
    }
    return Chosen(block.candidates[index], stage.inputs[found["input"]], tuning)


def values(block: PolicyBlock, tune: Mapping[str, Any]) -> dict[str, Json]:
    """Return the values of the tuned keys in a candidate."""
    settings = {**block.fields, **vars(block.denoising), **block.trainings}
    return {key: _at(settings, key) for key in tune if key != "on"}


def _at(settings: Mapping[str, Any], key: str) -> Json:
    first, _, rest = key.partition(".")
    return _at(settings[first], rest) if rest else settings[first]


def cost(choice: Stage, kinds: Collection[str], store: Store) -> dict[str, Json]:
    """Return trainings and steps behind a choice by kind, and tokens of the intermediate ones.

    All candidates count, and all tasks and seeds that the choice rests on.
    """
    found: dict[str, Counter[str]] = {}
    for stage in topological([choice]):
        if stage.kind == "evaluate":
            found.setdefault(stage.kind, Counter()).update(evaluations=1)
        params = stage.params
        if stage.kind in kinds and isinstance(
            params, FitParams | IntermediateParams | FinetuneParams
        ):
            known = found.setdefault(stage.kind, Counter())
            known.update(trainings=1, steps=params.spec.steps)
            path = store.file(stage.key, WORK)
            work = read_json(path) if path is not None else {}
            known.update({name: work[name] for name in _TOKENS if name in work})
    return {kind: dict(about) for kind, about in found.items()}
