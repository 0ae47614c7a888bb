"""Non-padding tokens/s of the training loop against Transformers' Seq2SeqTrainer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.comparison import Setting, noted
from benchmarks.measure import Clock, Once, Rate, interleaved, matrix_product
from benchmarks.trainer import theirs
from maskpolicy.core import hardware
from maskpolicy.experiment.budgets import resolve_auto
from maskpolicy.models.loading import set_dropout
from maskpolicy.models.text_to_text import token_loss, training_loss
from maskpolicy.models.training.batching import Loss
from maskpolicy.models.training.loop import train
from maskpolicy.models.training.optimization import NoCheckpoints

OURS, DEFAULTS, BEST = "maskpolicy", "Seq2SeqTrainer, defaults", "Seq2SeqTrainer, best settings"
_PEAK = "product of two matrices"


def ours(
    setting: Setting, workers: int = 0, loss: Callable[[], Loss] = training_loss, **changes: Any
) -> Once:
    """Train with maskpolicy's loop; `workers` processes mask, `changes` are those of the budget."""

    def once() -> tuple[float, float, str]:
        spec = resolve_auto(replace(setting.spec, **changes))
        model = setting.fresh()
        model.set_attn_implementation(spec.attention)
        steps, clock = setting.masked(spec), Clock(setting.skip, setting.steps)
        train(
            model,
            steps,
            loss(),
            spec,
            NoCheckpoints(),
            lambda done, total, note: clock.tick() if done else None,
            workers=workers,
        )
        clock.tokens += [
            step.work["source_tokens"] + step.work["target_tokens"]
            for step in map(steps, range(setting.steps))
        ]
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
        ours(still, precision="fp32"),
    )
    return ways[0]()[2], ways[1]()[2]


@dataclass(frozen=True)
class Comparison:
    """What was measured of a setting: the rates of all ways, and the peak of every round."""

    name: str
    rates: Sequence[Rate]
    peak: Rate  # FLOP/s of a matrix product
    per_token: float  # floating-point operations of a training step per non-padding token

    @property
    def ratio(self) -> Rate:
        """Our rate over that of the Trainer's best settings, round by round."""
        return self._rate(OURS).over(self._rate(BEST))

    @property
    def share(self) -> Rate:
        """The share of the peak that we reached, round by round."""
        found = self._rate(OURS).over(self.peak)
        return replace(found, rates=tuple(self.per_token * each for each in found.rates))

    def _rate(self, name: str) -> Rate:
        return next(rate for rate in self.rates if rate.name == name)


def compare(
    settings: Sequence[Setting], repeats: int, *, ladder: bool, seconds: float = 0.0
) -> list[Comparison]:
    """Measure both sides of every setting in turn, and the matrix peak in every round.

    `ladder` adds the single changes between the two sides; `seconds` is that of `interleaved`.
    """
    ways = {
        _at(setting, name): once
        for setting in settings
        for name, once in (*_ways(setting, ladder).items(), (_PEAK, _peak(setting)))
    }
    rates = {rate.name: rate for rate in interleaved(ways, repeats, seconds)}
    found = []
    for setting in settings:
        names = [*_ways(setting, ladder), _PEAK]
        *own, peak = (replace(rates[_at(setting, name)], name=name) for name in names)
        found.append(Comparison(setting.name, own, peak, per_token(setting)))
    return found


def _at(setting: Setting, name: str) -> str:
    return f"{setting.name}: {name}"


def _peak(setting: Setting) -> Once:
    return matrix_product(resolve_auto(setting.spec).precision)


def best(setting: Setting) -> dict[str, Any]:
    """Return the best settings of the Trainer, but for torch.compile."""
    spec = resolve_auto(setting.spec)
    return {
        "attention": spec.attention,
        "bf16": spec.precision == "bf16",
        "train_sampling_strategy": "group_by_length",
        "dataloader_num_workers": 4 if hardware.is_cuda() else 0,
        "dataloader_pin_memory": hardware.is_cuda(),
    }


def _ways(setting: Setting, ladder: bool) -> dict[str, Once]:
    """Return what is compared, by name; bf16 only where the machine computes in it.

    A user who looks for the Trainer's best settings would not keep emulated bf16.
    """
    is_bf16 = resolve_auto(setting.spec).precision == "bf16"
    ways: dict[str, Once] = {}
    if ladder:
        ways[DEFAULTS] = theirs(setting)
        if is_bf16:
            ways["+ bf16"] = theirs(setting, bf16=True)
        ways["+ eager attention"] = theirs(setting, "eager", bf16=is_bf16)
    ways[BEST] = theirs(setting, **best(setting))
    if ladder:
        ways["maskpolicy, fp32 and sdpa"] = ours(setting, precision="fp32", attention="sdpa")
        if is_bf16:
            ways["maskpolicy, bf16 and sdpa"] = ours(setting, attention="sdpa")
        ways["maskpolicy, Transformers' layers"] = ours(setting, loss=lambda: token_loss)
    ways[OURS] = ours(setting)
    return ways


def per_token(setting: Setting) -> float:
    """Return the floating-point operations of a step, forward and backward, per token.

    Counted by PyTorch over a few passages, on a CPU: on a GPU the loss is one operation of ours.
    The attention is "eager": PyTorch does not count the products in a CPU's sdpa.
    """
    from torch.utils.flop_counter import FlopCounterMode

    few = replace(setting, size=max(1, min(8, setting.size // 4)))
    spec = resolve_auto(replace(few.spec, compile=False))  # no shapes from buckets
    model, step = few.fresh(), few.masked(spec)(0)
    model.set_attn_implementation("eager")
    with FlopCounterMode(display=False) as counter:
        for batch in step.batches:
            token_loss(model, batch)[0].backward()
    operations = int(counter.get_total_flops())
    return operations / (step.work["source_tokens"] + step.work["target_tokens"])


def silent(done: int, total: int, note: str) -> None:
    """Report no progress."""
