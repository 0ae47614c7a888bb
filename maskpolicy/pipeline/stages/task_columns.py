"""The columns of a leaderboard as stages: examples, audits and majority guesses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from maskpolicy.core.errors import ConfigError
from maskpolicy.core.metrics import Metric
from maskpolicy.data.taskfiles import sources
from maskpolicy.experiment import task_kinds
from maskpolicy.experiment.definition import TaskBlock
from maskpolicy.experiment.task_kinds import TASK_KINDS, TEXT
from maskpolicy.models.model_kinds import preset
from maskpolicy.pipeline.graph.nodes import Stage
from maskpolicy.pipeline.stages.input_graph import Inputs
from maskpolicy.pipeline.stages.params import AuditParams, MajorityParams
from maskpolicy.pipeline.stages.task_inputs import TaskInputs
from maskpolicy.plugins import hooks
from maskpolicy.plugins.discovery import find_plugin


@dataclass(frozen=True)
class Column:
    """What the cells of a task share: parameters of their stages, and metrics."""

    params: dict[str, Any]
    own_metric: str  # of the task, whatever its block names
    metrics: tuple[Metric, ...]  # the first ranks


class Columns:
    """The stages of each task that belong to no row."""

    def __init__(self, inputs: Inputs, tasks: TaskInputs) -> None:
        self.experiment, self.inputs, self.tasks = inputs.experiment, inputs, tasks
        self.columns: dict[str, Column] = {}

    def column(self, task: TaskBlock) -> Column:
        """What all cells of a task share; computed once."""
        if task.label not in self.columns:
            made = sources.task(task)
            self.check(task, made.facts.kind)
            params = {"keep": made.facts.keep, **self.head(task)}
            self.columns[task.label] = Column(params, made.own_metric, made.metrics)
        return self.columns[task.label]

    def head(self, task: TaskBlock) -> dict[str, Any]:
        """The fields of `HeadParams`."""
        facts = sources.facts(find_plugin("task", task.name))
        choose = hooks.CHOOSE.of(sources.task(task).plugin)
        return {"head": facts.kind, "unanswerable": facts.unanswerable, "choose": choose}

    def audit(self, task: TaskBlock) -> Stage:
        """The audit of a task's data; no score depends on it."""
        model, spec = self.experiment.model, self.experiment.finetune
        positions = preset(model).positions if model.is_scratch else None
        params = AuditParams(
            max_source=spec.max_source,
            max_target=spec.max_target,
            positions=positions,
            **self.head(task),
        )
        return self.inputs.stage(
            "audit",
            task.label,
            params,
            tokenizer=self.inputs.tokenizer,
            **self.examples(task),
            model=None if model.is_scratch else self.inputs.weights,
        )

    def majority(self, task: TaskBlock) -> Stage:
        """The majority guess of a task, without a model."""
        made = sources.task(task)
        facts, metric = made.facts, made.metric
        params = MajorityParams(
            metric=metric.name,
            metric_version=metric.version,
            kind=facts.kind,
            keep=facts.keep,
            unanswerable=facts.unanswerable,
        )
        return self.inputs.stage("majority", task.label, params, **self.examples(task))

    def examples(self, task: TaskBlock) -> dict[str, Stage]:
        """All examples of a task, as inputs of a stage."""
        return {split: self.tasks.examples(task, split) for split in ("train", "test")}

    def check(self, task: TaskBlock, kind: str) -> None:
        """Raise ConfigError if the model cannot be fine-tuned on the task as configured."""
        model = self.experiment.model
        place = self.experiment.place_of(task)
        if task.context and TASK_KINDS[kind].reads_context:
            raise ConfigError(
                f"{place}.context: {task.label} is a {kind} task, which always has its context: "
                "remove context: true"
            )
        able = TASK_KINDS[kind].model
        if model.kind != able:
            known = " and ".join(task_kinds.of_model(model.kind))
            own = task.name == "labelled-table" and model.kind == TASK_KINDS[TEXT].model
            or_else = ", or take task table, with the label as its answer" if own else ""
            raise ConfigError(
                f"{place}: {task.label} is a {kind} task, which a model of kind {model.kind} "
                f"cannot do (it does {known} tasks): set model.kind: {able}{or_else}"
            )
