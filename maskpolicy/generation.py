"""Answers of a fine-tuned model, written or chosen, batched by length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from maskpolicy.batching import IGNORE, Batch, Pair, collate
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


def rank(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[str],
    choices: Sequence[Sequence[str]],
    *,
    max_source: int,
    max_target: int,
    keep: str = "start",
    batch: int = 64,
    progress: Callable[[int, int, str], None] | None = None,
) -> list[str]:
    """Return for each source the choice of the highest mean log-likelihood of its tokens.

    Pairs of like length share a batch of `batch`; of equal choices the first one wins.
    """
    import torch

    specials = Specials.of(tokenizer, model.config.decoder_start_token_id)
    rows = [specials.wrap(ids, max_source, keep) for ids in tokenize(sources, tokenizer)]
    owners = [index for index, given in enumerate(choices) for _ in given]
    texts = [text for given in choices for text in given]
    targets = [specials.wrap(ids, max_target) for ids in tokenize(texts, tokenizer)]
    pairs = [Pair(rows[owner], target) for owner, target in zip(owners, targets, strict=True)]
    order = sorted(range(len(pairs)), key=lambda i: (len(pairs[i].source), len(pairs[i].target)))
    means = np.zeros(len(pairs))
    model.eval()
    device = next(model.parameters()).device
    for begin in range(0, len(order), batch):
        chosen = order[begin : begin + batch]
        made = collate([pairs[index] for index in chosen], specials.pad, specials.start)
        with torch.inference_mode():
            means[chosen] = _mean_log_likelihoods(model, made.to(device))
        if progress:
            progress(min(begin + batch, len(order)), len(order), "")
    bounds = np.cumsum([0, *map(len, choices)])
    return [texts[a + int(np.argmax(means[a:b]))] for a, b in pairwise(bounds)]


def _mean_log_likelihoods(model: Any, batch: Batch) -> Any:
    """Return the mean over each row's labels, shape (b,), on the CPU."""
    from torch.nn.functional import cross_entropy

    logits = model(
        input_ids=batch.source,
        attention_mask=batch.seen,
        decoder_input_ids=batch.decoder,
        use_cache=False,
    ).logits.float()
    losses = cross_entropy(
        logits.transpose(1, 2), batch.labels, reduction="none", ignore_index=IGNORE
    )
    return (-losses.sum(1) / (batch.labels != IGNORE).sum(1)).cpu().numpy()


def _padded(rows: Sequence[Any], pad: int, device: Any) -> tuple[Any, Any]:
    import torch

    width = max(map(len, rows))
    ids = np.full((len(rows), width), pad, np.int64)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = row
    seen = np.arange(width) < np.asarray([len(row) for row in rows])[:, None]
    return torch.from_numpy(ids).to(device), torch.from_numpy(seen).to(device)
