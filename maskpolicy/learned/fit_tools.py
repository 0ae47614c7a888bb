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
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from maskpolicy import hardware
from maskpolicy.corpus.passages import Document, tokenize
from maskpolicy.graph.stage_run import StageRun
from maskpolicy.models import bart
from maskpolicy.training.interfaces import Loss, Step
from maskpolicy.types import Denoising, Json, Passage, Spans, as_spans

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

    from maskpolicy.config.budgets import Training
    from maskpolicy.training.interfaces import Loss, Step
    from maskpolicy.training.specials import Specials

COUNTS = "counts.json"


@dataclass(frozen=True, eq=False)
class Context:
    """One example of a task with the text that a policy reads."""

    id: str
    group: str
    source: str  # the question
    targets: tuple[str, ...]  # every acceptable answer; training uses the first
    passage: Passage  # the context
    answers: Spans  # (n, 2) tokens, ranges of whole words; may overlap; n may be 0


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

    model: Path  # the text-to-text model before its intermediate stage
    tokenizer: Path
    init: Path | None  # folder of the fitted policy that the field `init` names
    run: StageRun
    denoising: Denoising = field(default_factory=Denoising)  # of a policy that fits to it

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
        """Load the text-to-text model in float32 on the device; see `models.bart.load`."""
        model: Any = bart.load(str(self.model), **settings)
        return model.to(self.device)

    def load_tokenizer(self) -> PreTrainedTokenizerBase:
        """Load the model's tokenizer."""
        return bart.load_tokenizer(str(self.tokenizer))

    def specials(self, model: Any) -> Specials:
        """Return the special tokens of the tokenizer, for a model that `load_model` loaded."""
        return bart.specials(self.load_tokenizer(), model)

    def embeddings(self) -> torch.Tensor:
        """Return the model's input embeddings, (vocabulary, width) in float32, on the CPU."""
        return bart.embeddings(str(self.model))

    @property
    def device(self) -> torch.device:
        """The accelerator if available, else the CPU."""
        return hardware.device()


def load_contexts(folder: Path, tokenizer: PreTrainedTokenizerBase, label: str = "") -> Contexts:
    """Load and tokenise the contexts of a "contexts" artifact; `label` names them in reports."""
    about = json.loads((folder / COUNTS).read_text(encoding="utf-8"))
    splits = [_read(folder / f"{split}.jsonl", tokenizer) for split in ("train", "dev")]
    return Contexts(about["task"], splits[0], splits[1], about["counts"], label)


def _read(path: Path, tokenizer: PreTrainedTokenizerBase) -> tuple[Context, ...]:
    with path.open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    passages = tokenize([Document(row["id"], row["context"]) for row in rows], tokenizer)
    return tuple(_context(row, passage) for row, passage in zip(rows, passages, strict=True))


def _context(row: Json, passage: Passage) -> Context:
    spans = [passage.at([span]) for span in row["answers"]]
    answers = np.unique(np.concatenate([as_spans([]), *spans]), axis=0)
    targets = tuple(row["targets"])
    return Context(row["id"], row["group"], row["source"], targets, passage, as_spans(answers))
