"""What ways of training are compared on: a model, its passages, their masks, a held-out loss."""

from __future__ import annotations

import copy
import functools
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from maskpolicy.core.types import Denoising
from maskpolicy.data import world
from maskpolicy.data.corpus.passages import Document, Passages, build_passages
from maskpolicy.experiment.budgets import Training, resolve_auto
from maskpolicy.masking.denoising import denoising_pairs
from maskpolicy.masking.selection import select
from maskpolicy.models import scratch
from maskpolicy.models.scratch import train_tokenizer
from maskpolicy.models.text_to_text import token_loss
from maskpolicy.models.training.batching import Pairs, collate
from maskpolicy.models.training.specials import Specials
from maskpolicy.models.training.steps import MaskedSteps
from maskpolicy.plugins.discovery import instance

BASE: dict[str, Any] = {  # facebook/bart-base
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
    denoising: Denoising
    size: int  # passages per step
    steps: int
    lr: float
    held_out: int = 64  # passages that the loss after the training is of; 0: it is not computed

    @property
    def specials(self) -> Specials:
        """Its special tokens."""
        return Specials.of(self.tokenizer, self.model.config.decoder_start_token_id)

    @property
    def spec(self) -> Training:
        """The budget that both sides train with."""
        return Training(
            steps=self.steps, batch_size=self.size, lr=self.lr, warmup=0, schedule="constant"
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
        return MaskedSteps(self.passages, policy, self.denoising, self.specials, spec)


def settings(mini_steps: int, base_steps: int) -> list[Setting]:
    """Return mini on the world's entries and a BART-base on 128-token passages."""
    with tempfile.TemporaryDirectory() as folder:
        world.write(world.Settings(evidence=False), Path(folder))
        lines = Path(folder, "general.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    texts = [row["text"] for row in rows]
    tokenizer = train_tokenizer(texts, scratch.BART_PRESETS["mini"].vocabulary)
    short = [Document(row["id"], row["text"]) for row in rows]
    # of one length, since few steps are measured, and one side has the longest passages first
    joined = (" ".join(texts[i : i + 9]).split(" ")[:90] for i in range(0, len(texts), 9))
    long = [Document(str(i), " ".join(words)) for i, words in enumerate(joined) if len(words) == 90]
    mini = scratch.build_bart("mini", tokenizer, 0)
    result = []
    for target in ("spans", "full"):
        denoising, policy = Denoising(target=target), "random" if target == "spans" else "original"
        for name, model, documents, words, size, steps, lr in (
            ("mini", mini, short, 100, 32, mini_steps, 1e-3),
            ("BART-base", bart_base(), long, 90, 8, base_steps, 1e-4),
        ):
            passages = build_passages(documents, tokenizer, words)
            label = f"{name} {target}"
            result.append(
                Setting(label, model, tokenizer, passages, policy, denoising, size, steps, lr)
            )
    return result


@functools.lru_cache(maxsize=1)
def bart_base() -> Any:
    """Return an untrained model of BART-base's size."""
    import torch
    from transformers import BartConfig, BartForConditionalGeneration

    torch.manual_seed(0)
    return BartForConditionalGeneration(BartConfig(**BASE, decoder_start_token_id=2))


def masked_pairs(
    setting: Setting, passages: Sequence[Any], epochs: Sequence[int], spec: Training
) -> Pairs:
    """Return passages as pairs, masked as the setting says; `epochs` are those of their masks."""
    policy = instance("policy", setting.policy, {})
    spans = select(policy, passages, spec.seed, epochs)
    written = denoising_pairs(
        passages, spans, setting.denoising, setting.specials, spec.seed, epochs
    )
    return setting.specials.pairs(written, spec)


def held_out(setting: Setting, model: Any) -> float:
    """Return the loss on masks that no training saw (epoch 1,000,000), fp32."""
    import torch

    spec = resolve_auto(replace(setting.spec, precision="fp32"))
    passages = [setting.passages[i] for i in range(setting.held_out)]
    pairs = masked_pairs(setting, passages, [1_000_000] * len(passages), spec)
    model.eval()
    total, count = 0.0, 0
    with torch.inference_mode():
        for begin in range(0, len(pairs), setting.size):
            rows = np.arange(begin, min(begin + setting.size, len(pairs)))
            chosen = pairs.take(rows[pairs.targets.lengths[rows] > 0])
            batch = collate(chosen, setting.specials.pad, setting.specials.start)
            value, units = token_loss(model, batch.to(model.device))
            total, count = total + value.item(), count + units
    return total / count


def noted(setting: Setting, model: Any) -> str:
    """Return the note on a trained model: its held-out loss."""
    return "" if not setting.held_out else f"loss {held_out(setting, model):.3f}"
