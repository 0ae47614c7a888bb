"""A training step of BART-base and BART-large fits into a GPU of 80 GB, by PyTorch's FakeTensor."""

from types import SimpleNamespace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from transformers import AutoModelForSeq2SeqLM, BartConfig

from maskpolicy.models.text_to_text import token_loss
from maskpolicy.models.training.batching import Batch
from maskpolicy.models.training.optimization import Weights

BASE = SimpleNamespace(width=768, heads=12, layers=6)  # of the encoder, and as many more
LARGE = SimpleNamespace(width=1024, heads=16, layers=12)
LENGTH = 512  # tokens of a source and of its target, all of them with a label


def step(model, layers, rows):
    """Return the peak bytes of a step in bf16, with AdamW's moments, and all logits at a time."""
    shape = {"d_model": model.width}
    for part in ("encoder", "decoder"):
        shape |= {f"{part}_layers": layers, f"{part}_attention_heads": model.heads}
        shape[f"{part}_ffn_dim"] = 4 * model.width
    with FakeTensorMode():
        config, bf16 = BartConfig(vocab_size=50265, **shape), torch.bfloat16
        module = AutoModelForSeq2SeqLM.from_config(config, dtype=bf16, attn_implementation="sdpa")
        module.to = lambda kind: module  # PyTorch cannot convert fake parameters in place
        weights = Weights(module.train(), bf16=True)
        ids, seen = torch.zeros(rows, LENGTH, dtype=torch.long), torch.ones(rows, LENGTH)
        batch = Batch(ids, seen.bool(), ids.clone(), ids.clone())
        vars(batch).update(places=torch.arange(ids.numel()), mask=batch.seen)
        tracker = MemTracker()
        flat = (weights.master, weights.summed, weights.computed, weights.collected)
        tracker.track_external(module, *flat, ids, batch.seen)
        with tracker:
            value, _ = token_loss(module, batch)
            value.backward()
            weights.collect(is_first=True)
        (peak,) = (every["Total"] for every in tracker.get_tracker_snapshot("peak").values())
    return peak + 2 * 4 * len(weights.master)


@pytest.mark.parametrize(
    ("model", "tokens", "gigabytes"),
    [
        *((BASE, 16_384, 11.2), (BASE, 32_768, 19.5), (BASE, 65_536, 36.3)),
        *((LARGE, 16_384, 22.0), (LARGE, 32_768, 36.0), (LARGE, 65_536, 63.8)),
    ],
)
def test_a_micro_batch_fits_into_the_memory_of_a_gpu(model, tokens, gigabytes, monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)  # as on a GPU: reads no value
    one, two = (step(model, layers, tokens // (2 * LENGTH)) for layers in (1, 2))
    peak = one + (model.layers - 1) * (two - one)  # each further layer needs as much
    assert 0.9 * gigabytes < peak / 1e9 < 1.02 * gigabytes < 0.9 * 80
