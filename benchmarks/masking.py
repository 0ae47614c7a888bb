"""Masked tokens/s, from annotated passages to finished batches, against a stock collator."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import Once
from maskpolicy.core.ragged import Ragged
from maskpolicy.core.types import Denoising
from maskpolicy.data import world
from maskpolicy.data.corpus import documents
from maskpolicy.data.corpus.annotation import annotate
from maskpolicy.data.corpus.passages import Document, Passages, build_passages, packed
from maskpolicy.experiment.budgets import Training, resolve_auto
from maskpolicy.models.loading import load_tokenizer
from maskpolicy.models.scratch import train_tokenizer
from maskpolicy.models.training.specials import Specials
from maskpolicy.models.training.steps import MaskedSteps
from maskpolicy.plugins.discovery import instance

STOCK = "DataCollatorForLanguageModeling"
SIZE = 32  # passages in a batch


def load(
    text: Path | None, tokenizer: str | None, folder: Path, packs: bool
) -> tuple[Passages, Any]:
    """Return annotated passages and their tokenizer: of a file, or of the embedded world."""
    if text is None:
        world.write(world.Settings(evidence=False), folder)
        found = list(documents.world(folder / "intermediate.jsonl"))
    else:
        found = [Document(str(i), line) for i, line in enumerate(text.open()) if line.strip()]
    found = list(packed(found)) if packs else found
    texts = [document.text for document in found]
    fast = load_tokenizer(tokenizer) if tokenizer else train_tokenizer(texts, 2000)
    passages = build_passages((Document(d.id, d.text) for d in found), fast, 100)
    columns = annotate(instance("policy", "salient-span", {}), passages)
    rows = {name: Ragged.of_arrays(arrays) for name, arrays in columns.items()}
    return Passages({**passages.arrays, **rows}), fast


def ours(policy: str, passages: Passages, tokenizer: Any, steps: int) -> Once:
    """Mask and collate through maskpolicy."""
    spec = resolve_auto(Training(batch_size=SIZE))
    made = MaskedSteps(
        passages, instance("policy", policy, {}), Denoising(), Specials.of(tokenizer), spec
    )
    tokens = sum(int(passages.lengths[i]) for n in range(steps) for i, _ in made.order.step(n))

    def once() -> tuple[float, float, str]:
        started = time.perf_counter()
        for number in range(steps):
            made(number)
        return tokens, time.perf_counter() - started, ""

    return once


def stock(passages: Passages, tokenizer: Any, steps: int, stored: bool) -> Once:
    """Mask and collate through Transformers' collator: rows of a stored Dataset, or of a list.

    maskpolicy's passages lie in a file too; lists of rows in memory are what no corpus fits into.
    """
    from datasets import Dataset
    from transformers import DataCollatorForLanguageModeling

    collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
    rows: Sequence[dict[str, Any]] = [
        {"input_ids": passages[i].tokens.tolist()} for i in range(len(passages))
    ]
    batches = [[(number * SIZE + i) % len(rows) for i in range(SIZE)] for number in range(steps)]
    tokens = sum(len(rows[i]["input_ids"]) for batch in batches for i in batch)
    dataset = Dataset.from_list(rows)

    def once() -> tuple[float, float, str]:
        started = time.perf_counter()
        for batch in batches:
            collator(dataset.__getitems__(batch) if stored else [rows[i] for i in batch])
        return tokens, time.perf_counter() - started, ""

    return once


def ways(passages: Passages, tokenizer: Any, steps: int) -> dict[str, Once]:
    """Return what is compared."""
    return {
        STOCK: stock(passages, tokenizer, steps, stored=True),
        f"{STOCK}, rows in memory": stock(passages, tokenizer, steps, stored=False),
        "maskpolicy, random": ours("random", passages, tokenizer, steps),
        "maskpolicy, salient-span": ours("salient-span", passages, tokenizer, steps),
    }
