"""Training steps/s of the mini encoder: Transformers' layers against those of maskpolicy."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks import comparison
from benchmarks.measure import Once, Rate, interleaved
from maskpolicy.experiment.budgets import Training, resolve_auto
from maskpolicy.experiment.definition import ENCODER
from maskpolicy.experiment.policy_blocks import AT_POSITIONS
from maskpolicy.experiment.task_kinds import TASK_KINDS
from maskpolicy.models import encoders, scratch
from maskpolicy.models.finetuning import TASK_HEADS
from maskpolicy.models.loading import set_attention
from maskpolicy.models.model_kinds import MODEL_KINDS
from maskpolicy.models.training.batching import Loss, Pair, Pairs, Step, collate
from maskpolicy.models.training.optimization import Optimization
from maskpolicy.models.training.specials import Specials
from maskpolicy.models.training.steps import MaskedSteps
from maskpolicy.plugins.discovery import instance

THEIRS, OURS = "Transformers' layers", "maskpolicy's"
_MAE = replace(AT_POSITIONS, mask_exclusion=1.0)
_EXAMPLES = 16  # of a step of fine-tuning


@dataclass(frozen=True, eq=False)
class Work:
    """A module in training, its steps, and its loss for autograd and for the layers of its own."""

    name: str
    module: Any
    steps: Sequence[Step]
    plain: Loss
    training_loss: Callable[[], Loss]


def works(steps: int) -> list[Work]:
    """Return two pre-trainings and two fine-tunings of the mini encoder with so many steps."""
    setting = comparison.settings(1, 1)[0]  # its passages and tokenizer
    tokenizer = setting.tokenizer
    made = []
    for name, how in (("MLM", AT_POSITIONS), ("MAE-LM", _MAE)):
        policy, marks = instance("policy", "random", {}), Specials.of_encoder(tokenizer)
        pairs = MODEL_KINDS[ENCODER].pairs
        masked = MaskedSteps(setting.passages, policy, how, marks, _spec(32), pairs)
        body = scratch.build_encoder("mini", tokenizer, 0)
        module = encoders.training_module(body, how, 2, seed=0)
        found = [masked(number) for number in range(steps)]
        made.append(Work(name, module, found, encoders.token_loss, encoders.training_loss))
    for name, task, length in (
        ("a text's class", "label", 12),
        ("a span of 60 tokens", "span", 60),
    ):
        model = _with_head(task, tokenizer)
        found = _examples(task, length, steps, len(tokenizer))
        made.append(Work(name, model, found, TASK_HEADS[task].loss, TASK_HEADS[task].training_loss))
    return made


def compare(work: Work, repeats: int) -> list[Rate]:
    """Measure steps per second of both, in turn."""
    ways = {THEIRS: _once(work, lambda: work.plain), OURS: _once(work, work.training_loss)}
    return interleaved(ways, repeats)


def _spec(size: int) -> Training:
    return resolve_auto(Training(batch_size=size, attention="eager"))


def _with_head(task: str, tokenizer: Any) -> Any:
    import torch
    import transformers

    shape = scratch.build_encoder("mini", tokenizer, 0).config
    torch.manual_seed(0)
    return getattr(transformers, TASK_KINDS[task].auto_class).from_config(shape)


def _examples(task: str, length: int, steps: int, vocabulary: int) -> list[Step]:
    """Return steps over random tokens."""
    rng = np.random.default_rng(0)
    answer = np.asarray([1] if task == "label" else [2, 4], np.int32)
    found = []
    for _ in range(steps):
        sizes = rng.integers(length - 3, length + 1, _EXAMPLES)
        texts = [rng.integers(5, vocabulary, size).astype(np.int32) for size in sizes]
        pairs = Pairs.of([Pair(text, answer, None) for text in texts])
        found.append(Step([collate(pairs, 1, None)], _EXAMPLES))
    return found


def _once(work: Work, loss_of: Callable[[], Loss]) -> Once:
    def once() -> tuple[float, float, str]:
        import torch

        module, spec = copy.deepcopy(work.module), _spec(32)
        set_attention(module, spec.attention)
        run, loss = Optimization(module.train(), spec, len(work.steps)), loss_of()
        run.step(0, work.steps[0], loss)
        started = time.perf_counter()
        for number, step in enumerate(work.steps[1:], 1):
            run.step(number, step, loss)
        seconds = time.perf_counter() - started
        with torch.no_grad():
            value, units = work.plain(run.module, work.steps[0].batches[0])
        return len(work.steps) - 1, seconds, f"then loss {value.item() / units:.4f}"

    return once
