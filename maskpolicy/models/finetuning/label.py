"""Label tasks: one or two texts get a class, or a number where there are no classes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maskpolicy.core.errors import DataError
from maskpolicy.core.ragged import Ragged
from maskpolicy.core.types import Example
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.task_kinds import LABEL, TASK_KINDS
from maskpolicy.models.finetuning import encoder_inputs
from maskpolicy.models.finetuning.encoder_inputs import (
    TwoTexts,
    batches,
    cut,
    outputs,
    tuned,
    with_head,
)
from maskpolicy.models.finetuning.head_params import AnswerParams, HeadParams
from maskpolicy.models.training.batching import Batch, Pairs
from maskpolicy.models.training.interfaces import Progress
from maskpolicy.models.training.specials import Specials
from maskpolicy.models.training.steps import Cut, ExampleSteps, tokenize

if TYPE_CHECKING:
    import torch

AUTO_CLASS = TASK_KINDS[LABEL].auto_class
load = partial(tuned, AUTO_CLASS)


def start(folder: Path, examples: Sequence[Example], seed: int) -> Any:
    """Return the encoder with Transformers' head for sequence classification, or regression."""
    return with_head(AUTO_CLASS, folder, seed, num_labels=max(1, len(examples[0].choices)))


def steps(
    model: Any, tokenizer: Any, examples: Sequence[Example], spec: Training, params: AnswerParams
) -> ExampleSteps:
    """Return the steps over (texts, class)."""
    marks = Specials.of_encoder(tokenizer)
    targets = [_target(example) for example in examples]
    labels = Ragged.of_arrays(targets)
    return ExampleSteps(Pairs(_sources(examples, tokenizer, marks, spec), labels), marks, spec)


def loss(model: Any, batch: Batch) -> tuple[torch.Tensor, int]:
    """Return the summed cross-entropy of the classes, or the squared error of the numbers."""
    return _loss_of(outputs(model, batch).logits, batch)


training_loss = encoder_inputs.training_loss(
    loss, lambda model, states, batch: _loss_of(model.classifier(states), batch)
)


def _loss_of(logits: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, int]:
    from torch.nn.functional import cross_entropy, mse_loss

    logits, labels = logits.float(), batch.labels[:, 0]
    if logits.shape[1] == 1:
        return mse_loss(logits[:, 0], labels.float(), reduction="sum"), len(labels)
    return cross_entropy(logits, labels, reduction="sum"), len(labels)


def answer(
    model: Any,
    tokenizer: Any,
    examples: Sequence[Example],
    params: AnswerParams,
    spec: Training,
    progress: Progress | None = None,
) -> list[str]:
    """Return the likeliest class of each example, or the number in four digits."""
    found = logits(model, tokenizer, examples, spec, progress)
    return [
        one.choices[int(row.argmax())] if one.choices else f"{row.item():.4f}"
        for one, row in zip(examples, found, strict=True)
    ]


def logits(
    model: Any,
    tokenizer: Any,
    examples: Sequence[Example],
    spec: Training,
    progress: Progress | None = None,
) -> list[NDArray[np.float32]]:
    """Return the logits of each example's classes, each of shape (c,); of a number, (1,)."""
    import torch

    marks = Specials.of_encoder(tokenizer)
    sources = _sources(examples, tokenizer, marks, spec)
    found = [np.zeros(0, np.float32)] * len(examples)
    for chosen, batch in batches(model, sources, marks, progress):
        with torch.inference_mode():
            rows = outputs(model, batch).logits.float().cpu()
        for index, row in zip(chosen, rows.numpy(), strict=True):
            found[index] = row
    return found


def cuts(
    tokenizer: Any, examples: Sequence[Example], spec: Training, params: HeadParams, training: bool
) -> list[Cut]:
    """Count the inputs, of one text or of two, that lose an end."""
    firsts = tokenize([example.source for example in examples], tokenizer)
    seconds = tokenize([example.context or "" for example in examples], tokenizer)
    has_second = np.asarray([example.context is not None for example in examples])
    one, two = Specials.of_encoder(tokenizer).added("max_source"), len(TwoTexts.of(tokenizer))
    lengths = firsts.lengths + seconds.lengths + np.where(has_second, two, one)
    return [Cut.of("sources", lengths, spec.max_source, "max_source")]


def _target(example: Example) -> NDArray[Any]:
    target = example.targets[0]
    try:
        if example.choices:
            return np.asarray([example.choices.index(target)], np.int32)
        return np.asarray([float(target)], np.float32)
    except ValueError as error:
        what = f"none of {', '.join(example.choices)}" if example.choices else "no number"
        raise DataError(f"example {example.id!r}: its label {target!r} is {what}") from error


def _sources(
    examples: Sequence[Example], tokenizer: Any, marks: Specials, spec: Training
) -> Ragged:
    """Return the ids of each example: its source, and its context as the second text."""
    firsts = tokenize([example.source for example in examples], tokenizer)
    seconds = tokenize([example.context or "" for example in examples], tokenizer)
    both = TwoTexts.of(tokenizer)
    room = max(0, spec.max_source - len(both))
    singles = marks.wrap(firsts, spec.max_source)
    return Ragged.of(
        (
            single if example.context is None else both.joined(*cut(first, second, room))
            for example, single, first, second in zip(
                examples, singles, firsts, seconds, strict=True
            )
        ),
        np.int32,
    )
