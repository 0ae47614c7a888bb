"""The command `check`: what an experiment reads and masks, without any training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import cast

import numpy as np

from maskpolicy.analyses.masked_sample import (
    DECIDING_PREFIXES,
    READS,
    MaskedSample,
    Sampling,
    masked_params,
    open_masked,
)
from maskpolicy.app.file_to_folder import Prepared
from maskpolicy.app.printed import console, table
from maskpolicy.core.files import read_json
from maskpolicy.core.types import Example
from maskpolicy.data.corpus.passages import Passages
from maskpolicy.data.taskfiles import audit, sources
from maskpolicy.data.taskfiles.evidence import Answers, words_of, words_within
from maskpolicy.experiment.budgets import TRAININGS, Training, block_of
from maskpolicy.experiment.definition import ENCODER
from maskpolicy.experiment.task_kinds import TEXT
from maskpolicy.masking.selection import Masker
from maskpolicy.models.families import limits, within
from maskpolicy.models.loading import load_config, load_tokenizer
from maskpolicy.models.scratch import preset
from maskpolicy.models.training.specials import Specials
from maskpolicy.pipeline.graph.events import Listener, Outcome
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.graph.nodes import Local, Stage
from maskpolicy.pipeline.stages.evaluation import AUDIT, read_examples
from maskpolicy.pipeline.stages.params import IntermediateParams, ReaderParams
from maskpolicy.pipeline.stages.preparation import SHARD
from maskpolicy.pipeline.stages.training_text import FEEDBACK
from maskpolicy.pipeline.store.artifacts import Artifact, available
from maskpolicy.plugins.discovery import instance
from maskpolicy.plugins.hooks import STATISTICS

_MASKS = {  # columns about the masks of a row
    "sampled": "{0.sampled:,}",
    "of passages": "{0.passages:,}",
    "tokens each": "{0.tokens_per_passage:.1f}",
    "truncated": "{0.truncated:.1%}",
    "masked": "{0.masked_tokens:.1%}",
    "spans each": "{0.spans_per_passage:.2f}",
    "without span": "{0.without_span:.1%}",
    "epochs": "{0.epochs:.1f}",
}


@dataclass(frozen=True)
class RowFigures:
    """What a row masks in a sample of its corpus in the first epoch.

    If its policy gives examples of passages, numbers "each" are those of an example.
    """

    row: str
    passages: int  # of the corpus
    sampled: int
    epochs: float  # how often the training reads a passage
    tokens_per_passage: float
    truncated: float  # share of the passages that are too long for the training
    masked_tokens: float  # share of the tokens
    spans_per_passage: float
    without_span: float  # share of the passages
    answer_places: Mapping[str, int]  # task -> occurrences of answers to its test questions
    answers_masked: Mapping[str, int]  # task -> those that are masked as spans of their own
    problem: str = ""  # why `run` would not start the training


@dataclass(frozen=True)
class TaskFigures:
    """The number of examples of a task, and notes about its data."""

    task: str
    examples: Mapping[str, int]  # by split
    notes: tuple[str, ...]


@dataclass(frozen=True)
class DataCheck:
    """The stages of an experiment that need no training, and masks in samples of its corpora."""

    prepared: Prepared
    sampling: Sampling
    _places_by_corpus: dict[str, dict[str, list[set[tuple[int, int]]]]] = field(
        default_factory=dict, init=False
    )

    @cached_property
    def stages(self) -> list[Stage]:
        """All stages that depend on no training, inputs first."""
        untrained: dict[str, Stage] = {}
        for stage in self.prepared.order:
            is_training = block_of(stage.kind) in TRAININGS
            if not is_training and all(each.key in untrained for each in stage.inputs.values()):
                untrained[stage.key] = stage
        return list(untrained.values())

    @cached_property
    def trainings(self) -> dict[str, Stage | None]:
        """The first intermediate training of each row that has one; None for a tuned row."""
        experiment, part = self.prepared.experiment, self.prepared.part
        rows, run = dict.fromkeys(row for row, _, _ in part.cells), experiment.runs[0]
        trained = {block.label for block in experiment.policies if block.has_stage}
        return {row: part.pretrained.get((row, run)) for row in rows if row in trained}

    @cached_property
    def deciding(self) -> dict[str, dict[str, Stage]]:
        """The inputs that decide what a row masks, for the rows whose masks need no training."""
        ready = {stage.key for stage in self.stages}
        inputs_of = {
            row: {k: each for k, each in training.inputs.items() if k.startswith(DECIDING_PREFIXES)}
            for row, training in self.trainings.items()
            if training is not None and FEEDBACK not in training.inputs
        }
        return {
            row: inputs
            for row, inputs in inputs_of.items()
            if all(each.key in ready for each in inputs.values())
        }

    @property
    def later(self) -> list[str]:
        """The rows whose masks depend on a training."""
        return [row for row in self.trainings if row not in self.deciding]

    @property
    def read(self) -> list[Stage]:
        """The stages that are computed first: no columns, and none that is dropped after use."""
        return [one for one in self.stages if not (one.transient or one.kind == "annotate")]

    @cached_property
    def masks(self) -> dict[str, Stage]:
        """The stage that masks a sample, for each row of `deciding`; needs the stages of `read`."""
        return {row: self._masked(row, inputs) for row, inputs in self.deciding.items()}

    def _masked(self, row: str, inputs: Mapping[str, Stage]) -> Stage:
        training, corpus, own = self._training(row), inputs["corpus"], dict(inputs)
        columns = {name: each for name, each in inputs.items() if each.kind == "annotate"}
        if not all(map(self._is_whole, columns.values())):
            own |= {name: self._sampled(each) for name, each in columns.items()}
            own |= {"corpus": self._sample(corpus), "whole": corpus}
        longest = self._passages(corpus).lengths.max()
        asked = _params(training)
        leaves = Masker.of(instance("policy", asked.policy, asked.fields), asked.how).leaves
        specials, spec = self._specials(row), self._spec(row)
        room = specials.kept(spec, (leaf.denoising for leaf in leaves))
        limits = specials.limits(spec, int(longest))
        params = masked_params(asked, self.sampling, room if 0 < room < longest else None, limits)
        return Stage("masked-sample", row, params, own, Local(plugins=training.local.plugins))

    def _is_whole(self, annotate: Stage) -> bool:
        """Return whether columns are computed for a whole corpus: it is small, or has them."""
        count = len(self._passages(annotate.inputs["corpus"]))
        is_small = count <= self.sampling.passages
        return READS not in annotate.keyed and (is_small or self.prepared.store.has(annotate.key))

    def _sample(self, corpus: Stage) -> Stage:
        return Stage("corpus-sample", corpus.label, self.sampling, {"corpus": corpus})

    def _sampled(self, annotate: Stage) -> Stage:
        """Return the stage that computes a policy's columns for a sample of the corpus."""
        inputs = {k: each for k, each in annotate.inputs.items() if not k.startswith(SHARD)}
        inputs["corpus"] = self._sample(inputs["corpus"])
        label = f"{annotate.label}, {self.sampling.passages} passages"
        params = replace(cast(ReaderParams, annotate.params), reads=None)
        return replace(annotate, label=label, inputs=inputs, params=params)

    def compute(self, workers: int, bars: AbstractContextManager[Listener]) -> list[Outcome]:
        """Compute the stages, with `workers` processes for each, and return their outcomes."""

        def computed(targets: list[Stage]) -> list[Outcome]:
            store = self.prepared.store
            return [*execute(targets, store, shown, targets=targets, workers=workers).values()]

        with bars as shown:
            outcomes = computed(self.read)
            if any(outcome.exception is not None for outcome in outcomes):
                return outcomes
            columns = [stage for stage in self.stages if stage.kind == "annotate"]
            columns = [each if self._is_whole(each) else self._sampled(each) for each in columns]
            return outcomes + computed([*columns, *self.masks.values()])

    def tasks(self) -> list[TaskFigures]:
        """Return the figures of all tasks, after `compute`."""
        return [self._task(*each) for each in self.prepared.part.audits.items()]

    def _task(self, label: str, stage: Stage) -> TaskFigures:
        figures = read_json(self._artifact(stage).path / AUDIT)
        notes = audit.notes(label, figures)
        counts: dict[str, int] = {}
        for split in sources.SPLITS:
            counts[split] = len(self._examples(stage, split))
            manifest = self._artifact(stage.inputs[_input_of(split)]).manifest
            facts = manifest["record"]["facts"][split]
            for what in ("unlabelled", "malformed"):
                if facts[what]:
                    notes.append(f"{label}: {facts[what]} {what} rows of {split} are left out")
        return TaskFigures(label, counts, tuple(notes))

    def rows(self) -> list[RowFigures]:
        """Return the figures of all rows of `masks`, after `compute`."""
        return [self._row(row, stage) for row, stage in self.masks.items()]

    def _row(self, row: str, stage: Stage) -> RowFigures:
        names = [name for name in stage.inputs if not name.startswith((STATISTICS, "whole"))]
        corpus = [self._artifact(stage.inputs[name]).path for name in names]
        params, spec = _params(self._training(row)), self._spec(row)
        room = stage.keyed.get("room")
        masked = open_masked(corpus, self._artifact(stage).path, room)
        sampled, examples = len(masked.places), masked.counts.lengths
        hidden, count = int(np.diff(masked.flat).sum()), max(1, int(examples.sum()))
        tokens = int((masked.tokens.lengths * examples).sum())
        share, empty = hidden / max(1, tokens), (masked.counts.flat == 0).sum()
        lengths = self._passages(self.deciding[row]["corpus"]).lengths
        read, without = spec.steps * spec.batch_size, float(empty / count)
        places, masked_spans = self._places(stage.inputs["corpus"], masked), _masked_places(masked)
        return RowFigures(
            row,
            passages=len(lengths),
            sampled=sampled,
            epochs=read / len(lengths) * sampled / count,
            tokens_per_passage=tokens / count,
            truncated=0.0 if room is None else float((lengths > room).mean()),
            masked_tokens=share,
            spans_per_passage=len(masked.flat) / count,
            without_span=without,
            answer_places={task: sum(map(len, each)) for task, each in places.items()},
            answers_masked={
                task: sum(len(own & spans) for own, spans in zip(each, masked_spans, strict=True))
                for task, each in places.items()
            },
            problem=_problem(share, read * (1 - without) or None, params.how.mask_exclusion > 0)
            or self._specials(row).without_room(spec),
        )

    def _spec(self, row: str) -> Training:
        """Return the budget of a row's training with limits lowered to its model's positions."""
        training, model = self._training(row), self.prepared.experiment.model
        if model.is_scratch:  # there is no folder with its configuration
            positions = preset(model).positions
            return within(_params(training).spec, (positions, positions))
        config = load_config(self._artifact(training.inputs["model"]).path)
        return within(_params(training).spec, limits(config))

    def _training(self, row: str) -> Stage:
        training = self.trainings[row]
        assert training is not None  # of a row of `deciding`
        return training

    def _passages(self, corpus: Stage) -> Passages:
        return Passages.open(self._artifact(corpus).path)

    def _specials(self, row: str) -> Specials:
        """Return the special tokens of the tokenizer of a row's training."""
        folder = self._artifact(self._training(row).inputs["tokenizer"]).path
        is_encoder = self.prepared.experiment.model.kind == ENCODER
        of = Specials.of_encoder if is_encoder else Specials.of
        return of(load_tokenizer(str(folder)))

    @cached_property
    def _answers(self) -> dict[str, Answers]:
        """The answers to the test questions of each task with free-text answers."""
        answers_of = {}
        for task in self.prepared.experiment.tasks:
            stage = self.prepared.part.audits.get(task.label)
            if stage is not None and sources.task(task).facts.kind == TEXT:
                examples = [each for each in self._examples(stage, "test") if not each.choices]
                answers_of[task.label] = Answers(text for each in examples for text in each.targets)
        return {task: answers for task, answers in answers_of.items() if answers}

    def _places(self, corpus: Stage, masked: MaskedSample) -> dict[str, list[set[tuple[int, int]]]]:
        """Return the places of each task's answers in each passage of a corpus's sample."""
        if corpus.key not in self._places_by_corpus:  # rows share it
            texts = [words_of(text) for text, _ in masked.in_characters()]
            self._places_by_corpus[corpus.key] = {
                task: list(map(answers.places, texts)) for task, answers in self._answers.items()
            }
        return self._places_by_corpus[corpus.key]

    def _examples(self, stage: Stage, split: str) -> list[Example]:
        """Return the examples of a split, which are an input of their task's audit."""
        return read_examples(self._artifact(stage.inputs[_input_of(split)]).path, split)

    def _artifact(self, stage: Stage) -> Artifact:
        return available(self.prepared.store, stage.key, stage.name)


def _input_of(split: str) -> str:
    """Return the input of an audit that holds a split."""
    return "test" if split == "test" else "train"


def _params(training: Stage) -> IntermediateParams:
    assert isinstance(training.params, IntermediateParams)
    return training.params


def _problem(share: float, expected: float | None, is_excluded: bool) -> str:
    """Return why `run` would not start a training that masks a share of the tokens, or "".

    `expected` is the number of passages with a masked token that the training will read, if known.
    """
    if not share:
        return "masks nothing"
    if expected is not None and expected < 1:
        return "masks a token in so few passages that its training may read none of them"
    if share == 1 and is_excluded:
        return "masks every token, so with mask_exclusion the encoder would read no words"
    return ""


def _masked_places(masked: MaskedSample) -> list[set[tuple[int, int]]]:
    """Return the words that each span of a passage masks, as ranges of `words_of` its text."""
    places = []
    for text, spans in masked.in_characters():
        words = words_of(text)
        ranges = (words_within(words, start, end) for start, end in spans)
        places.append({each for each in ranges if each is not None})
    return places


def show(rows: Sequence[RowFigures], tasks: Sequence[TaskFigures], later: Sequence[str]) -> None:
    """Print a table of the tasks, one of what each row masks, and one of the answers masked."""
    screen = console()
    if tasks:
        examples = table("task", *tasks[0].examples, numbers=True)
        for task in tasks:
            examples.add_row(task.task, *(f"{count:,}" for count in task.examples.values()))
        screen.print(examples)
    for task in tasks:
        for line in task.notes:
            screen.print(line, soft_wrap=True)
    if rows:
        masks = table("first epoch", *_MASKS, numbers=True)
        for row in rows:
            masks.add_row(row.row, *(form.format(row) for form in _MASKS.values()))
        screen.print()
        screen.print(masks)
    if any(row.answer_places for row in rows):
        answers = table("answers masked", *rows[0].answer_places, numbers=True)
        for row in rows:
            cells = [
                f"{row.answers_masked[task] / places:.1%} of {places:,}" if places else "none there"
                for task, places in row.answer_places.items()
            ]
            answers.add_row(row.row, *cells)
        screen.print()
        screen.print(answers)
    if later:
        screen.print(f"masks depend on a training: {'; '.join(later)}", soft_wrap=True)
