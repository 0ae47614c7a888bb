"""Answers/s of generation for evaluation against a plain `model.generate` loop in file order."""

from __future__ import annotations

import copy
import json
import math
import statistics
import time
from pathlib import Path
from typing import Any

from benchmarks.comparison import bart_base
from benchmarks.measure import Once
from maskpolicy.core import hardware
from maskpolicy.data import world
from maskpolicy.models import scratch
from maskpolicy.models.finetuning.text import generate
from maskpolicy.models.scratch import train_tokenizer

PLAIN, OURS = "model.generate in file order", "maskpolicy"
BATCH = 64
MODELS = ("mini", "BART-base")


def load(folder: Path, name: str) -> tuple[Any, Any, list[str]]:
    """Return an untrained model, a tokenizer and the world's dialogues, whose lengths differ."""
    import torch

    world.write(world.Settings(evidence=False), folder)
    lines = (folder / "general.jsonl").read_text(encoding="utf-8").splitlines()
    tokenizer = train_tokenizer((json.loads(line)["text"] for line in lines), 2000)
    rows = (folder / "tasks" / "wow-dev-kilt.jsonl").read_text(encoding="utf-8").splitlines()
    mini = scratch.build_bart("mini", tokenizer, 0) if name == "mini" else None
    model: Any = mini or copy.deepcopy(bart_base())
    # with tied weights, an untrained model repeats the start, which is BART-base's end of a text
    torch.manual_seed(0)
    model.lm_head.weight = torch.nn.Parameter(0.02 * torch.randn_like(model.lm_head.weight))
    model.final_logits_bias[:, len(tokenizer) :] = -math.inf
    model.to(hardware.device()).eval().generation_config.max_new_tokens = 24
    return model, tokenizer, [json.loads(row)["input"] for row in rows]


def plain(model: Any, tokenizer: Any, sources: list[str], answers: dict[str, list[str]]) -> Once:
    """The loop that anybody writes."""

    def once() -> tuple[float, float, str]:
        import torch

        found: list[str] = []
        started = time.perf_counter()
        with torch.inference_mode():
            for begin in range(0, len(sources), BATCH):
                batch = tokenizer(sources[begin : begin + BATCH], return_tensors="pt", padding=True)
                output = model.generate(**batch.to(model.device), num_beams=1, do_sample=False)
                found += tokenizer.batch_decode(output, skip_special_tokens=True)
        seconds = time.perf_counter() - started
        answers[PLAIN] = [answer.strip() for answer in found]
        return len(sources), seconds, ""

    return once


def ours(model: Any, tokenizer: Any, sources: list[str], answers: dict[str, list[str]]) -> Once:
    """The evaluate stage's generation."""

    def once() -> tuple[float, float, str]:
        started = time.perf_counter()
        answers[OURS] = generate(model, tokenizer, sources, max_source=512, batch=BATCH)
        seconds = time.perf_counter() - started
        same = sum(a == b for a, b in zip(answers[OURS], answers[PLAIN], strict=True))
        size = statistics.fmean(len(each.split()) for each in answers[OURS])
        return len(sources), seconds, f"{same} of {len(sources)} the same; {size:.0f} words each"

    return once


def ways(folder: Path, name: str) -> dict[str, Once]:
    """Return what is compared; `name` is that of a model of `MODELS`."""
    model, tokenizer, sources = load(folder, name)
    answers: dict[str, list[str]] = {}
    return {
        PLAIN: plain(model, tokenizer, sources, answers),
        OURS: ours(model, tokenizer, sources, answers),
    }
