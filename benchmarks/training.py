"""Non-padding tokens/s of the training loop against Transformers' Seq2SeqTrainer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.comparison import Setting, noted
from benchmarks.measure import Clock, Once, Rate, interleaved, matrix_peak
from benchmarks.trainer import theirs
from maskpolicy.config.budgets import resolve_auto
from maskpolicy.models.attention_and_dropout import set_dropout
from maskpolicy.models.text_to_text_loss import token_loss
from maskpolicy.training.interfaces import Step
from maskpolicy.training.loop import train

OURS, DEFAULTS, BEST = "maskpolicy", "Seq2SeqTrainer, defaults", "Seq2SeqTrainer, best settings"


def ours(setting: Setting, **changes: Any) -> Once:
    """Train with maskpolicy's loop."""

    def once() -> tuple[float, float, str]:
        spec = resolve_auto(replace(setting.spec, **changes))
        model = setting.fresh()
        model.set_attn_implementation(spec.attention)
        steps, clock = setting.masked(spec), Clock(setting.skip)

        def counted(number: int) -> Step:
            step = steps(number)
            clock.tokens.append(step.work["source_tokens"] + step.work["target_tokens"])
            return step

        train(
            model,
            counted,
            token_loss,
            spec,
            _NoCheckpoints(),
            _silent,
            on_step=lambda done, module: clock.tick(),
        )
        return *clock.result(), noted(setting, model)

    return once


def agreement(setting: Setting) -> tuple[str, str]:
    """Return what is noted of the Trainer and of us on the same batches, in fp32, no dropout.

    Both are given the passages in our order, each with the same masks; all else is as in `compare`.
    """
    still = replace(setting, model=setting.fresh())
    set_dropout(still.model, 0.0)
    order = still.masked(resolve_auto(still.spec)).order
    places = [place for number in range(still.steps) for place in order.step(number)]
    ways = (
        theirs(still, places=places, train_sampling_strategy="sequential"),
        ours(still, precision="fp32", attention="sdpa"),
    )
    return ways[0]()[2], ways[1]()[2]


def compare(setting: Setting, repeats: int, ladder: bool) -> tuple[list[Rate], dict[str, float]]:
    """Measure both sides and, with `ladder`, the single changes between them."""
    best = {"bf16": True, "train_sampling_strategy": "group_by_length"}
    ways: dict[str, Once] = {DEFAULTS: theirs(setting)}
    if ladder:
        ways["+ bf16"] = theirs(setting, bf16=True)
        ways["+ eager attention"] = theirs(setting, "eager", bf16=True)
    ways[BEST] = theirs(setting, resolve_auto(setting.spec).attention, **best)
    if ladder:
        ways["maskpolicy, fp32 and sdpa"] = ours(setting, precision="fp32", attention="sdpa")
        ways["maskpolicy, bf16 and sdpa"] = ours(setting, attention="sdpa")
    ways[OURS] = ours(setting)
    return interleaved(ways, repeats), flops(setting)


def flops(setting: Setting) -> dict[str, float]:
    """Return the floating-point operations per non-padding token, and the matrix peak in FLOP/s."""
    from torch.utils.flop_counter import FlopCounterMode

    spec = resolve_auto(setting.spec)
    model = setting.fresh()
    step = setting.masked(spec)(0)
    with FlopCounterMode(display=False) as counter:
        for batch in step.batches:
            token_loss(model, batch)[0].backward()
    tokens = step.work["source_tokens"] + step.work["target_tokens"]
    peak = matrix_peak(spec.precision)
    return {"per_token": counter.get_total_flops() / tokens, "peak": peak}


class _NoCheckpoints:
    def save(self, step: int, write: Callable[[Path], None]) -> None:
        """Keep nothing: a benchmark is not resumed."""

    def latest(self) -> None:
        """There is never one."""


def _silent(done: int, total: int, note: str) -> None:
    return None
