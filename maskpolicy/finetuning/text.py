"""Text tasks: a text-to-text model writes its answer, or gives a choice the best likelihood."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from maskpolicy.config.budgets import Training
from maskpolicy.errors import DataError
from maskpolicy.finetuning.generation import PairLimits, generate, rank
from maskpolicy.finetuning.head_params import AnswerParams, HeadParams
from maskpolicy.models import text_to_text
from maskpolicy.models.position_limits import limits
from maskpolicy.models.text_to_text_loss import token_loss
from maskpolicy.training.interfaces import Progress
from maskpolicy.training.specials import Specials
from maskpolicy.training.steps import Cut, ExampleSteps, tokenize
from maskpolicy.types import Example

_SLACK = 8  # tokens that an answer may be longer than the longest one in train
loss = token_loss


def start(folder: Path, examples: Sequence[Example], seed: int) -> Any:
    """Return the pre-trained model as it is: its LM head is the task's."""
    return load(folder)


def load(folder: Path) -> Any:
    """Return a model of a folder."""
    return text_to_text.load(str(folder))


def steps(
    model: Any, tokenizer: Any, examples: Sequence[Example], spec: Training, params: AnswerParams
) -> ExampleSteps:
    """Return the steps over (source, first target); bound the model's answers by the longest."""
    specials = text_to_text.specials(tokenizer, model)
    text_to_text.complete_generation(model, specials)
    made = ExampleSteps.of(examples, tokenizer, specials, spec, params.keep)
    longest = int(made.pairs.targets.lengths.max()) + _SLACK
    _, most = limits(model.config)
    model.generation_config.max_new_tokens = longest if most is None else min(longest, most - 1)
    return made


def answer(
    model: Any,
    tokenizer: Any,
    examples: Sequence[Example],
    params: AnswerParams,
    spec: Training,
    progress: Progress | None = None,
) -> list[str]:
    """Return the model's answer to each example: written, or the likeliest of its choices."""
    import torch

    model.to(torch.bfloat16 if spec.precision == "bf16" else torch.float32)
    sources, limit = [example.source for example in examples], spec.max_source
    if params.choose == "generate":
        return generate(
            model, tokenizer, sources, max_source=limit, keep=params.keep, progress=progress
        )
    limits = PairLimits(max_source=limit, max_target=spec.max_target, keep=params.keep)
    return rank(model, tokenizer, sources, _choices(examples), limits, progress)


def cuts(
    tokenizer: Any,
    examples: Sequence[Example],
    spec: Training,
    params: HeadParams,
    training: bool,
) -> list[Cut]:
    """Count the sources that lose an end, and the targets or choices that do.

    Only the targets of train are read by the model.
    """
    found = [_cut("sources", [one.source for one in examples], tokenizer, spec, "max_source")]
    if training:
        first = [one.targets[0] for one in examples]
        found.append(_cut("targets", first, tokenizer, spec, "max_target"))
    elif params.choose == "likelihood":
        every = [choice for given in _choices(examples) for choice in given]
        found.append(_cut("choices", every, tokenizer, spec, "max_target"))
    return found


def _cut(what: str, texts: Sequence[str], tokenizer: Any, spec: Training, key: str) -> Cut:
    lengths = tokenize(texts, tokenizer).lengths + Specials.of(tokenizer).added(key)
    return Cut.of(what, lengths, getattr(spec, key), key)


def _choices(examples: Sequence[Example]) -> list[tuple[str, ...]]:
    for example in examples:
        if not example.choices:
            raise DataError(f"example {example.id!r} has no choices: leave choose: likelihood out")
    return [example.choices for example in examples]
