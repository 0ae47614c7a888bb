"""Stages that a training needs before: a policy's columns, statistics and fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from maskpolicy.core.errors import ConfigError
from maskpolicy.core.keys import without_omitted
from maskpolicy.data.taskfiles import sources
from maskpolicy.experiment import learned_policies
from maskpolicy.experiment.budgets import settled
from maskpolicy.experiment.definition import SEQ2SEQ, PolicyBlock, TaskBlock
from maskpolicy.experiment.policy_blocks import (
    leaf_blocks,
    member_code,
    policy_depends,
    policy_versions,
)
from maskpolicy.experiment.task_kinds import LABEL, TASK_KINDS, TEXT
from maskpolicy.pipeline.graph.nodes import Stage
from maskpolicy.pipeline.stages.fit import CLASSIFIER, CONTEXTS
from maskpolicy.pipeline.stages.input_graph import Inputs, Text
from maskpolicy.pipeline.stages.params import (
    FinetuneParams,
    FitParams,
    ReaderParams,
    Reads,
)
from maskpolicy.pipeline.stages.task_inputs import TaskInputs
from maskpolicy.pipeline.stages.training_text import ANNOTATE, numbered
from maskpolicy.plugins import hooks
from maskpolicy.plugins.discovery import code_digests, find_plugin
from maskpolicy.plugins.registry import depends


class PolicyInputs:
    """The stages that a policy needs before its training.

    `base(run)` is the model at the start of the training, and `text(block)` its corpus.
    """

    def __init__(
        self, inputs: Inputs, base: Callable[[int], Stage], text: Callable[[PolicyBlock], Text]
    ) -> None:
        self.experiment, self.inputs, self.tasks = inputs.experiment, inputs, TaskInputs(inputs)
        self.base, self.text = base, text

    def annotations(
        self,
        block: PolicyBlock,
        run: int,
        text: Text | None = None,
        reads: Reads | None = None,
    ) -> dict[str, Stage | None]:
        """The columns of a row's policy, or of each of its members, by name of the input.

        They are computed from the row's corpus, or from another `text`; `reads` as in ReaderParams.
        """
        leaves = [leaf for leaf, _ in leaf_blocks(block, "policies")]
        found = [self.annotate(leaf, run, text or self.text(leaf), reads) for leaf in leaves]
        return dict(zip(numbered(ANNOTATE, len(leaves)), found, strict=True))

    def annotate(
        self, block: PolicyBlock, run: int, text: Text, reads: Reads | None
    ) -> Stage | None:
        """The columns that a policy computes from a text, or None."""
        policy = block.policy
        if hooks.ANNOTATE.of(policy) is None:
            return None
        fit = self.fit(block, run) if learned_policies.is_learned(block) else None
        asks = hooks.STATISTICS in hooks.ANNOTATE.extra(policy)
        statistics = self.statistics(block) if asks else None
        params = replace(reader(block), reads=reads)
        is_shared = fit is None and reads is None
        label = block.label if is_shared else f"{block.label}, run {run}"
        label = f"{label}, {text.label}" if text.label else label
        return self.inputs.over("annotate", label, params, text, fit=fit, statistics=statistics)

    def select_statistics(self, block: PolicyBlock) -> dict[str, Stage | None]:
        """The statistics that `select` of a row's policy, or of each of its members, reads."""
        found: list[Stage | None] = []
        for leaf, _ in leaf_blocks(block, "policies"):
            reads = hooks.STATISTICS in hooks.SELECT.extra(leaf.policy)
            found.append(self.statistics(leaf) if reads else None)
        return dict(zip(numbered(hooks.STATISTICS, len(found)), found, strict=True))

    def statistics(self, block: PolicyBlock) -> Stage | None:
        """The statistics of the corpus that a policy reads, or None."""
        if not hooks.reads_statistics(block.policy):
            return None
        return self.inputs.statistics(block.label, block.policy, reader(block), self.text(block))

    def fit(self, block: PolicyBlock, run: int, of: str = "") -> Stage:
        """The training of a learned policy; `of` begins its label if another one starts from it."""
        kind = self.experiment.model.kind
        if kind != SEQ2SEQ and hooks.FITS_TO_DENOISING.of(block.policy):
            raise ConfigError(
                f"{self.experiment.where}policies: {block.name} is learned through a text-to-text "
                f"model, but model.kind is {kind}: remove it, or set model.kind: {SEQ2SEQ}"
            )
        spec = self.experiment.budget("fit", block)
        from_labels = hooks.LEARNS_FROM.of(block.policy) == "labels"
        language = self.experiment.corpus_of(block).language
        params = FitParams(
            **reader_params(block),
            spec=settled(replace(spec, seed=spec.seed + run), "fit", self.experiment.resources),
            how=block.denoising if hooks.FITS_TO_DENOISING.of(block.policy) else None,
            depends=(depends(block.policy) or None) if from_labels else None,
            language=language,
        )
        before = learned_policies.start(block)
        if before is not None:
            before = replace(before, trainings=block.trainings)
        label = f"{of}{block.label}, run {run}"
        methods = (hooks.FIT, hooks.ANNOTATE) if block.fields.get("train_on") else (hooks.FIT,)
        reads = any(hooks.STATISTICS in method.extra(block.policy) for method in methods)
        inputs: dict[str, Stage | None] = {
            "model": self.base(run),
            "tokenizer": self.inputs.tokenizer,
            "init": self.fit(before, run, f"{of}{block.label}: ") if before else None,
            "statistics": self.statistics(block) if reads else None,
        }
        tasks = learned_policies.tasks(block, self.experiment.tasks, self.experiment.data)
        for index, task in enumerate(tasks):
            inputs[f"{CONTEXTS}{index:02d}"] = self.tasks.contexts(task, self.text(block), language)
        if hooks.NEEDS_CLASSIFIER.of(block.policy):
            inputs[CLASSIFIER] = self.classifier(block, tasks[0], run)
        return self.inputs.resumable(self.inputs.stage("fit", label, params, **inputs), spec)

    def classifier(self, block: PolicyBlock, task: TaskBlock, run: int) -> Stage:
        """The model before the intermediate stage, fine-tuned on a label task for a row's policy.

        A text-to-text model learns the labels as texts.
        """
        made, spec = sources.task(task), self.experiment.budget("finetune", block, task)
        seed = self.experiment.budget("fit", block).seed
        spec = settled(replace(spec, seed=seed + run), "finetune", self.experiment.resources)
        is_text = self.experiment.model.kind == TASK_KINDS[TEXT].model
        params = FinetuneParams(
            head=TEXT if is_text else LABEL,
            choose="likelihood" if is_text else "generate",
            keep=made.facts.keep,
            metric=made.metric.name,
            metric_version=made.metric.version if spec.eval_every else 1,
            spec=spec,
        )
        tuned = self.inputs.stage(
            "finetune-classifier",
            f"{block.label}, {task.label}, run {run}",
            params,
            model=self.base(run),
            tokenizer=self.inputs.tokenizer,
            examples=self.tasks.contexts(task, self.text(block)),
        )
        return self.inputs.resumable(tuned.adjusted(transient=True), spec)


def policy_params(block: PolicyBlock) -> dict[str, Any]:
    """Return the fields of `PolicyParams`; `depends` if it is in no key of another stage."""
    depends = policy_depends(block)
    return {
        "policy": block.name,
        "fields": without_omitted(type(block.policy), block.fields),
        "code": code_digests(find_plugin("policy", block.name)),
        "member_code": member_code(block),
        "versions": policy_versions(block),
        **({} if depends is None else {"depends": depends}),
    }


def reader_params(block: PolicyBlock) -> dict[str, Any]:
    """Return the fields of `PolicyParams` for a stage that masks nothing."""
    fields = learned_policies.fitted_fields(block)
    return {**policy_params(block), "fields": fields, "versions": None}


def reader(block: PolicyBlock) -> ReaderParams:
    """Return the policy of a row as one that reads a corpus; a ConfigError names the row."""
    try:
        return ReaderParams(**reader_params(block), depends=depends(block.policy))
    except ConfigError as error:
        raise type(error)(f"policies: {block.label}: {error}") from error
