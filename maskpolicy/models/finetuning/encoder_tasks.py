"""Label and span tasks: an encoder with a head reads one text or two.

The answer of a label task is a class, or a number if the task has no classes. The answer of a span
task is a part of the context, which is read in overlapping windows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from maskpolicy.core.errors import ConfigError, DataError
from maskpolicy.core.ragged import Ragged
from maskpolicy.core.types import Example
from maskpolicy.data.corpus.passages import encode
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.task_kinds import (
    LABEL,
    SPAN,
    TASK_KINDS,
    AnswerParams,
    HeadParams,
)
from maskpolicy.models import encoders
from maskpolicy.models.cpu import TrainingLoss
from maskpolicy.models.families import reads_types
from maskpolicy.models.loading import load_reported
from maskpolicy.models.training.batching import (
    Batch,
    Pairs,
    Progress,
    check_scores,
    collate,
    in_batches,
)
from maskpolicy.models.training.specials import Specials, added_ends
from maskpolicy.models.training.steps import Cut, ExampleSteps, tokenize

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

_OVERLAP = 128  # tokens that two windows share at most (BERT's and RoBERTa's stride)
_LONGEST = 30  # tokens of an answer, as in BERT's evaluation
_NOTHING = (0, 0)  # the place that means "no answer here": <s>


@dataclass(frozen=True)
class TwoTexts:
    """The special tokens of two texts in one input."""

    before: tuple[int, ...]
    middle: tuple[int, ...]
    after: tuple[int, ...]

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase) -> TwoTexts:
        """Return those that a tokenizer adds, such as [CLS] first [SEP] second [SEP] (BERT).

        Without any: <s> first </s></s> second </s> (RoBERTa).
        """
        marks, ends = Specials.of_encoder(tokenizer), added_ends(tokenizer, 2)
        return cls(*ends) if any(ends) else cls((marks.bos,), (marks.eos,) * 2, (marks.eos,))

    def __len__(self) -> int:
        """Return the number of special tokens."""
        return len(self.before) + len(self.middle) + len(self.after)

    def offset(self, first: NDArray[np.int32]) -> int:
        """Return the place of the second text's first token."""
        return len(self.before) + len(first) + len(self.middle)

    def joined(self, first: NDArray[np.int32], second: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the ids of two texts in one input."""
        parts = (self.before, first, self.middle, second, self.after)
        return np.concatenate([np.asarray(part, np.int32) for part in parts])


def cut(
    first: NDArray[np.int32], second: NDArray[np.int32], room: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Truncate two texts to `room` tokens together, the longer one first."""
    if len(first) + len(second) <= room:
        return first, second
    short = min(len(first), len(second), room // 2)
    if len(first) <= len(second):
        return first[:short], second[: room - short]
    return first[: room - short], second[:short]


def outputs(model: Any, batch: Batch) -> Any:
    """Return the output of a model with a head for a batch.

    The second of two texts has token type 1 if the model has two types, as BERT has, and its
    tokenizer writes them.
    """
    inputs = {"input_ids": batch.source, "attention_mask": batch.attended}
    if batch.has_types and reads_types(model.config):
        inputs["token_type_ids"] = token_types(batch)
    return model(**inputs)


def token_types(batch: Batch) -> torch.Tensor:
    """Return the token types, (b, n): 1 after the first special token that ends a text."""
    last = batch.seen.sum(1, keepdim=True) - 1
    ends = (batch.source == batch.source.gather(1, last)).long()
    return (ends.cumsum(1) - ends).clamp(max=1) * batch.seen.long()


Logits: TypeAlias = Sequence[NDArray[np.float32]]


class Inputs(NamedTuple):
    """What an encoder reads of examples."""

    examples: Sequence[Example]
    sources: Ragged  # the ids of each input
    about: Sequence[Any] = ()  # of each input: its `Window`, or the places of its words


class EncoderTask(ABC):
    """The common part of label, span and tag tasks; see `finetuning.TASK_HEADS`."""

    auto_class: str  # of Transformers, for the encoder with its head

    @abstractmethod
    def inputs(self, tokenizer: Any, examples: Sequence[Example], spec: Training) -> Inputs:
        """Return what the encoder reads of the examples."""

    @abstractmethod
    def labels(self, model: Any, inputs: Inputs) -> Ragged:
        """Return the labels of each input."""

    @abstractmethod
    def answers(self, model: Any, inputs: Inputs, rows: Logits, params: AnswerParams) -> list[str]:
        """Return the answer to each example; `rows` are the logits of each input."""

    def steps(
        self, model: Any, tokenizer: Any, examples: Sequence[Example], spec: Training, _: Any
    ) -> ExampleSteps:
        """Return the steps over the inputs and their labels."""
        inputs = self.inputs(tokenizer, examples, spec)
        pairs = Pairs(inputs.sources, self.labels(model, inputs))
        return ExampleSteps(pairs, Specials.of_encoder(tokenizer), spec)

    def answer(
        self,
        model: Any,
        tokenizer: Any,
        examples: Sequence[Example],
        params: AnswerParams,
        spec: Training,
        progress: Progress | None = None,
    ) -> list[str]:
        """Return the answer to each example."""
        inputs = self.inputs(tokenizer, examples, spec)
        return self.answers(model, inputs, self.read(model, tokenizer, inputs, progress), params)

    def _with_head(self, folder: Path, seed: int, **settings: Any) -> Any:
        """Return the encoder of a folder with a fresh head, whose weights are drawn from `seed`.

        `settings` go to the configuration, e.g. num_labels. Raises ConfigError for a family without
        such a head.
        """
        import torch
        import transformers

        encoder = encoders.load(str(folder), head="new")
        for name, value in settings.items():
            setattr(encoder.config, name, value)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            try:
                model = getattr(transformers, self.auto_class).from_config(encoder.config)
            except ValueError as error:
                family = encoder.config.model_type
                line = f"model {folder}: {self.auto_class} knows no {family}"
                raise ConfigError(line) from error
        left = model.base_model.load_state_dict(encoder.state_dict(), strict=False)
        odd = [key for key in (*left.missing_keys, *left.unexpected_keys) if "pooler" not in key]
        if odd:  # one of the two may lack a pooler
            raise ConfigError(
                f"model {folder}: its body does not fit the model with a head: {min(odd)}"
            )
        return model

    def load(self, folder: Path) -> Any:
        """Return a fine-tuned model with its head; ConfigError if weights are missing."""
        import transformers

        model, _ = load_reported(getattr(transformers, self.auto_class), str(folder))
        return model

    def logits(self, model: Any, batch: Batch) -> torch.Tensor:
        """Return the logits of a batch, (b, c), or of each token, (b, n, c)."""
        return outputs(model, batch).logits.float()

    @abstractmethod
    def logits_of_states(self, model: Any, states: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return what `logits` returns, from the body's last states, (b, n, d)."""

    @abstractmethod
    def loss_of(self, logits: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, int]:
        """Return the summed loss of logits, and its units."""

    def loss(self, model: Any, batch: Batch) -> tuple[torch.Tensor, int]:
        """Return the summed loss of a batch, and its units."""
        return self.loss_of(self.logits(model, batch), batch)

    def training_loss(self) -> TrainingLoss:
        """Return a loss for one training, equal to `loss`."""

        def gradients(cpu: Any, model: Any) -> Any:
            def loss(states: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, int]:
                return self.loss_of(self.logits_of_states(model, states, batch), batch)

            return cpu.TaskGradients(model, loss)

        return TrainingLoss(self.loss, gradients)

    def cuts(
        self, tokenizer: Any, examples: Sequence[Example], spec: Training, _: HeadParams, __: bool
    ) -> list[Cut]:
        """Count the inputs, of one text or of two, that are truncated."""
        firsts = tokenize([example.source for example in examples], tokenizer)
        seconds = tokenize([example.context or "" for example in examples], tokenizer)
        has_second = np.asarray([example.context is not None for example in examples])
        one, two = Specials.of_encoder(tokenizer).added("max_source"), len(TwoTexts.of(tokenizer))
        lengths = firsts.lengths + seconds.lengths + np.where(has_second, two, one)
        return [Cut.of("sources", lengths, spec.max_source, "max_source")]

    def read(
        self, model: Any, tokenizer: Any, inputs: Inputs, progress: Progress | None = None
    ) -> Logits:
        """Return the logits of each input, computed in batches of similar length."""
        device, marks = next(model.parameters()).device, Specials.of_encoder(tokenizer)
        order = np.argsort(inputs.sources.lengths, kind="stable")
        found: dict[int, NDArray[np.float32]] = {}

        def compute(chosen: NDArray[np.int64]) -> None:
            nothing = Ragged(np.zeros(0, np.int32), np.zeros(len(chosen) + 1, np.int64))
            batch = collate(Pairs(inputs.sources.take(chosen), nothing), marks.pad, None)
            batch = replace(batch, has_types=marks.has_types).to(device)
            rows = self.logits(model, batch).cpu().numpy()
            check_scores(rows)
            found.update(zip(chosen.tolist(), rows, strict=True))

        in_batches(model, order, compute, progress=progress)
        return [found[number] for number in range(len(found))]


class LabelTask(EncoderTask):
    """One or two texts get a class, or a number if the task has no classes."""

    auto_class = TASK_KINDS[LABEL].auto_class

    def start(self, folder: Path, examples: Sequence[Example], seed: int) -> Any:
        """Return the encoder with Transformers' head for classification, or regression."""
        names = dict(enumerate(examples[0].choices or ("LABEL_0",)))
        numbers = {name: number for number, name in names.items()}
        return self._with_head(folder, seed, problem_type=None, id2label=names, label2id=numbers)

    def inputs(self, tokenizer: Any, examples: Sequence[Example], spec: Training) -> Inputs:
        """Return the ids of each example: its source, and its context as the second text."""
        firsts = tokenize([example.source for example in examples], tokenizer)
        seconds = tokenize([example.context or "" for example in examples], tokenizer)
        both = TwoTexts.of(tokenizer)
        room = max(0, spec.max_source - len(both))
        rows = list(Specials.of_encoder(tokenizer).wrap(firsts, spec.max_source))
        for place, example in enumerate(examples):
            if example.context is not None:
                rows[place] = both.joined(*cut(firsts[place], seconds[place], room))
        return Inputs(examples, Ragged.of(rows, np.int32))

    def labels(self, model: Any, inputs: Inputs) -> Ragged:
        """Return the class of each example, or its number."""
        return Ragged.of_arrays([_target(one, model.config.label2id) for one in inputs.examples])

    def logits_of_states(self, model: Any, states: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return the logits of the classes, from the body's last states, (b, n, d)."""
        return model.classifier(states).float()

    def loss_of(self, logits: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, int]:
        """Return the summed cross-entropy of the classes, or the squared error of the numbers."""
        from torch.nn.functional import cross_entropy, mse_loss

        labels = batch.labels[:, 0]
        if logits.shape[1] == 1:
            return mse_loss(logits[:, 0], labels.float(), reduction="sum"), len(labels)
        return cross_entropy(logits, labels, reduction="sum"), len(labels)

    def answers(self, model: Any, inputs: Inputs, rows: Logits, params: AnswerParams) -> list[str]:
        """Return the most likely class of each example, or the number with four decimals.

        Raises DataError for a choice that the model was not fine-tuned on.
        """
        names, numbers = model.config.id2label, model.config.label2id
        for one in inputs.examples:
            strange = [choice for choice in one.choices if choice not in numbers]
            if strange:
                known = f"the train examples' {', '.join(numbers)}"
                raise DataError(f"example {one.id!r}: its choice {strange[0]!r} is none of {known}")
        return [
            names[int(row.argmax())] if one.choices else f"{row.item():.4f}"
            for one, row in zip(inputs.examples, rows, strict=True)
        ]

    def scores(
        self, model: Any, tokenizer: Any, examples: Sequence[Example], spec: Training
    ) -> Logits:
        """Return the logits of each example's classes, (c,), or its predicted number, (1,)."""
        return self.read(model, tokenizer, self.inputs(tokenizer, examples, spec))


def _target(example: Example, numbers: Mapping[str, int]) -> NDArray[Any]:
    target = example.targets[0]
    try:
        if example.choices:
            return np.asarray([numbers[target]], np.int32)
        return np.asarray([float(target)], np.float32)
    except (KeyError, ValueError) as error:
        what = f"none of {', '.join(numbers)}" if example.choices else "no number"
        raise DataError(f"example {example.id!r}: its label {target!r} is {what}") from error


@dataclass(frozen=True, eq=False)
class Window:
    """One window of an example: its input, and the characters of its context tokens."""

    example: int
    source: NDArray[np.int32]
    first: int  # index in source of its first context token
    offsets: NDArray[np.int32]  # (k, 2) characters of the context

    def place(self, example: Example) -> tuple[int, int]:
        """Return the first and last token of the answer, or _NOTHING unless all of it is here."""
        begin, offsets = example.start, self.offsets
        if begin is None or not len(offsets):
            return _NOTHING
        end = begin + len(example.targets[0])
        if begin < offsets[0, 0] or end > offsets[-1, 1]:
            return _NOTHING
        first = int(np.searchsorted(offsets[:, 1], begin, side="right"))
        last = int(np.searchsorted(offsets[:, 0], end, side="left")) - 1
        return (self.first + first, self.first + last) if first <= last else _NOTHING

    def best(self, scores: NDArray[Any], context: str) -> tuple[float, str]:
        """Return score and text of the best span of up to _LONGEST context tokens, not of blanks.

        `scores`, (n, 2), are the logits of start and end.
        """
        count = len(self.offsets)
        if not count:
            return -np.inf, ""
        starts, ends = scores[self.first : self.first + count].T
        every = np.ones((count, count), bool)
        visible = np.asarray([bool(context[a:b].strip()) for a, b in self.offsets.tolist()])
        before = visible.cumsum() - visible
        allowed = np.triu(every) & ~np.triu(every, _LONGEST)
        allowed &= (before + visible)[None, :] > before[:, None]
        table = np.where(allowed, starts[:, None] + ends[None, :], -np.inf)
        i, j = np.unravel_index(int(table.argmax()), table.shape)
        return float(table[i, j]), context[self.offsets[i, 0] : self.offsets[j, 1]].strip()


class SpanTask(EncoderTask):
    """The answer is a span of the context."""

    auto_class = TASK_KINDS[SPAN].auto_class

    def start(self, folder: Path, examples: Sequence[Example], seed: int) -> Any:
        """Return the encoder with Transformers' head for extractive question answering."""
        return self._with_head(folder, seed, num_labels=2)

    def inputs(self, tokenizer: Any, examples: Sequence[Example], spec: Training) -> Inputs:
        """Return the windows of all examples."""
        cuts = windows(examples, tokenizer, spec)
        return Inputs(examples, Ragged.of((window.source for window in cuts), np.int32), cuts)

    def labels(self, model: Any, inputs: Inputs) -> Ragged:
        """Return the place of the answer in each window, or that of <s> if it is elsewhere."""
        places = (window.place(inputs.examples[window.example]) for window in inputs.about)
        return Ragged.of(places, np.int32)

    def logits(self, model: Any, batch: Batch) -> torch.Tensor:
        """Return the logits of start and end, (b, n, 2); the lowest number at padding."""
        import torch

        out = outputs(model, batch)
        return _without_padding(torch.stack([out.start_logits, out.end_logits], dim=2), batch)

    def logits_of_states(self, model: Any, states: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return the logits of start and end, from the body's last states, (b, n, d)."""
        return _without_padding(model.qa_outputs(states), batch)

    def loss_of(self, logits: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, int]:
        """Return the summed cross-entropies of start and end, two for each window."""
        from torch.nn.functional import cross_entropy

        return cross_entropy(logits, batch.labels, reduction="sum"), batch.labels.numel()

    def answers(self, model: Any, inputs: Inputs, rows: Logits, params: AnswerParams) -> list[str]:
        """Return the best span of each example's windows.

        With params.unanswerable, the answer is "" if <s> scores above all spans in every window.
        """
        examples = inputs.examples
        best, nothing = [(-np.inf, "")] * len(examples), [np.inf] * len(examples)
        for window, scores in zip(inputs.about, rows, strict=True):
            place = window.example
            span = window.best(scores, examples[place].context or "")
            best[place] = max(best[place], span, key=lambda pair: pair[0])
            nothing[place] = min(nothing[place], float(scores[0].sum()))
        return [
            "" if params.unanswerable and none > score else text
            for (score, text), none in zip(best, nothing, strict=True)
        ]

    def cuts(
        self, tokenizer: Any, examples: Sequence[Example], spec: Training, _: HeadParams, __: bool
    ) -> list[Cut]:
        """Count the questions that are truncated; contexts are read in full, in windows."""
        questions = tokenize([example.source for example in examples], tokenizer)
        most = _room(spec, TwoTexts.of(tokenizer)) // 2
        return [Cut.of("questions", questions.lengths, most, "max_source")]


def _without_padding(logits: torch.Tensor, batch: Batch) -> torch.Tensor:
    import torch

    both = logits.float()
    return both.masked_fill(~batch.seen[:, :, None], torch.finfo(both.dtype).min)


def windows(examples: Sequence[Example], tokenizer: Any, spec: Training) -> list[Window]:
    """Return the windows of each example; questions are truncated to half of the room."""
    questions = tokenize([example.source for example in examples], tokenizer)
    contexts = encode([example.context or "" for example in examples], tokenizer)
    both = TwoTexts.of(tokenizer)
    room, cuts = _room(spec, both), []
    for number, (question, context) in enumerate(zip(questions, contexts, strict=True)):
        question = question[: room // 2]
        size = room - len(question)
        ids = np.asarray(context.ids, np.int32)
        offsets = np.asarray(context.offsets, np.int32).reshape(-1, 2)
        step = size - min(_OVERLAP, size // 2)
        for begin in range(0, max(1, len(ids)), step):
            end = begin + size
            source = both.joined(question, ids[begin:end])
            cuts.append(Window(number, source, both.offset(question), offsets[begin:end]))
            if end >= len(ids):
                break
    return cuts


def _room(spec: Training, both: TwoTexts) -> int:
    return max(2, spec.max_source - len(both))
