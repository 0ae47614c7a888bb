"""The arguments of a policy's `fit`: tokenised contexts of its tasks, and the training loop.

A learned policy defines

    fit(self, data: Sequence[Contexts], spec: Training, out: Path, tools: Tools) -> Json

It trains on the `train` contexts, selects the best on the `dev` contexts, writes the fitted policy
to the folder `out` and returns facts to report. `data` has one entry per task of the field
`train_on`, without test examples. `maskpolicy.plugins.hooks` describes the related hooks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maskpolicy import hardware
from maskpolicy.corpus.passages import Document, tokenize
from maskpolicy.errors import ConfigError
from maskpolicy.formats import examples
from maskpolicy.graph.stage_run import StageRun
from maskpolicy.models import text_to_text
from maskpolicy.models.loading import input_embeddings
from maskpolicy.models.tokenizers import load_tokenizer
from maskpolicy.training.interfaces import Loss, Step
from maskpolicy.types import Denoising, Example, Json, Passage, Spans, as_spans

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

    from maskpolicy.config.budgets import Training
    from maskpolicy.learned.classifier import Classifier
    from maskpolicy.training.specials import Specials

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
        """The words of its passage, and of the second text behind them."""
        texts = [self.passage, *([self.second] if self.second else [])]
        return [word for text in texts for word in text.texts(text.words)]

    @property
    def example(self) -> Example:
        """The example of a label task."""
        second = None if self.second is None else self.second.text
        given = (self.id, self.group, self.source, self.targets)
        return Example(*given, context=second, choices=self.choices)

    def shortened(self, kept: NDArray[np.bool_]) -> Example:
        """Return the example with some of its `words` alone, `kept` (w,).

        A word keeps the blanks in front of it.
        """
        first = len(self.passage.words)
        pair = None if self.second is None else _text(self.second, kept[first:])
        return replace(self.example, source=_text(self.passage, kept[:first]), context=pair)


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
        """The task's name in `train_on`; two columns of one task have different labels."""
        return self.label or self.task


@dataclass(frozen=True)
class Tools:
    """What `fit` needs besides its data: artifacts, and the run of its stage."""

    model: Path  # the model before its intermediate stage
    tokenizer: Path
    init: Path | None  # folder of the fitted policy that the field `init` names
    run: StageRun
    denoising: Denoising = field(default_factory=Denoising)  # of a policy that fits to it
    classifier: Path | None = None  # the model fine-tuned on the task, if the policy needs it

    @property
    def how(self) -> Denoising:
        """The former name of `denoising`."""
        return self.denoising

    def train(
        self,
        module: Any,
        steps: Callable[[int], Step],
        loss: Loss,
        spec: Training,
        **more: Any,
    ) -> dict[str, Any]:
        """Train `module` in place with the training loop; see `training.loop.train`."""
        return self.run.train(module, steps, loss, spec, **more)

    def load_model(self, **settings: Any) -> Any:
        """Load the text-to-text model in float32 on the device; see `models.text_to_text.load`."""
        model: Any = text_to_text.load(str(self.model), **settings)
        return model.to(self.device)

    def load_classifier(self, task: Contexts, spec: Training) -> Classifier:
        """Load the model that was fine-tuned on a label task, on the device.

        `spec` bounds the texts that it reads. Raises ConfigError for a policy that does not set
        `needs_classifier`.
        """
        from maskpolicy.learned.classifier import Classifier

        if self.classifier is None:
            raise ConfigError("there is no classifier: set needs_classifier in the policy's class")
        choices = task.train[0].choices
        return Classifier.load(self.classifier, self.load_tokenizer(), choices, spec)

    def load_tokenizer(self) -> PreTrainedTokenizerBase:
        """Load the model's tokenizer."""
        return load_tokenizer(str(self.tokenizer))

    def specials(self, model: Any) -> Specials:
        """Return the special tokens of the tokenizer, for a model that `load_model` loaded."""
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
    starts = [0, *ends[:-1]]
    parts = (passage.text[a:b] for a, b, keep in zip(starts, ends, kept, strict=True) if keep)
    return "".join(parts).strip()


def require(policy: str, fitted: Path | None) -> Path:
    """Return the folder that `annotate` gets of a fitted policy; raises ConfigError if it is None.

    `policy` is its name, for the message.
    """
    if fitted is None:
        raise ConfigError(
            f"policy {policy}: is learned and needs a fitted policy: name a finished run "
            "with --run (or `fitted=` in Python)"
        )
    return fitted


def load_contexts(folder: Path, tokenizer: PreTrainedTokenizerBase, label: str = "") -> Contexts:
    """Load and tokenise the contexts of a "contexts" artifact; `label` names them in reports."""
    about = json.loads((folder / COUNTS).read_text(encoding="utf-8"))
    read = _read_labelled if about.get(LABELS) else _read
    splits = [read(folder / f"{split}.jsonl", tokenizer) for split in ("train", "dev")]
    return Contexts(about["task"], splits[0], splits[1], about["counts"], label)


def _read(path: Path, tokenizer: PreTrainedTokenizerBase) -> tuple[Context, ...]:
    with path.open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    passages = tokenize([Document(row["id"], row["context"]) for row in rows], tokenizer)
    return tuple(_context(row, passage) for row, passage in zip(rows, passages, strict=True))


def _read_labelled(path: Path, tokenizer: PreTrainedTokenizerBase) -> tuple[Context, ...]:
    """Return the examples of a label task as contexts without answers."""
    found = examples.read_rows(path)
    firsts = tokenize([Document(one.id, one.source) for one in found], tokenizer)
    pairs = [Document(one.id, one.context) for one in found if one.context is not None]
    seconds = tokenize(pairs, tokenizer)
    return tuple(
        Context(
            one.id,
            one.group,
            one.source,
            one.targets,
            first,
            as_spans([]),
            one.choices,
            None if one.context is None else next(seconds),
        )
        for one, first in zip(found, firsts, strict=True)
    )


def _context(row: Json, passage: Passage) -> Context:
    spans = [passage.at([span]) for span in row["answers"]]
    answers = np.unique(np.concatenate([as_spans([]), *spans]), axis=0)
    targets = tuple(row["targets"])
    return Context(row["id"], row["group"], row["source"], targets, passage, as_spans(answers))
