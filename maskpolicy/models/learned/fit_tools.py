"""The arguments of a policy's `fit`: tokenised contexts of its tasks, and the training loop."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from maskpolicy.core import hardware
from maskpolicy.core.errors import ConfigError, DataError
from maskpolicy.core.files import json_lines, read_json
from maskpolicy.core.types import Denoising, Example, Json, Passage, Spans, as_spans
from maskpolicy.data.corpus.passages import Document, tokenize
from maskpolicy.data.corpus.segmentation import ENGLISH
from maskpolicy.data.datafiles import fields
from maskpolicy.data.datafiles.rows import Row
from maskpolicy.data.taskfiles import examples as task_examples
from maskpolicy.data.taskfiles.evidence import occurrence, occurrences
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.definition import TaskBlock
from maskpolicy.experiment.task_kinds import LABEL, TEXT, AnswerParams
from maskpolicy.models import text_to_text
from maskpolicy.models.families import bounded
from maskpolicy.models.finetuning import TASK_HEADS
from maskpolicy.models.finetuning.text import likelihoods
from maskpolicy.models.loading import input_embeddings, load_config, load_tokenizer
from maskpolicy.models.training.batching import Batch, Loss, Step
from maskpolicy.models.training.steps import ExampleSteps
from maskpolicy.plugins import hooks

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

    from maskpolicy.models.training.specials import Specials

_log = logging.getLogger(__name__)
SPLITS = ("train", "dev")  # a policy never sees the test split
DEEP = 100  # number of top-ranked passages that retrieval searches for an answer
COUNTS = "counts.json"
LABELS = "labels"  # in COUNTS: the contexts are the examples of a label task


@dataclass(frozen=True, eq=False)
class Context:
    """One example of a task with the text that a policy reads."""

    id: str
    group: str
    source: str  # the question; of a label task the text, or the first of two
    targets: tuple[str, ...]  # every acceptable answer; training uses the first; or the label
    passage: Passage  # the context; of a label task its source
    answers: Spans  # (n, 2) tokens, ranges of whole words; may overlap; n may be 0
    choices: tuple[str, ...] = ()  # of a label task: all labels
    second: Passage | None = None  # of a label task: the second text

    @property
    def words(self) -> list[str]:
        """The words of the passage, then those of the second text."""
        texts = [self.passage, *([self.second] if self.second else [])]
        return [word for text in texts for word in text.texts(text.words)]

    @property
    def example(self) -> Example:
        """The example of a label task."""
        second = None if self.second is None else self.second.text
        return Example(self.id, self.group, self.source, self.targets, second, self.choices)

    def shortened(self, kept: NDArray[np.bool_]) -> Example:
        """Return the example with only the `words` that are `kept`, (w,), and the blanks before."""
        first = len(self.passage.words)
        second = None if self.second is None else _text(self.second, kept[first:])
        return replace(self.example, source=_text(self.passage, kept[:first]), context=second)


@dataclass(frozen=True, eq=False)
class Contexts:
    """The contexts of one task, including those without an answer."""

    task: str
    train: tuple[Context, ...]
    dev: tuple[Context, ...]
    counts: Mapping[str, Json]  # by split: examples, without_context, without_answer, retrieved, ..
    label: str = ""  # the name in `train_on`; "": the task's name

    @property
    def name(self) -> str:
        """The name in `train_on`: two columns of one task have different labels."""
        return self.label or self.task


class Trains(Protocol):
    """Trains modules with the checkpoints, progress and tracker of a stage."""

    def train(
        self, module: Any, steps: Callable[[int], Step], loss: Loss, spec: Training, **more: Any
    ) -> dict[str, Any]:
        """Train `module` in place and return the result of `training.loop.train`."""

    def progress(self, done: int, total: int, note: str = "") -> None:
        """Report that `done` of `total` units are finished."""


@dataclass(frozen=True)
class Tools:
    """Gives `fit` models, tokenizers and the training loop."""

    model: Path  # the model before its intermediate stage
    tokenizer: Path
    init: Path | None  # folder of the fitted policy that the field `init` names
    run: Trains
    denoising: Denoising = field(default_factory=Denoising)  # for a policy that is fitted to it
    classifier: Path | None = None  # the model fine-tuned on the task, if the policy needs it

    def train(
        self, module: Any, steps: Callable[[int], Step], loss: Loss, spec: Training, **more: Any
    ) -> dict[str, Any]:
        """Train `module` in place and return the result of `training.loop.train`."""
        return self.run.train(module, steps, loss, spec, **more)

    def load_model(self, **settings: Any) -> Any:
        """Load the text-to-text model in float32 on the device; see `models.text_to_text.load`."""
        model: Any = text_to_text.load(str(self.model), **settings)
        return model.to(self.device)

    def load_classifier(self, task: Contexts, spec: Training) -> Classifier:
        """Load the model that was fine-tuned on a label task, on the device.

        `spec` limits the length of its inputs. Raises ConfigError if the policy does not set
        `needs_classifier`.
        """
        if self.classifier is None:
            raise ConfigError("there is no classifier: set needs_classifier in the policy's class")
        choices = task.train[0].choices
        return Classifier.load(self.classifier, self.load_tokenizer(), choices, spec)

    def load_tokenizer(self) -> PreTrainedTokenizerBase:
        """Load the model's tokenizer."""
        return load_tokenizer(str(self.tokenizer))

    def specials(self, model: Any) -> Specials:
        """Return the tokenizer's special tokens, for a model from `load_model`."""
        return text_to_text.specials(self.load_tokenizer(), model)

    def embeddings(self) -> torch.Tensor:
        """Return the model's input embeddings, (vocabulary, width) in float32, on the CPU."""
        return input_embeddings(str(self.model))

    @property
    def device(self) -> torch.device:
        """The accelerator if available, else the CPU."""
        return hardware.device()


def _text(passage: Passage, kept: NDArray[np.bool_]) -> str:
    ends = passage.offsets[passage.words[:, 1] - 1, 1].tolist()
    words = zip(pairwise([0, *ends]), kept, strict=True)
    parts = (passage.text[begin:end] for (begin, end), keep in words if keep)
    return "".join(parts).strip()


def require(policy: str, fitted: Path | None) -> Path:
    """Return the folder of a fitted policy; ConfigError, with the policy's name, if it is None."""
    if fitted is None:
        raise ConfigError(
            f"policy {policy}: is learned and needs a fitted policy: run it in an experiment, and "
            f"mask with `maskpolicy show {policy} --run RUN`"
        )
    return fitted


@dataclass(frozen=True, eq=False)
class Classifier:
    """A model of either kind, fine-tuned on a label task.

    An encoder has a head for classification. A text-to-text model reads both texts of a pair as the
    two lines of one source, and the score of a label is the likelihood of its text.
    """

    model: Any
    tokenizer: Any
    choices: tuple[str, ...]
    params: AnswerParams
    spec: Training

    @classmethod
    def load(
        cls, folder: Path, tokenizer: Any, choices: Sequence[str], spec: Training
    ) -> Classifier:
        """Load a model that the stage "finetune-classifier" made, on the device."""
        is_text = load_config(folder).is_encoder_decoder
        params = AnswerParams(head=TEXT if is_text else LABEL, keep="start")
        model = TASK_HEADS[params.head].load(folder)
        spec = bounded(spec, model)
        model.to(hardware.device()).eval()
        return cls(model, tokenizer, tuple(choices), params, spec)

    @property
    def head(self) -> Any:
        """The head with which the model was fine-tuned."""
        return TASK_HEADS[self.params.head]

    def log_probabilities(self, examples: Sequence[Example]) -> NDArray[np.float64]:
        """Return the log-probability of each label, (n, c), given an example's source and context.

        The probabilities of an example's labels add up to 1.
        """
        from scipy.special import log_softmax

        if not examples:
            return np.zeros((0, len(self.choices)))
        if self.params.head == LABEL:
            scores = self.head.scores(self.model, self.tokenizer, examples, self.spec)
            return np.asarray(log_softmax(np.stack(scores).astype(np.float64), axis=1))
        sources = [example.source for example in readable(examples, TEXT)]
        choices = [self.choices] * len(sources)
        means = likelihoods(self.model, self.tokenizer, sources, choices, self.spec)
        totals = np.stack([mean * lengths for mean, lengths in means])
        return np.asarray(log_softmax(totals, axis=1))

    def steps(self, examples: Sequence[Example]) -> ExampleSteps:
        """Return the steps over examples in a seeded order, as in fine-tuning."""
        read = readable(examples, self.params.head)
        return self.head.steps(self.model, self.tokenizer, read, self.spec, self.params)

    def gradients(self, batch: Batch) -> NDArray[np.float32]:
        """Return the derivatives of the examples' losses in the 1 of each token's one-hot input.

        Each, (b, n), is the dot product of the token's embedding and its gradient. Special tokens
        have one, too; values at padding are undefined.
        """
        import torch

        is_text = self.params.head == TEXT
        reader = self.model.get_encoder() if is_text else self.model
        outputs: list[Any] = []
        embedding = reader.get_input_embeddings()
        hook = embedding.register_forward_hook(lambda module, given, out: outputs.append(out))
        try:
            loss, _ = self.head.loss(self.model, batch.to(hardware.device()))
        finally:
            hook.remove()
        (gradient,) = torch.autograd.grad(loss, outputs[0])  # [1] is the decoder's
        return np.asarray((gradient * outputs[0]).sum(-1).detach().float().cpu())


def readable(examples: Sequence[Example], head: str) -> list[Example]:
    """Return examples of a label task with the sources that a model with this head reads.

    For a text-to-text model, the two texts of a pair become two lines of the source.
    """
    if head != TEXT:
        return list(examples)
    return [
        one if one.context is None else replace(one, source=f"{one.source}\n{one.context}")
        for one in examples
    ]


@dataclass
class _Text:
    """An example, the text that a policy reads, and the answers to find in it."""

    example: Example
    text: str
    answers: tuple[str, ...]


def find_contexts(
    block: TaskBlock, split: str, folder: Path, corpus: Sequence[str] = (), language: str = ENGLISH
) -> tuple[list[Json], dict[str, int]]:
    """Return the contexts of a task's train or dev split, and counts for the report.

    A row is {"id", "group", "source", "targets", "context", "answers": [[start, end], ..]}; answers
    are characters [start, end) of the context. Every occurrence of an answer counts (compared as
    normalised text), except inside an occurrence of a longer alias. Contexts without an answer are
    returned, too; examples without a context are only counted. If the task allows retrieval,
    missing contexts are retrieved from `corpus`. Raises DataError as `examples.load` does, and if
    no train example has a context.
    """
    reading = task_examples.opened(block, split, folder)
    read = _texts(reading)
    missing = [one for one in read if not one.text.strip()]
    if reading.task.facts.retrieval and missing and len(corpus):
        _retrieve(missing, corpus, language)
    rows: list[Json] = [
        {
            "id": one.example.id,
            "group": one.example.group,
            "source": one.example.source,
            "targets": list(one.example.targets),
            "context": one.text,
            "answers": _outermost(occurrences(one.text, one.answers, language)),
        }
        for one in read
        if one.text.strip()
    ]
    if not rows and split == "train":
        raise DataError(
            f"{reading.source.name}: no {split} example of task {block.name!r} has a context: "
            "put the task's evidence or knowledge source beside the file, or leave the task out of "
            "train_on"
        )
    bare, silent = len(read) - len(rows), sum(not row["answers"] for row in rows)
    if bare or silent:
        _log.info(
            f"task {block.name}: of {len(read)} {split} examples {bare} have no context, and the "
            f"contexts of {silent} hold no answer"
        )
    return rows, dict(
        examples=len(read),
        without_context=bare,
        retrieved=sum(bool(one.text.strip()) for one in missing),
        without_answer=silent,
        answers=sum(len(row["answers"]) for row in rows),
        malformed=reading.malformed.count,
    )


def find_labelled(
    block: TaskBlock, split: str, folder: Path
) -> tuple[list[Example], dict[str, Json]]:
    """Return the examples of a label task's train or dev split, and counts for the report.

    Raises DataError as `examples.read_split` does, and for a task with numbers instead of labels.
    """
    read = task_examples.read_split(block, split, folder, contexts=False)
    if not all(example.choices for example in read.examples):
        raise DataError(
            f"task {block.name!r} has numbers instead of labels: a policy cannot learn from it: "
            "name another label task in train_on"
        )
    return read.examples, dict(
        examples=len(read.examples),
        unlabelled=read.unlabelled,
        malformed=read.malformed,
        labels=dict(sorted(Counter(one.targets[0] for one in read.examples).items())),
    )


def _texts(reading: task_examples.Reading) -> list[_Text]:
    own_text = hooks.READING.of(reading.task.plugin)
    if own_text is None:
        task_examples.look_up(reading)
        return [_Text(one, one.context or "", one.targets) for _, one in reading.kept]

    def read(row: Row, example: Example) -> _Text:
        text, answers = own_text(row.value)
        fields.check(text, "the text to read")
        if isinstance(answers, str):  # its letters would be the answers
            raise DataError(f"reading: give {answers!r:.60} in a tuple of answers")
        return _Text(example, text, answers)

    return reading.each(read)


def _outermost(spans: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Drop spans inside other spans: "Rome" in "City of Rome", if both are aliases."""
    kept: list[list[int]] = []
    for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
        if not kept or end > kept[-1][1]:
            kept.append([start, end])
    return kept


def _retrieve(read: Sequence[_Text], corpus: Sequence[str], language: str) -> None:
    """Set each text to the best passage (BM25) that contains an answer and words of its source."""
    import bm25s

    def words(texts: Sequence[str]) -> Any:
        return bm25s.tokenize(list(texts), show_progress=False, return_ids=False)

    index = bm25s.BM25()
    index.index(words(corpus), show_progress=False)
    asked = words([one.example.source for one in read])
    found, scores = index.retrieve(asked, k=min(DEEP, len(corpus)), show_progress=False)
    for one, places, worth in zip(read, found.tolist(), scores.tolist(), strict=True):
        shared = (corpus[place] for place, score in zip(places, worth, strict=True) if score > 0)
        one.text = next((text for text in shared if occurrence(text, one.answers, language)), "")


def load_contexts(
    folder: Path, tokenizer: PreTrainedTokenizerBase, label: str = "", language: str = ENGLISH
) -> Contexts:
    """Load and tokenise the contexts of a "contexts" artifact; `label` names them in reports.

    `language`, the corpus's, decides where words end.
    """
    about = read_json(folder / COUNTS)
    read = _read_labelled if about.get(LABELS) else _read
    train, dev = (read(folder / f"{split}.jsonl", tokenizer, language) for split in SPLITS)
    return Contexts(about["task"], train, dev, about["counts"], label)


def _read(path: Path, tokenizer: PreTrainedTokenizerBase, language: str) -> tuple[Context, ...]:
    rows = list(json_lines(path))
    texts = [Document(row["id"], row["context"], language=language) for row in rows]
    contexts = []
    for row, passage in zip(rows, tokenize(texts, tokenizer), strict=True):
        spans = [passage.at([span]) for span in row["answers"]]
        answers = as_spans(np.unique(np.concatenate([as_spans([]), *spans]), axis=0))
        about = (row["id"], row["group"], row["source"], tuple(row["targets"]))
        contexts.append(Context(*about, passage, answers))
    return tuple(contexts)


def _read_labelled(
    path: Path, tokenizer: PreTrainedTokenizerBase, language: str
) -> tuple[Context, ...]:
    examples = task_examples.read_rows(path)

    def passages(texts: Iterable[tuple[str, str]]) -> Iterator[Passage]:
        return tokenize([Document(*text, language=language) for text in texts], tokenizer)

    firsts = passages((one.id, one.source) for one in examples)
    seconds = passages((one.id, one.context) for one in examples if one.context is not None)
    contexts = []
    for one, first in zip(examples, firsts, strict=True):
        second = None if one.context is None else next(seconds)
        about = (one.id, one.group, one.source, one.targets)
        contexts.append(Context(*about, first, as_spans([]), one.choices, second))
    return tuple(contexts)
