"""Answers of a fine-tuned model, batched by length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from maskpolicy.objectives import Specials, tokenize

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def generate(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[str],
    *,
    max_source: int,
    keep: str = "start",
    batch: int = 64,
    progress: Callable[[int, int, str], None] | None = None,
) -> list[str]:
    """Return the greedy answer to each source, in order, without special tokens and outer blanks.

    Sources of like length share a batch of `batch`; longer ones are cut to `max_source` tokens.
    The model's generation_config bounds the answers.
    """
    import torch

    specials = Specials.of(tokenizer, model.config.decoder_start_token_id)
    rows = [specials.wrap(ids, max_source, keep) for ids in tokenize(sources, tokenizer)]
    order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
    answers = [""] * len(rows)
    model.eval()
    device = next(model.parameters()).device
    for begin in range(0, len(order), batch):
        chosen = order[begin : begin + batch]
        ids, seen = _padded([rows[index] for index in chosen], specials.pad, device)
        with torch.inference_mode():
            output = model.generate(
                input_ids=ids,
                attention_mask=seen,
                num_beams=1,
                do_sample=False,
            )
        texts = tokenizer.batch_decode(output, skip_special_tokens=True)
        for index, text in zip(chosen, texts, strict=True):
            answers[index] = text.strip()
        if progress:
            progress(min(begin + batch, len(order)), len(order), "")
    return answers


def _padded(rows: Sequence[Any], pad: int, device: Any) -> tuple[Any, Any]:
    import torch

    width = max(map(len, rows))
    ids = np.full((len(rows), width), pad, np.int64)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = row
    seen = np.arange(width) < np.asarray([len(row) for row in rows])[:, None]
    return torch.from_numpy(ids).to(device), torch.from_numpy(seen).to(device)
