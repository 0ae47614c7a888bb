"""The part of an experiment's graph in which a row chooses among candidates on dev."""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

from maskpolicy.experiment.definition import PolicyBlock, TaskBlock
from maskpolicy.pipeline.graph import picking
from maskpolicy.pipeline.graph.nodes import Stage
from maskpolicy.pipeline.stages import tuning
from maskpolicy.pipeline.stages.input_graph import Inputs
from maskpolicy.pipeline.stages.params import ChooseParams, Split, TakeParams
from maskpolicy.pipeline.stages.task_inputs import TaskInputs


class Cell(Protocol):
    """Builds the evaluation of a block on a task; see `assembly`."""

    def __call__(
        self, block: PolicyBlock, task: TaskBlock, seed: int, until: int = 0, split: Split = "test"
    ) -> Stage:
        """Return the stage; with `until`, of the model after so many steps."""


class TunedRow:
    """A row whose cells are those of the candidate that is best on dev.

    All candidates are fine-tuned on all tasks with all seeds, and evaluated on dev. If only budgets
    of fine-tuning are tuned, each task has a choice of its own, as fine-tuning on a task concerns
    that task alone. Otherwise one model is to serve all tasks, and there is one choice for them.
    """

    def __init__(self, block: PolicyBlock, inputs: Inputs, tasks: TaskInputs, cell: Cell) -> None:
        """Prepare the row; `cell` builds the cells of candidates."""
        self.block, self.inputs, self.tasks, self.cell = block, inputs, tasks, cell
        self.experiment = inputs.experiment
        self.choices: dict[str, Stage] = {}

    @cached_property
    def is_by_task(self) -> bool:
        """Whether each task has a choice of its own."""
        return is_by_task(self.block)

    def choice(self, task: TaskBlock) -> Stage:
        """The stage that chooses the candidate for a task."""
        tasks = (task,) if self.is_by_task else self.experiment.tasks
        label = f"{self.block.label}, {task.label}" if self.is_by_task else self.block.label
        if label not in self.choices:
            scores = {
                tuning.score_name(c, t, s): self.cell(candidate, each, seed, split="dev")
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
        """The cell of the chosen candidate; no other one is evaluated on test."""
        options: dict[str, Stage] = {
            f"{picking.OPTION}{index:03d}": self.cell(candidate, task, seed, until)
            for index, candidate in enumerate(self.block.candidates)
        }
        name = f"{self.block.label} at {until}" if until else self.block.label
        inputs = {picking.CHOICE: self.choice(task), "examples": self.tasks.examples(task, "test")}
        label = f"{name}, {task.label}, seed {seed}"
        return self.inputs.stage("take", label, TakeParams(), **inputs, **options)


def is_by_task(block: PolicyBlock) -> bool:
    """Return whether a tuned row chooses for each task, as only its fine-tuning is tuned."""
    return all(key.startswith("finetune.") for key in block.tune if key != "on")
