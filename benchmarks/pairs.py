"""Minimal pairs per second: maskpolicy's scores of BLiMP against a plain loop over Transformers.

`python -m benchmarks.pairs DATA` reads the 67 files in DATA/blimp. The encoder is a RoBERTa of
4 layers and width 256 with 8,000 tokens, untrained; both score in single precision.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import Once, interleaved, one_line_of_error, table
from maskpolicy.data.taskfiles.examples import read_split
from maskpolicy.experiment.budgets import resolve_auto
from maskpolicy.experiment.definition import Limit, TaskBlock
from maskpolicy.models import scratch
from maskpolicy.models.finetuning import pair_scores
from maskpolicy.pipeline.stages.assembly import ZERO_SHOT

LOOP, OURS, PRODUCTS = "a loop over Transformers", "maskpolicy", "matrix products alone"
LAYERS, WIDTH, HEADS, VOCABULARY = 4, 256, 4, 8000
SPEC = resolve_auto(ZERO_SHOT)


@one_line_of_error()
def main() -> None:
    """Print pairs per processor second of each way, and how far apart the scores are."""
    import torch

    parser = argparse.ArgumentParser(prog="python -m benchmarks.pairs", description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--group", type=int, default=10, help="pairs of each paradigm")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--whole", action="store_true", help="also all pairs once, by the clock")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    every = read_split(TaskBlock("blimp", "blimp", {}), "test", given.data).examples
    tokenizer = scratch.train_tokenizer([c for one in every for c in one.choices], VOCABULARY)
    block = TaskBlock("blimp", "blimp", {}, limit=Limit(group=given.group))
    texts = [c for one in read_split(block, "test", given.data).examples for c in one.choices]
    model, scores = _encoder(tokenizer), dict[str, Any]()
    ways: dict[str, Once] = {
        LOOP: lambda: _timed(LOOP, scores, lambda: _loop(model, tokenizer, texts), len(texts)),
        OURS: lambda: _timed(OURS, scores, lambda: _ours(model, tokenizer, texts), len(texts)),
        PRODUCTS: lambda: _timed(PRODUCTS, scores, lambda: _products(tokenizer, texts), len(texts)),
    }
    rates = interleaved(ways, given.repeats)
    print(table(rates, "pairs/s", LOOP))
    print(
        f"\nlargest difference of two scores: {np.abs(scores[LOOP] - scores[OURS]).max():.1e} nats"
    )
    print(f"time of maskpolicy over that of its matrix products: {rates[2].over(rates[1])}")
    if given.whole:
        started, texts = time.perf_counter(), [c for one in every for c in one.choices]
        _ours(model, tokenizer, texts)
        minutes = (time.perf_counter() - started) / 60
        print(f"all {len(every):,} pairs on {given.threads} threads: {minutes:.1f} minutes")


def _timed(name: str, scores: dict[str, Any], work: Any, texts: int) -> tuple[float, float, str]:
    started = time.process_time()
    scores[name] = work()
    return texts / 2, time.process_time() - started, ""


def _encoder(tokenizer: Any) -> Any:
    import torch
    from transformers import RobertaConfig, RobertaForMaskedLM

    torch.manual_seed(0)
    config = RobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=WIDTH,
        intermediate_size=4 * WIDTH,
        num_attention_heads=HEADS,
        num_hidden_layers=LAYERS,
        max_position_embeddings=130,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return RobertaForMaskedLM(config).eval()


def _loop(model: Any, tokenizer: Any, texts: Sequence[str]) -> Any:
    """Score one text at a time, its copies in one batch."""
    import torch

    found = []
    with torch.inference_mode():
        for text in texts:
            ids = torch.tensor(tokenizer(text)["input_ids"])
            at = torch.arange(1, len(ids) - 1)
            copies = ids.repeat(len(at), 1)
            copies[at - 1, at] = tokenizer.mask_token_id
            logits = model(input_ids=copies, attention_mask=torch.ones_like(copies)).logits
            found.append(logits[at - 1, at].log_softmax(-1)[at - 1, ids[at]].sum().item())
    return np.asarray(found)


def _ours(model: Any, tokenizer: Any, texts: Sequence[str]) -> Any:
    return pair_scores.scores(model, tokenizer, [("", text) for text in texts], "pll", SPEC)


def _products(tokenizer: Any, texts: Sequence[str]) -> None:
    """Multiply matrices of the shapes that all copies need, those of attention and head too.

    The last feed-forward layers read the masked tokens alone.
    """
    import torch

    lengths = np.asarray([len(ids) for ids in tokenizer(list(texts))["input_ids"]])
    square, widen = torch.randn(WIDTH, WIDTH), torch.randn(WIDTH, 4 * WIDTH)
    narrow, rows = torch.randn(4 * WIDTH, WIDTH), torch.randn(WIDTH, VOCABULARY)
    for length in np.unique(lengths).tolist():
        copies, size = int((lengths == length).sum()) * (length - 2), SPEC.batch_tokens // length
        for begin in range(0, copies, size):
            count = min(size, copies - begin)
            states = torch.ones(count * length, WIDTH)
            heads = states.view(count * HEADS, length, WIDTH // HEADS)
            masked = states[:count]
            for layer in range(LAYERS):
                for _ in ("query", "key", "value", "output"):
                    torch.mm(states, square)
                torch.bmm(torch.bmm(heads, heads.transpose(1, 2)), heads)
                torch.mm(torch.mm(masked if layer == LAYERS - 1 else states, widen), narrow)
            torch.mm(torch.mm(masked, square), rows)


if __name__ == "__main__":
    main()
