"""Build the graph of stages of an experiment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from maskpolicy.core.errors import ConfigError, unknown
from maskpolicy.core.files import sha256
from maskpolicy.data.corpus.shards import CutFile
from maskpolicy.experiment import learned_policies
from maskpolicy.experiment.budgets import Training, resolve_auto, settled
from maskpolicy.experiment.definition import ENCODER, Experiment, PolicyBlock, TaskBlock
from maskpolicy.experiment.policy_blocks import GENERAL_POLICY, leaf_blocks
from maskpolicy.experiment.task_kinds import is_zero_shot
from maskpolicy.models import scratch
from maskpolicy.models.encoders import drops_head
from maskpolicy.models.model_kinds import MODEL_KINDS
from maskpolicy.pipeline.graph import nodes
from maskpolicy.pipeline.graph.nodes import Stage
from maskpolicy.pipeline.stages import (  # noqa: F401 (they register the stages)
    evaluation,
    feedback,
    model_training,
)
from maskpolicy.pipeline.stages.input_graph import Digest, Inputs, scan
from maskpolicy.pipeline.stages.params import (
    EvaluateParams,
    FeedbackParams,
    FinetuneParams,
    GeneralParams,
    IntermediateParams,
    Reads,
    Split,
)
from maskpolicy.pipeline.stages.policy_inputs import PolicyInputs, policy_params
from maskpolicy.pipeline.stages.task_inputs import TaskInputs
from maskpolicy.pipeline.stages.training_text import FEEDBACK, VALIDATION_PREFIX
from maskpolicy.pipeline.stages.tuned_rows import TunedRow, cell_label
from maskpolicy.plugins import registry
from maskpolicy.plugins.registry import gives_examples

CellName = TypeVar("CellName", bound=tuple[object, ...])
ZERO_SHOT = Training(
    steps=0, precision="fp32", attention="sdpa"
)  # what answers without fine-tuning depend on
_GENERAL_SEEDS = 2**31  # + seed: rows that read the file's corpus have other masks


@dataclass(frozen=True)
class Graph:
    """The stages of an experiment, and the stage that computes each cell of its leaderboard."""

    stages: tuple[Stage, ...]  # the evaluations of all cells
    cells: Mapping[tuple[str, str, int], Stage]  # by policy label, task label and seed
    pretrained: Mapping[tuple[str, int], Stage]  # models to fine-tune, by policy label and run
    early: Mapping[tuple[str, str, int, int], Stage] = field(default_factory=dict)  # and by step
    majority: Mapping[str, Stage] = field(default_factory=dict)  # by task label
    audits: Mapping[str, Stage] = field(default_factory=dict)  # by task label

    @property
    def targets(self) -> tuple[Stage, ...]:
        """The stages that a run computes: audits, cells, models to keep and majority guesses.

        Audits come first, so that users see problems of the data before hours of training.
        """
        options = (each for cell in self.cells.values() for each in nodes.options(cell).values())
        evaluated = [stage for stage in (*self.stages, *options) if "model" in stage.inputs]
        models = [stage.inputs["model"] for stage in evaluated]
        kept = (stage for stage in models if stage.kind == "finetune" and not stage.transient)
        return (*self.audits.values(), *self.stages, *kept, *self.majority.values())


def build(experiment: Experiment, digest: Digest = sha256, cut: CutFile = scan) -> Graph:
    """Return the graph of an experiment without computing any stage.

    `digest` returns the sha256 of a data file, and `cut` its cuts. Raises ConfigError or DataError,
    e.g. for a missing file or a setting that a stage does not support.
    """
    return _Builder(Inputs(experiment, digest, cut)).graph()


def tokenizer(experiment: Experiment, digest: Digest = sha256) -> Stage:
    """Return the stage that trains or loads the tokenizer of an experiment."""
    return Inputs(experiment, digest, cut=None).tokenizer


def corpus(experiment: Experiment, digest: Digest, cut: CutFile) -> Stage:
    """Return the stage with the passages of an experiment's first row."""
    return Inputs(experiment, digest, cut).text(experiment.policies[0]).corpus


def train_examples(experiment: Experiment, task: TaskBlock, digest: Digest) -> Stage:
    """Return the stage with the train and dev examples of a task."""
    return TaskInputs(Inputs(experiment, digest, cut=None)).examples(task, "train")


def statistics(experiment: Experiment, digest: Digest) -> list[Stage | None]:
    """Return the stages of the statistics that the first row, or each of its members, reads."""
    builder = _Builder(Inputs(experiment, digest, cut=None))
    leaves = leaf_blocks(experiment.policies[0], "policies[0]")
    return [builder.row_inputs.statistics(leaf) for leaf, _ in leaves]


def choose_cells(graph: Graph, only: Sequence[str]) -> Graph:
    """Return the graph of the cells that `only` names as ROW, ROW/TASK or /TASK; [] names all.

    Raises ConfigError for an unknown row or task.
    """
    if not only:
        return graph
    rows = list(dict.fromkeys(row for row, _, _ in graph.cells))
    tasks = list(dict.fromkeys(task for _, task, _ in graph.cells))
    named = [_named(word, rows, tasks) for word in only]
    cells, early = _of(graph.cells, named), _of(graph.early, named)
    labels = {task for _, task, _ in cells}
    return replace(
        graph,
        stages=(*cells.values(), *early.values()),
        cells=cells,
        early=early,
        majority={task: stage for task, stage in graph.majority.items() if task in labels},
        audits={task: stage for task, stage in graph.audits.items() if task in labels},
    )


class _Builder:
    def __init__(self, inputs: Inputs) -> None:
        self.experiment, self.inputs = inputs.experiment, inputs
        self.kind = MODEL_KINDS[self.experiment.model.kind]
        self.tasks = TaskInputs(inputs)
        self.row_inputs = PolicyInputs(inputs, self.base, inputs.text)
        self.models: dict[tuple[str, int, int], Stage] = {}
        self.feedback_inputs: dict[tuple[str, int, int], dict[str, Stage]] = {}
        self.general: dict[int, Stage] = {}
        self.tuned: dict[str, TunedRow] = {}

    def graph(self) -> Graph:
        """Build all cells, majority guesses and audits."""
        pretrained = {
            (block.label, run): self.pretrained(block, run)
            for block in self.experiment.policies
            if not block.candidates
            for run in self.experiment.runs
        }
        cells = {
            (block.label, task.label, seed): self.cell(block, task, seed)
            for block in self.experiment.policies
            for task in self.experiment.tasks
            for seed in self.experiment.seeds
        }
        early = self.early()
        trained = [each for each in self.experiment.tasks if not is_zero_shot(each)]
        majority = {task.label: self.tasks.majority(task) for task in trained}
        audits = {task.label: self.tasks.audit(task) for task in trained}
        every = (*cells.values(), *early.values())
        return Graph(every, cells, pretrained, early, majority, audits)

    def early(self) -> dict[tuple[str, str, int, int], Stage]:
        """Build the cells of the models at checkpoint_steps of the intermediate stage.

        Later steps come first, because their training also saves the models of earlier steps.
        """
        return {
            (block.label, task.label, seed, step): self.cell(block, task, seed, step)
            for block in self.experiment.policies
            for step in reversed(self.steps_of(block))
            for task in self.experiment.tasks
            for seed in self.experiment.seeds
        }

    def steps_of(self, block: PolicyBlock) -> list[int]:
        """The checkpoint_steps before the end of a row's intermediate stage."""
        if not block.has_stage:
            return []
        every = block.candidates or (block,)
        steps = min(self.experiment.budget("intermediate", each).steps for each in every)
        return [step for step in self.experiment.checkpoint_steps if step < steps]

    def cell(
        self, block: PolicyBlock, task: TaskBlock, seed: int, until: int = 0, split: Split = "test"
    ) -> Stage:
        """The scores of a row on a task: of its model, or that after `until` steps, on a split."""
        if block.candidates:
            if block.label not in self.tuned:
                self.tuned[block.label] = TunedRow(block, self.inputs, self.tasks, self.cell)
            return self.tuned[block.label].take(task, seed, until)
        model = self.pretrained(block, self.experiment.run_of(seed), until)
        label = cell_label(block, task, seed, until)
        return self.evaluate(block, task, model, seed, label, split)

    def base(self, run: int) -> Stage:
        """The model that an intermediate run starts from; policy `none` fine-tunes it directly."""
        if not self.experiment.model.is_scratch:
            return self.inputs.weights
        number = self.experiment.general_of(run)
        if number not in self.general:
            self.general[number] = self._general(number)
        return self.general[number]

    def _general(self, number: int) -> Stage:
        """A model built from scratch, pre-trained on the general corpus."""
        spec, model = self.experiment.general, self.experiment.model
        general = self.inputs.general_text
        seed = spec.seed + number
        text, rows_read = self.experiment.general_text, replace(self.experiment.corpus, mix=None)
        parts = self.inputs.parts
        if spec.steps and text is not None and parts(text)[0] == parts(rows_read)[0]:
            seed = (seed + _GENERAL_SEEDS) % 2**32
        objective: dict[str, Any] = {"policy": GENERAL_POLICY, "fields": {}}
        objective["how"] = self.kind.general
        inputs: dict[str, Stage | None] = {
            "tokenizer": self.inputs.tokenizer,
            "corpus": general.corpus,
        }
        if (block := self.experiment.general_policy) is not None:
            objective = {**policy_params(block), "how": block.denoising}
            objective["code"] = objective["code"] or None
            own = PolicyInputs(self.inputs, self.base, lambda leaf: general)
            inputs |= own.annotations(block, number) | own.select_statistics(block)
        params = GeneralParams(
            **objective,
            preset=Path(model.name).name,
            spec=settled(replace(spec, seed=seed), "general", self.experiment.resources),
            layers=model.layers if model.is_preset else None,
            relative_positions=model.relative_positions,
            config=scratch.config_of(model),
            keeps_head=model.head == "own",
            whole_targets=self._has_short_targets(spec),
            **self.inputs.model_fields(),
        )
        name = Path(model.name).name
        label = f"{name}, model {number}" if number else name
        return self.inputs.resumable(self.inputs.stage("general", label, params, **inputs), spec)

    def pretrained(self, block: PolicyBlock, run: int, until: int = 0) -> Stage:
        """The model that a row fine-tunes, after its intermediate stage if it has one.

        With `until`, the model after that number of steps, although the stage continues.
        """
        key = (block.label, run, until)
        if key not in self.models:
            has_stage = block.has_stage
            self.models[key] = self.trained(block, run, until) if has_stage else self.base(run)
        return self.models[key]

    def trained(self, block: PolicyBlock, run: int, until: int) -> Stage:
        """The last part of a row's intermediate training, or of its first `until` steps."""
        if block.denoising.mask_exclusion:
            self.inputs.check_exclusion()
        spec = self.spec(block, run)
        end = until or spec.steps or 1
        bounds = feedback.bounds(block, spec, self.experiment.where)
        first = max(bound for bound in bounds if bound < end)
        label = f"{block.label}, run {run}"
        if until:
            label = f"{label}, first {until} of {spec.steps} steps"
        made = self.intermediate("intermediate", label, block, run, first, until)
        before = range(first + 1, until or spec.steps)
        return made.adjusted(byproducts=self.kept(block, run, before))

    def spec(self, block: PolicyBlock, run: int) -> Training:
        """The budget of a row's intermediate run."""
        spec = self.experiment.budget("intermediate", block)
        validates = self.inputs.validation is not None
        spec, resources = replace(spec, seed=spec.seed + run), self.experiment.resources
        return settled(spec, "intermediate", resources, has_text=validates)

    def kept(self, block: PolicyBlock, run: int, steps: range) -> dict[str, Stage]:
        """The models at those checkpoint_steps that are among some steps of a training."""
        found = [step for step in self.steps_of(block) if step in steps]
        return {str(step): self.pretrained(block, run, step) for step in found}

    def intermediate(
        self, kind: str, label: str, block: PolicyBlock, run: int, first: int, until: int
    ) -> Stage:
        """A training on masked passages from step `first` to step `until` (0: to its end)."""
        spec = self.spec(block, run)
        params = IntermediateParams(
            **policy_params(block),
            how=block.denoising,
            spec=spec,
            until=until,
            first=first,
            keeps_head=self.experiment.model.kind == ENCODER and not drops_head(block.denoising),
            whole_targets=self._has_short_targets(spec),
            **self.inputs.model_fields(),
        )
        inputs = self.training_inputs(block, run) | self.feedback(block, run, first)
        return self.inputs.resumable(self.inputs.stage(kind, label, params, **inputs), spec)

    def _has_short_targets(self, spec: Training) -> bool:
        """Return whether targets may be shorter than sources; earlier versions cut them."""
        return self.experiment.model.kind != ENCODER and spec.max_target < spec.max_source

    def training_inputs(self, block: PolicyBlock, run: int) -> dict[str, Stage | None]:
        """The inputs of each part of an intermediate training, with those of its validation."""
        validation: dict[str, Stage | None] = {}
        if (text := self.inputs.validation) is not None:
            validation = {"corpus": text.corpus, **self.row_inputs.annotations(block, run, text)}
        return {
            "model": self.base(run),
            "tokenizer": self.inputs.tokenizer,
            "corpus": self.inputs.text(block).corpus,
            **self.row_inputs.annotations(block, run, reads=self.reads(block, run)),
            **self.row_inputs.select_statistics(block),
            **{f"{VALIDATION_PREFIX}{name}": stage for name, stage in validation.items()},
        }

    def reads(self, block: PolicyBlock, run: int) -> Reads | None:
        """Steps, batch size and seed of a row's training; None if all passages get columns.

        A policy that gives examples needs all: its order is known only from them.
        """
        spec = self.spec(block, run)
        if self.experiment.annotate == "all" or gives_examples(block.policy) or not spec.steps:
            return None
        return spec.steps, spec.batch_size, spec.seed

    def feedback(self, block: PolicyBlock, run: int, first: int) -> dict[str, Stage]:
        """The inputs from earlier parts, for the part of a training that begins at step `first`.

        "feedback" are the columns that the policy computes with the model of step `first`, and
        "state" is the whole state of the training there. A row without feedback has neither.
        """
        key = block.label, run, first
        if key not in self.feedback_inputs:
            has_parts = feedback.every(block) and self.spec(block, run).steps
            self.feedback_inputs[key] = self._feedback(block, run, first) if has_parts else {}
        return self.feedback_inputs[key]

    def _feedback(self, block: PolicyBlock, run: int, first: int) -> dict[str, Stage]:
        spec, name, found = self.spec(block, run), f"{block.label}, run {run}", {}
        size = feedback.every(block)
        inputs = self.training_inputs(block, run)
        if learned_policies.is_learned(block):
            inputs["fit"] = self.row_inputs.fit(block, run)
        if first:
            begin = first - size
            label = f"{name}, steps {begin + 1} to {first}"
            part = self.intermediate("intermediate-part", label, block, run, begin, first)
            kept = self.kept(block, run, range(begin + 1, first + 1))
            found["state"] = part.adjusted(byproducts=kept, transient=True)
            inputs["before"] = self.feedback(block, run, begin)[FEEDBACK]
        params = FeedbackParams(
            **{**policy_params(block), "versions": None},
            how=block.denoising,
            spec=spec,
            depends=registry.depends(block.policy),
            first=first,
            until=min(first + size, spec.steps),
            **self.inputs.model_fields(),
        )
        label = f"{name}, after {first} of {spec.steps} steps"
        made = self.inputs.stage("intermediate-feedback", label, params, **inputs, **found)
        return {FEEDBACK: made.adjusted(transient=True), **found}

    def evaluate(
        self, block: PolicyBlock, task: TaskBlock, model: Stage, seed: int, label: str, split: Split
    ) -> Stage:
        """The answers of a row's model to a split, after fine-tuning if the task needs it."""
        column, tokenizer = self.tasks.column(task), self.inputs.tokenizer
        resources = self.experiment.resources
        budget = self.experiment.budget("finetune", block, task)
        metric, *others = column.metrics
        if is_zero_shot(task):
            self.tasks.check_head(task, block)
            spec = replace(ZERO_SHOT, max_source=max(ZERO_SHOT.max_source, budget.max_source))
        else:
            spec = settled(replace(budget, seed=seed), "finetune", resources)
            model = self.finetune(task, model, spec, label)
        evaluate = EvaluateParams(
            **column.params,
            spec=resolve_auto(spec, resources.states_gpus("finetune")),
            metric=metric.name,
            metric_version=metric.version,
            besides=tuple((other.name, other.version) for other in others),
            split=split,
        )
        name = label if split == "test" else f"{label}, {split}"
        inputs = {"tokenizer": tokenizer, "examples": self.tasks.examples(task, split)}
        return self.inputs.stage("evaluate", name, evaluate, model=model, **inputs)

    def finetune(self, task: TaskBlock, model: Stage, spec: Training, label: str) -> Stage:
        """A model that is fine-tuned on a task."""
        column, chooses = self.tasks.column(task), bool(spec.eval_every)
        metric = column.metrics[0]  # chooses the weights if there is a choice
        finetune = FinetuneParams(
            **column.params,
            spec=spec,
            metric=metric.name if chooses else column.own_metric,
            metric_version=metric.version if chooses else 1,
        )
        learnt = self.tasks.examples(task, "train")
        inputs = {"tokenizer": self.inputs.tokenizer, "examples": learnt}
        tuned = self.inputs.stage("finetune", label, finetune, model=model, **inputs)
        tuned = tuned.adjusted(transient="finetune" not in self.experiment.keep_models)
        return self.inputs.resumable(tuned, spec)


def _of(cells: Mapping[CellName, Stage], named: Iterable[tuple[str, str]]) -> dict[CellName, Stage]:
    named = list(named)
    return {
        cell: stage
        for cell, stage in cells.items()
        if any(row in ("", cell[0]) and task in ("", cell[1]) for row, task in named)
    }


def _named(word: str, rows: Sequence[str], tasks: Sequence[str]) -> tuple[str, str]:
    """Return the row and task that a word names ("" for any); labels may contain a slash."""
    if word in rows:
        return word, ""
    cuts = [index for index, sign in enumerate(word) if sign == "/"]
    for cut in cuts:
        row, task = word[:cut], word[cut + 1 :]
        if row in ("", *rows) and task in tasks:
            return row, task
    row, _, task = word.partition("/") if word.partition("/")[0] in rows else word.rpartition("/")
    if not cuts or row not in ("", *rows):
        said = f"--only {word}: {unknown('row', row if cuts else word, rows)}"
        if word in tasks:
            said = f"--only {word}: is a task: write /{word}"
        elif "," in word:
            said = f"{said}; give --only once for each"
        raise ConfigError(said)
    raise ConfigError(f"--only {word}: {unknown('task', task, tasks)}")
