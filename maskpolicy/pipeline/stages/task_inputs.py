"""Stages of tasks: their examples, and the parts of a leaderboard's columns that rows share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from maskpolicy.core import hub
from maskpolicy.core.errors import ConfigError
from maskpolicy.core.metrics import Metric
from maskpolicy.data.corpus.segmentation import ENGLISH
from maskpolicy.data.taskfiles import examples as task_examples
from maskpolicy.data.taskfiles import sources
from maskpolicy.experiment.definition import ENCODER, HUB, WORLD, PolicyBlock, TaskBlock
from maskpolicy.experiment.task_kinds import PAIR_SCORES, PAIRS, TASK_KINDS, TEXT
from maskpolicy.models.encoders import drops_head
from maskpolicy.models.families import family_of_type
from maskpolicy.models.learned import fit_tools
from maskpolicy.models.loading import model_type
from maskpolicy.models.scratch import preset
from maskpolicy.pipeline.graph.nodes import Stage
from maskpolicy.pipeline.stages.input_graph import Inputs, Text
from maskpolicy.pipeline.stages.params import (
    EXAMPLES,
    AuditParams,
    MajorityParams,
    Split,
    TaskParams,
)
from maskpolicy.plugins import hooks
from maskpolicy.plugins.discovery import code_digests, find_plugin


@dataclass(frozen=True)
class Column:
    """The parameters and metrics that the cells of a task share."""

    params: dict[str, Any]
    own_metric: str  # of the task, even if its block names others
    metrics: tuple[Metric, ...]  # the first one ranks


class TaskInputs:
    """The stages of tasks that all rows share."""

    def __init__(self, inputs: Inputs) -> None:
        self.experiment, self.inputs = inputs.experiment, inputs
        self.known: dict[tuple[str, str], Stage] = {}  # by the task's label and kind
        self.columns: dict[str, Column] = {}  # by the task's label

    def contexts(self, block: TaskBlock, text: Text, language: str = ENGLISH) -> Stage:
        """The contexts of a task's train and dev for learned policies, looked up in `text`.

        Its key does not depend on test, so test answers change neither a fitted policy nor its key.
        """
        task = sources.task(block)
        if TASK_KINDS[task.facts.kind].has_classes:
            return self.of_task("contexts", block, fit_tools.SPLITS, False, labels=True)
        corpus = text.corpus if task.facts.retrieval else None
        outside = hooks.READING.of(task.plugin) is None
        return self.of_task(
            "contexts", block, fit_tools.SPLITS, outside, language=language, corpus=corpus
        )

    def examples(self, block: TaskBlock, split: Split) -> Stage:
        """The stage with the examples of a split of a task.

        Train and dev are one stage and test is another, so that fine-tuning does not depend on
        files of test.
        """
        kind = EXAMPLES[split]
        if (block.label, kind) not in self.known:
            splits = [each for each in sources.SPLITS if EXAMPLES[each] == kind]
            others = {each: 0 for each in sources.SPLITS if each not in splits}
            own = replace(block, limit=replace(block.limit, **others))
            self.known[block.label, kind] = self.of_task(kind, own, splits, contexts=False)
        return self.known[block.label, kind]

    def check_world(self, block: TaskBlock) -> None:
        """Raise ConfigError, naming all affected tasks, if the world lacks a task's subjects."""
        settings: Any = self.inputs.world.params
        kinds = settings.kinds
        blocks = [one for one in (block, *self.experiment.tasks) if one.data == WORLD]
        place = self.experiment.place_of
        asked = {one.label: (place(one), _asked_about(one, place(one))) for one in blocks}
        lacking = {label: each for label, each in asked.items() if each[1] not in ("", *kinds)}
        if lacking:
            where, _ = next(iter(lacking.values()))
            tasks = ", ".join(f"{label} asks about {kind}" for label, (_, kind) in lacking.items())
            every = ", ".join(dict.fromkeys((*kinds, *(kind for _, kind in lacking.values()))))
            raise ConfigError(
                f"{where}: {tasks}, which this world lacks: set world.kinds: [{every}]"
            )

    def of_task(
        self,
        kind: str,
        block: TaskBlock,
        splits: Sequence[str],
        contexts: bool,
        labels: bool = False,
        language: str = ENGLISH,
        **inputs: Stage | None,
    ) -> Stage:
        """A stage that reads `splits` of a task; with `contexts`, files of contexts too."""
        params = TaskParams(
            task=replace(block, label="", metrics=(), finetune=None),
            code=code_digests(find_plugin("task", block.name)),
            version=sources.task(block).facts.version,
            labels=labels,
            language=language,
        )
        if block.data == WORLD:
            self.check_world(block)
            return self.inputs.stage(kind, block.label, params, world=self.inputs.world, **inputs)
        if block.data == HUB:
            where = self.experiment.place_of(block)
            place = sources.hub_config(sources.task(block), where)
            pinned = hub.commit("dataset", place[0], block.revision, where)
            params = replace(params, hub=place, task=replace(params.task, revision=pinned))
            made = self.inputs.stage(kind, block.label, params, **inputs)
            return self.inputs.located(made, revision=block.revision)
        folder = Path(block.data)
        read = [
            (split, path)
            for split in splits
            for path in task_examples.files(block, split, folder, contexts)
        ]
        found = {path: self.inputs.digest(path) for _, path in read}
        if len({path.name for path in found}) == len(found):
            files = {(path.name, digest) for path, digest in found.items()}
        else:  # the folders tell files of one name apart
            files = {
                (f"{each}/{os.path.relpath(path, folder)}", found[path]) for each, path in read
            }
        params = replace(
            params, files=tuple(sorted(files)), task=replace(params.task, data="folder")
        )
        made = self.inputs.stage(kind, block.label, params, **inputs).adjusted(files=found)
        return self.inputs.located(made, folder=block.data)

    def column(self, task: TaskBlock) -> Column:
        """The column of a task, which is made once."""
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
        if facts.kind == PAIRS:
            usual, able = "auto", PAIR_SCORES[self.experiment.model.kind]
            if choose not in (usual, *able):
                raise ConfigError(
                    f"{self.experiment.place_of(task)}.choose: {choose} does not score pairs with "
                    f"a model of kind {self.experiment.model.kind}: choose {' or '.join(able)}"
                )
            choose = able[0] if choose == usual else choose
        return {"head": facts.kind, "unanswerable": facts.unanswerable, "choose": choose}

    def check_head(self, task: TaskBlock, block: PolicyBlock) -> None:
        """Raise ConfigError if a row's encoder has no head that scores pairs."""
        model, where = self.experiment.model, self.experiment.place_of(task)
        if model.kind != ENCODER:
            return
        needs = f"{where}: {task.label} needs a head for masked language modelling, "
        if block.has_stage and drops_head(block.denoising):
            raise ConfigError(
                f"{needs}and row {block.label} drops the one that it trains: leave out the row or "
                "the task"
            )
        has_new = model.is_scratch or (
            Path(model.name).is_dir() and family_of_type(model_type(model.name), ENCODER).new_head
        )
        if not block.has_stage and (model.head == "new" or (model.head == "auto" and has_new)):
            raise ConfigError(f"{needs}which row {block.label} has with model.head: own")

    def audit(self, task: TaskBlock) -> Stage:
        """The audit of a task's data; scores do not depend on it."""
        model = self.experiment.model
        spec = replace(self.experiment.finetune, **(task.finetune or {}))
        positions = preset(model).positions if model.is_scratch else None
        params = AuditParams(
            max_source=spec.max_source,
            max_target=spec.max_target,
            positions=positions,
            has_ids=not task.fields.get("id"),  # a column that names the rows of a user's table
            **self.head(task),
        )
        return self.inputs.stage(
            "audit",
            task.label,
            params,
            tokenizer=self.inputs.tokenizer,
            **self.all_examples(task),
            model=None if model.is_scratch else self.inputs.weights,
        )

    def majority(self, task: TaskBlock) -> Stage:
        """The majority guess of a task, which needs no model."""
        made = sources.task(task)
        facts, metric = made.facts, made.metric
        params = MajorityParams(
            metric=metric.name,
            metric_version=metric.version,
            kind=facts.kind,
            keep=facts.keep,
            unanswerable=facts.unanswerable,
        )
        return self.inputs.stage("majority", task.label, params, **self.all_examples(task))

    def all_examples(self, task: TaskBlock) -> dict[str, Stage]:
        """All examples of a task, as inputs of a stage."""
        return {"train": self.examples(task, "train"), "test": self.examples(task, "test")}

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
        if able and model.kind != able:
            does = [name for name, each in TASK_KINDS.items() if each.model in ("", model.kind)]
            own = task.name == "labelled-table" and model.kind == TASK_KINDS[TEXT].model
            or_else = ", or take task table, with the label as its answer" if own else ""
            raise ConfigError(
                f"{place}: {task.label} is a {kind} task, which a model of kind {model.kind} "
                f"cannot do (it does {' and '.join(does)} tasks): set model.kind: {able}{or_else}"
            )


def _asked_about(block: TaskBlock, where: str) -> str:
    """Return the kind of subjects that a task of the world asks about; "" for any.

    Raises ConfigError if the world has no files of the task.
    """
    from maskpolicy.data.world import KINDS_BY_FILE

    task = sources.task(block)
    names = [path.as_posix() for path in sources.paths(task)]
    kinds = [KINDS_BY_FILE[name] for name in names if name in KINDS_BY_FILE]
    if not kinds:
        raise ConfigError(
            f"{where}: {block.label}: the embedded world has no files of task {task.words}, which "
            "`tasks` or a policy's `train_on` names: set data to their folder, or to hub"
        )
    return kinds[0]
