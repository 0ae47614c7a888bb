"""What an experiment reads and masks, found without any training: the command `check`."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from maskpolicy.findings.masked_sample import DECIDING, Sampling, masked_params, open_masked
from maskpolicy.findings.task_examples import answers
from maskpolicy.formats import audit, sources
from maskpolicy.graph.nodes import Stage, topological
from maskpolicy.graph.outcomes import Outcome, Progress
from maskpolicy.metrics.per_example import normalise
from maskpolicy.plugins.hooks import STATISTICS
from maskpolicy.stages.evaluation import AUDIT, read_examples
from maskpolicy.stages.leaf_inputs import FEEDBACK
from maskpolicy.stages.params import IntermediateParams

if TYPE_CHECKING:
    from maskpolicy.findings.masked_sample import MaskedPassages
    from maskpolicy.runs.file_to_folder import Prepared
    from maskpolicy.types import Example

_BEGIN = ("intermediate", "intermediate-part")  # stages that may begin a row's training


@dataclass(frozen=True)
class RowFigures:
    """What a row masks in a sample of its corpus."""

    row: str
    passages: int  # of the corpus
    sampled: int
    epochs: float  # how often the training reads a passage
    tokens_per_passage: float
    masked_tokens: float  # share of the tokens
    spans_per_passage: float
    without_span: float  # share of the passages
    # task -> of the places where an answer to a test question stands, the share that is masked, as
    # a span of its own; None if no answer stands in the sample
    answers: Mapping[str, float | None]


@dataclass(frozen=True)
class TaskFigures:
    """How many examples a task has, and what its audit found."""

    task: str
    examples: Mapping[str, int]  # by split
    notes: tuple[str, ...]


@dataclass(frozen=True)
class DataCheck:
    """The stages of an experiment that need no training, and masks in samples of its corpora."""

    prepared: Prepared
    sampling: Sampling

    @cached_property
    def stages(self) -> list[Stage]:
        """All stages without a training before them, inputs first."""
        found: dict[str, Stage] = {}
        for stage in self.prepared.order:
            is_training = hasattr(stage.params, "spec")
            if not is_training and all(each.key in found for each in stage.inputs.values()):
                found[stage.key] = stage
        return list(found.values())

    @cached_property
    def trainings(self) -> dict[str, Stage]:
        """The first part of each row's first intermediate training, by the row's label."""
        end = f", run {self.prepared.experiment.runs[0]}"
        found = {}
        for stage in self.prepared.order:
            label, _, rest = stage.label.partition(end)
            is_whole = not rest or rest.startswith(", steps 1 ")
            begins = stage.kind in _BEGIN and getattr(stage.params, "first", 1) == 0
            if begins and is_whole:
                found[label] = stage
        return found

    @cached_property
    def masks(self) -> dict[str, Stage]:
        """The stage that masks a sample, of each row that needs no training for it."""
        ready = {stage.key for stage in self.stages}
        found = {}
        for row, training in self.trainings.items():
            inputs = {n: each for n, each in training.inputs.items() if n.startswith(DECIDING)}
            known = all(each.key in ready for each in inputs.values())
            if known and FEEDBACK not in training.inputs:
                params = masked_params(_params(training), self.sampling)
                found[row] = Stage("masked-sample", row, params, inputs, training.local)
        return found

    @property
    def later(self) -> list[str]:
        """The rows whose masks depend on a training."""
        return [row for row in self.trainings if row not in self.masks]

    @property
    def targets(self) -> list[Stage]:
        """All that `compute` computes."""
        return [*self.stages, *self.masks.values()]

    def compute(self, workers: int, bars: AbstractContextManager[Progress]) -> Collection[Outcome]:
        """Compute the stages, with `workers` processes for each, and return their outcomes."""
        from maskpolicy.graph.execution import execute

        with bars as shown:
            order, store = topological(self.targets), self.prepared.store
            found = execute(order, store, shown, targets=self.targets, workers=workers)
        return found.values()

    def tasks(self) -> list[TaskFigures]:
        """Return the figures of all tasks, once everything is computed."""
        found = []
        for label, stage in self.prepared.part.audits.items():
            known = json.loads((self._folder(stage) / AUDIT).read_text(encoding="utf-8"))
            counts = {split: len(self._examples(stage, split)) for split in sources.SPLITS}
            found.append(TaskFigures(label, counts, tuple(audit.notes(label, known))))
        return found

    def rows(self) -> list[RowFigures]:
        """Return the figures of all rows of `masks`, once everything is computed."""
        asked = {}
        for task in self.prepared.experiment.tasks:
            stage = self.prepared.part.audits.get(task.label)
            if stage is not None and sources.task(task).facts.kind == "text":
                found = (each for each in self._examples(stage, "test") if not each.choices)
                asked[task.label] = answers(found)
        return [self._row(row, stage, asked) for row, stage in self.masks.items()]

    def _row(self, row: str, stage: Stage, asked: Mapping[str, Set[str]]) -> RowFigures:
        read = [n for n in stage.inputs if not n.startswith(STATISTICS)]
        masked = open_masked([self._folder(stage.inputs[n]) for n in read], self._folder(stage))
        spec = _params(self.trainings[row]).spec
        count, sampled = len(masked.passages), len(masked.places)
        return RowFigures(
            row,
            count,
            sampled,
            epochs=spec.steps * spec.batch_size / count,
            tokens_per_passage=len(masked.tokens.flat) / sampled,
            masked_tokens=float(masked.is_masked.mean()),
            spans_per_passage=len(masked.flat) / sampled,
            without_span=float((masked.spans.lengths == 0).mean()),
            answers={task: _share(masked, each) for task, each in asked.items() if each},
        )

    def _examples(self, stage: Stage, split: str) -> list[Example]:
        """Return the examples of a split, which the audit of their task has as an input."""
        name = "test" if split == "test" else "train"
        return read_examples(self._folder(stage.inputs[name]), split)

    def _folder(self, stage: Stage) -> Path:
        artifact = self.prepared.store.get(stage.key)
        assert artifact is not None
        return artifact.path


def _params(training: Stage) -> IntermediateParams:
    assert isinstance(training.params, IntermediateParams)
    return training.params


def _share(masked: MaskedPassages, answers: Set[str]) -> float | None:
    """Return the share of the places with an answer that a span of its own masks."""
    longest = max(len(answer.split()) for answer in answers)
    found = 0
    for place in masked.places.tolist():
        words = normalise(masked.passages.arrays["texts"].text(place)).split()
        parts = (words[i : i + n] for n in range(1, longest + 1) for i in range(len(words) - n + 1))
        found += sum(" ".join(part) in answers for part in parts)
    spans = sum(normalise(text) in answers for text in masked.texts())
    return spans / found if found else None
