"""Tuned rows: stages that choose a candidate by its scores on dev, and their graph."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import TypeAlias

from maskpolicy.core.errors import ConfigError
from maskpolicy.core.files import read_json
from maskpolicy.experiment.definition import PolicyBlock, TaskBlock
from maskpolicy.experiment.learned_policies import needs_classifier
from maskpolicy.experiment.task_kinds import is_zero_shot
from maskpolicy.pipeline.graph import nodes
from maskpolicy.pipeline.graph.nodes import Folders, Stage, StageRun, stage
from maskpolicy.pipeline.stages.evaluation import PREDICTIONS, RESULT
from maskpolicy.pipeline.stages.input_graph import Inputs
from maskpolicy.pipeline.stages.params import ChooseParams, TakeParams
from maskpolicy.pipeline.stages.task_inputs import TaskInputs

Cell: TypeAlias = Callable[..., Stage]
"""cell(block, task, seed, until, split=..) -> the evaluation, of the model after `until` steps."""


def cell_label(block: PolicyBlock, task: TaskBlock, seed: int, until: int) -> str:
    """Return the label of the stage that scores a row on a task, after `until` steps if not 0."""
    row = f"{block.label} at {until}" if until else block.label
    return f"{row}, {task.label}, seed {seed}"


class TunedRow:
    """A row whose cells are those of the best candidate on dev.

    All candidates are fine-tuned on all tasks with all seeds, and evaluated on dev; tasks without
    fine-tuning have no part in the choice. If only budgets of fine-tuning are tuned, each task has
    its own choice, because its fine-tuning changes no other task, unless the policy fine-tunes a
    classifier. Otherwise there is one choice, because one model serves all tasks.
    """

    def __init__(self, block: PolicyBlock, inputs: Inputs, tasks: TaskInputs, cell: Cell) -> None:
        """Prepare the row; `cell` builds the cells of candidates."""
        self.block, self.inputs, self.tasks, self.cell = block, inputs, tasks, cell
        self.experiment = inputs.experiment
        self.choices: dict[str, Stage] = {}

    def choice(self, task: TaskBlock) -> Stage:
        """The stage that chooses the candidate for a task."""
        label = self.block.label
        if is_by_task(self.block, task):
            label = f"{label}, {task.label}"
        if label not in self.choices:
            tasks = chosen_by(self.block, task, self.experiment.tasks)
            if not tasks:
                raise ConfigError(
                    f"{self.experiment.where}tasks: none has dev examples for row {label} to "
                    "choose by: add one that is fine-tuned, or leave tune out"
                )
            scores = {
                score_name(c, t, s): self.cell(candidate, each, seed, split="dev")
                for c, candidate in enumerate(self.block.candidates)
                for t, each in enumerate(tasks)
                for s, seed in enumerate(self.experiment.seeds)
            }
            params = ChooseParams(
                candidates=len(self.block.candidates),
                tasks=len(tasks),
                seeds=len(self.experiment.seeds),
            )
            self.choices[label] = self.inputs.stage("choose", label, params, **scores)
        return self.choices[label]

    def take(self, task: TaskBlock, seed: int, until: int = 0) -> Stage:
        """The cell of the chosen candidate, the only one that is evaluated on test."""
        options: dict[str, Stage] = {
            f"{nodes.OPTION}{index:03d}": self.cell(candidate, task, seed, until)
            for index, candidate in enumerate(self.block.candidates)
        }
        inputs = {nodes.CHOICE: self.choice(task), "examples": self.tasks.examples(task, "test")}
        label = cell_label(self.block, task, seed, until)
        return self.inputs.stage("take", label, TakeParams(), **inputs, **options)


def is_by_task(block: PolicyBlock, task: TaskBlock) -> bool:
    """Return whether a tuned row chooses for a task alone, because it tunes only fine-tuning."""
    return tunes_only_finetuning(block) and not is_zero_shot(task)


def tunes_only_finetuning(block: PolicyBlock) -> bool:
    """Return whether the candidates of a tuned row share all stages before fine-tuning."""
    only = all(key.startswith("finetune.") for key in block.tune if key != "on")
    return only and not needs_classifier(block)


def chosen_by(
    block: PolicyBlock, task: TaskBlock, tasks: Sequence[TaskBlock]
) -> Sequence[TaskBlock]:
    """Return the tasks, of all `tasks`, by whose dev examples a tuned row chooses for a task."""
    if is_by_task(block, task):
        return (task,)
    return [each for each in tasks if not is_zero_shot(each)]


def score_name(candidate: int, task: int, seed: int) -> str:
    """Return the name of the stage "choose"'s input with one score on dev."""
    return f"{candidate:03d}-{task:03d}-{seed:03d}"


@stage("choose")
def choose(params: ChooseParams, inputs: Folders, out: Path, run: StageRun) -> None:
    """Choose the candidate with the best mean score on dev; the first one if several are best.

    The score of a task is the mean over seeds, and that of a candidate the mean over tasks.
    """
    by_task = [
        [
            fmean(
                float(read_json(inputs[score_name(candidate, task, seed)] / RESULT)["score"])
                for seed in range(params.seeds)
            )
            for task in range(params.tasks)
        ]
        for candidate in range(params.candidates)
    ]
    scores = [fmean(tasks) for tasks in by_task]
    best = scores.index(max(scores))
    name = f"{nodes.OPTION}{best:03d}"
    found = {"input": name, "candidate": best, "scores": scores, "by_task": by_task}
    (out / nodes.FILE).write_text(json.dumps(found, indent=1, sort_keys=True), encoding="utf-8")


@stage("take", picks=True)
def take(params: TakeParams, inputs: Folders, out: Path, run: StageRun) -> None:
    """Copy the answers and the score of the chosen candidate."""
    name = read_json(inputs[nodes.CHOICE] / nodes.FILE)["input"]
    for file in (RESULT, PREDICTIONS):
        shutil.copyfile(inputs[name] / file, out / file)
