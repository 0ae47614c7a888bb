"""Non-padding tokens/s of the training loop against Transformers' Seq2SeqTrainer."""

from __future__ import annotations

import copy
import functools
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import Once, Rate, interleaved, matrix_peak
from maskpolicy import hardware, world
from maskpolicy import model as models
from maskpolicy.batching import Pairs, collate
from maskpolicy.budgets import Training
from maskpolicy.config import instance
from maskpolicy.corpus import Document, Passages, build
from maskpolicy.masking import hide_all
from maskpolicy.objectives import MaskedSteps, Specials
from maskpolicy.selection import select
from maskpolicy.training import Step, train
from maskpolicy.types import How

OURS, DEFAULTS, BEST = "maskpolicy", "Seq2SeqTrainer, defaults", "Seq2SeqTrainer, best settings"
BASE = {  # facebook/bart-base
    "d_model": 768,
    "encoder_layers": 6,
    "decoder_layers": 6,
    "encoder_attention_heads": 12,
    "decoder_attention_heads": 12,
    "encoder_ffn_dim": 3072,
    "decoder_ffn_dim": 3072,
    "max_position_embeddings": 1024,
    "vocab_size": 50265,
}


@dataclass(frozen=True, eq=False)
class Setting:
    """One comparison: a model, its passages, a policy and a budget."""

    name: str
    model: Any
    tokenizer: Any
    passages: Passages
    policy: str
    how: How
    size: int  # passages per step
    steps: int
    lr: float

    @property
    def specials(self) -> Specials:
        """Its special tokens."""
        return Specials.of(self.tokenizer, self.model.config.decoder_start_token_id)

    @property
    def spec(self) -> Training:
        """The budget that both sides train with."""
        return Training(
            steps=self.steps, passages=self.size, lr=self.lr, warmup=0, schedule="constant"
        )

    @property
    def skip(self) -> int:
        """How many of the first steps are not timed."""
        return self.steps // 4

    def fresh(self) -> Any:
        """Return the same initial weights again."""
        return copy.deepcopy(self.model)

    def masked(self, spec: Training) -> MaskedSteps:
        """Return the steps of our loop."""
        policy = instance("policy", self.policy, {})
        return MaskedSteps(self.passages, policy, self.how, self.specials, spec)


def settings(mini_steps: int, base_steps: int) -> list[Setting]:
    """Return mini on the world's entries and a BART-base on 128-token passages."""
    folder = Path(tempfile.mkdtemp())
    world.write(world.Settings(evidence=False), folder)
    rows = [json.loads(line) for line in (folder / "general.jsonl").open(encoding="utf-8")]
    texts = [row["text"] for row in rows]
    tokenizer = models.train_tokenizer(texts, models.PRESETS["mini"].vocabulary)
    short = [Document(row["id"], row["text"]) for row in rows]
    long = [Document(str(i), " ".join(texts[i : i + 9])) for i in range(0, len(texts), 9)]
    mini = models.build("mini", tokenizer, 0)
    result = []
    for target in ("spans", "full"):
        how, policy = How(target=target), "random" if target == "spans" else "original"
        for name, model, documents, words, size, steps, lr in (
            ("mini", mini, short, 100, 32, mini_steps, 1e-3),
            ("BART-base", _base(tokenizer), long, 90, 8, base_steps, 1e-4),
        ):
            passages = Passages(build(documents, tokenizer, words))
            label = f"{name}, {policy} ({target} targets)"
            result.append(Setting(label, model, tokenizer, passages, policy, how, size, steps, lr))
    return result


@functools.lru_cache(maxsize=1)
def _base(tokenizer: Any) -> Any:
    import torch
    from transformers import BartConfig, BartForConditionalGeneration

    torch.manual_seed(0)
    return BartForConditionalGeneration(BartConfig(**BASE, decoder_start_token_id=2))


def ours(setting: Setting, **changes: Any) -> Once:
    """Train with maskpolicy's loop."""

    def once() -> tuple[float, float, str]:
        spec = hardware.resolve(replace(setting.spec, **changes))
        model = setting.fresh()
        model.set_attn_implementation(spec.attention)
        steps, clock = setting.masked(spec), _Clock(setting.skip)

        def counted(number: int) -> Step:
            step = steps(number)
            clock.tokens.append(step.work["source_tokens"] + step.work["target_tokens"])
            return step

        train(
            model,
            counted,
            models.token_loss,
            spec,
            _NoCheckpoints(),
            _silent,
            on_step=lambda done, module: clock.tick(),
        )
        return *clock.result(), f"loss {held_out(setting, model):.3f}"

    return once


def theirs(
    setting: Setting,
    attention: str | None = None,
    places: Sequence[tuple[int, int]] = (),
    **arguments: Any,
) -> Once:
    """Train with Seq2SeqTrainer; masks come from the same code, in its data collator.

    `places` are (passage, epoch of its masks), in the order of a sampler that keeps it.
    """

    def once() -> tuple[float, float, str]:
        from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, TrainerCallback

        model = setting.fresh()
        if attention:
            model.set_attn_implementation(attention)
        clock = _Clock(setting.skip)

        class Ticks(TrainerCallback):
            def on_step_end(self, *_: Any, **__: Any) -> None:
                clock.tick()

        spec = setting.spec
        with tempfile.TemporaryDirectory() as folder:
            made = Seq2SeqTrainingArguments(
                folder,
                per_device_train_batch_size=setting.size,
                max_steps=setting.steps,
                learning_rate=spec.lr,
                weight_decay=spec.weight_decay,
                max_grad_norm=spec.clip,
                lr_scheduler_type="constant",
                save_strategy="no",
                logging_strategy="no",
                report_to="none",
                disable_tqdm=True,
                remove_unused_columns=False,
                seed=spec.seed,
                use_cpu=hardware.device().type == "cpu",
                **arguments,
            )
            trainer = Seq2SeqTrainer(
                model,
                made,
                train_dataset=_Rows(setting.passages, places),
                data_collator=_Collator(setting, clock.tokens),
                callbacks=[Ticks()],
            )
            trainer.train()
        return *clock.result(), f"loss {held_out(setting, model):.3f}"

    return once


def held_out(setting: Setting, model: Any) -> float:
    """Return the loss on masks that no training saw (epoch 1,000,000), fp32."""
    import torch

    spec = hardware.resolve(replace(setting.spec, precision="fp32"))
    passages = [setting.passages[i] for i in range(64)]
    pairs = _pairs(setting, passages, [1_000_000] * len(passages), spec)
    model.eval()
    total, count = 0.0, 0
    with torch.inference_mode():
        for begin in range(0, len(pairs), setting.size):
            chosen = pairs[begin : begin + setting.size]
            chosen = chosen.take(np.flatnonzero(chosen.targets.lengths))
            batch = collate(chosen, setting.specials.pad, setting.specials.start)
            value, units = models.token_loss(model, batch.to(model.device))
            total, count = total + value.item(), count + units
    return total / count


def agreement(setting: Setting) -> tuple[float, float]:
    """Return the Trainer's loss and ours on the same batches, in fp32 and without dropout.

    Both are given the passages in our order, each with the same masks; all else is as in `compare`.
    """
    still = replace(setting, model=setting.fresh())
    models.set_dropout(still.model, 0.0)
    order = still.masked(hardware.resolve(still.spec)).order
    places = [place for number in range(still.steps) for place in order.step(number)]
    notes = [
        theirs(still, places=places, train_sampling_strategy="sequential")()[2],
        ours(still, precision="fp32", attention="sdpa")()[2],
    ]
    return loss_of(notes[0]), loss_of(notes[1])


def compare(setting: Setting, repeats: int, ladder: bool) -> tuple[list[Rate], dict[str, float]]:
    """Measure both sides and, with `ladder`, the single changes between them."""
    best = {"bf16": True, "train_sampling_strategy": "group_by_length"}
    ways: dict[str, Once] = {DEFAULTS: theirs(setting)}
    if ladder:
        ways["+ bf16"] = theirs(setting, bf16=True)
        ways["+ eager attention"] = theirs(setting, "eager", bf16=True)
    ways[BEST] = theirs(setting, hardware.resolve(setting.spec).attention, **best)
    if ladder:
        ways["maskpolicy, fp32 and sdpa"] = ours(setting, precision="fp32", attention="sdpa")
        ways["maskpolicy, bf16 and sdpa"] = ours(setting, attention="sdpa")
    ways[OURS] = ours(setting)
    return interleaved(ways, repeats), flops(setting)


def flops(setting: Setting) -> dict[str, float]:
    """Return the floating-point operations per non-padding token, and the matrix peak in FLOP/s."""
    from torch.utils.flop_counter import FlopCounterMode

    spec = hardware.resolve(setting.spec)
    model = setting.fresh()
    step = setting.masked(spec)(0)
    with FlopCounterMode(display=False) as counter:
        for batch in step.batches:
            models.token_loss(model, batch)[0].backward()
    tokens = step.work["source_tokens"] + step.work["target_tokens"]
    peak = matrix_peak(spec.precision)
    return {"per_token": counter.get_total_flops() / tokens, "peak": peak}


class _Rows:
    """Passage numbers with their lengths and epochs, as a map-style dataset."""

    def __init__(self, passages: Passages, places: Sequence[tuple[int, int]]) -> None:
        self.lengths = passages.lengths
        self.places = places or [(item, 0) for item in range(len(passages))]

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int) -> dict[str, Any]:
        item, epoch = self.places[index]
        length = int(self.lengths[item])
        return {"index": item, "epoch": epoch, "length": length, "input_ids": range(length)}


class _Collator:
    """Masks and pads one batch for the Trainer, at the same cost as ours."""

    def __init__(self, setting: Setting, tokens: list[float]) -> None:
        self.setting, self.tokens = setting, tokens

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        passages = [self.setting.passages[int(row["index"])] for row in rows]
        epochs = [int(row["epoch"]) for row in rows]
        pairs = _pairs(self.setting, passages, epochs, self.setting.spec)
        self.tokens.append(len(pairs.sources.flat) + len(pairs.targets.flat))
        batch = collate(pairs, self.setting.specials.pad, self.setting.specials.start)
        return {
            "input_ids": batch.source,
            "attention_mask": batch.seen.long(),
            "decoder_input_ids": batch.decoder,
            "labels": batch.labels,
        }


def _pairs(
    setting: Setting, passages: Sequence[Any], epochs: Sequence[int], spec: Training
) -> Pairs:
    policy = instance("policy", setting.policy, {})
    spans = select(policy, passages, spec.seed, epochs)
    written = hide_all(passages, spans, setting.how, setting.specials.mask, spec.seed, epochs)
    return setting.specials.pairs(written, spec)


class _Clock:
    """Tokens and seconds of the steps after the first `skip`."""

    def __init__(self, skip: int) -> None:
        self.skip = skip
        self.tokens: list[float] = []
        self.times: list[float] = []

    def tick(self) -> None:
        self.times.append(time.perf_counter())

    def result(self) -> tuple[float, float]:
        tokens = sum(self.tokens[self.skip + 1 : len(self.times)])
        return tokens, self.times[-1] - self.times[self.skip]


class _NoCheckpoints:
    def save(self, step: int, write: Callable[[Path], None]) -> None:
        """Keep nothing: a benchmark is not resumed."""

    def latest(self) -> None:
        """There is never one."""


def _silent(done: int, total: int, note: str) -> None:
    return None


def loss_of(note: str) -> float:
    """Return the held-out loss that a way notes."""
    return float(note.removeprefix("loss "))
