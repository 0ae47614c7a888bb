"""Answers of a fine-tuned model, written or chosen, batched by length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maskpolicy.finetuning.in_batches import BATCH, in_batches
from maskpolicy.models import text_to_text
from maskpolicy.ragged import Ragged
from maskpolicy.training.batching import IGNORE, Batch, Pairs, collate
from maskpolicy.training.interfaces import Progress
from maskpolicy.training.steps import tokenize

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def generate(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[str] | Ragged,
    *,
    max_source: int,
    keep: str = "start",
    batch: int = BATCH,
    progress: Progress | None = None,
) -> list[str]:
    """Return the greedy answer to each source, in order, without special tokens and outer blanks.

    Sources are texts, or rows of token ids: the name of a mask in a text is ordinary text.
    Sources of like length share a batch of `batch`; longer ones are cut to `max_source` tokens.
    Of the model's generation_config, max_new_tokens and special tokens are used, nothing else.
    """
    import torch

    specials = text_to_text.specials(tokenizer, model)
    text_to_text.complete_generation(model, specials)
    ids = sources if isinstance(sources, Ragged) else tokenize(sources, tokenizer)
    rows = specials.wrap(ids, max_source, keep)
    order = np.argsort(rows.lengths, kind="stable")
    answers = [""] * len(rows)
    device = next(model.parameters()).device
    with text_to_text.greedy_generation(model):
        for chosen in in_batches(model, order, batch, progress):
            taken = rows.take(chosen)
            with torch.inference_mode():
                output = model.generate(
                    input_ids=torch.from_numpy(taken.padded(specials.pad)).to(device),
                    attention_mask=torch.from_numpy(taken.inside).to(device),
                )
            texts = tokenizer.batch_decode(output, skip_special_tokens=True)
            for index, text in zip(chosen.tolist(), texts, strict=True):
                answers[index] = text.strip()
    return answers


@dataclass(frozen=True, kw_only=True)
class PairLimits:
    """The lengths, in tokens, to which pairs of a source and a choice are cut, and a batch's size.

    `keep` is the end of a longer source that stays.
    """

    max_source: int
    max_target: int
    keep: str = "start"
    batch: int = BATCH


def rank(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[str],
    choices: Sequence[Sequence[str]],
    limits: PairLimits,
    progress: Progress | None = None,
) -> list[str]:
    """Return for each source the choice of the highest mean log-likelihood of its tokens.

    Of equal choices the first one wins.
    """
    found = likelihoods(model, tokenizer, sources, choices, limits, progress)
    return [given[int(np.argmax(means))] for given, (means, _) in zip(choices, found, strict=True)]


def likelihoods(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[str],
    choices: Sequence[Sequence[str]],
    limits: PairLimits,
    progress: Progress | None = None,
) -> list[tuple[NDArray[np.float64], NDArray[np.int64]]]:
    """Return each source's choices' mean log-likelihoods of tokens, (c,), and their tokens, (c,).

    The tokens include the special ones. Pairs of like length share a batch, and pairs of a source
    in one batch share its encoder states.
    """
    import torch

    specials = text_to_text.specials(tokenizer, model)
    rows = specials.wrap(tokenize(sources, tokenizer), limits.max_source, limits.keep)
    owners = np.repeat(np.arange(len(choices)), [len(given) for given in choices])
    texts = [text for given in choices for text in given]
    targets = specials.wrap_targets(tokenize(texts, tokenizer), limits.max_target)
    pairs = Pairs(rows.take(owners), targets)
    order = np.lexsort((owners, pairs.sources.lengths))
    means = np.zeros(len(pairs))
    device = next(model.parameters()).device
    for chosen in in_batches(model, order, limits.batch, progress):
        made = collate(pairs.take(chosen), specials.pad, specials.start)
        with torch.inference_mode():
            means[chosen] = _mean_log_likelihoods(model, made.to(device), owners[chosen])
    bounds = np.cumsum([0, *map(len, choices)])
    lengths = pairs.targets.lengths
    return [(means[a:b], lengths[a:b]) for a, b in pairwise(bounds)]


def _mean_log_likelihoods(model: Any, batch: Batch, owners: NDArray[np.int64]) -> Any:
    """Return the mean over each row's labels, shape (b,), on the CPU.

    Rows of one owner, (b,), have the same source.
    """
    import torch
    from torch.nn.functional import cross_entropy
    from transformers.modeling_outputs import BaseModelOutput

    found = np.unique(owners, return_index=True, return_inverse=True)[1:]
    first, own = (torch.from_numpy(each).to(batch.source.device) for each in found)
    states = model.get_encoder()(
        input_ids=batch.source[first], attention_mask=batch.seen[first]
    ).last_hidden_state
    logits = model(
        encoder_outputs=BaseModelOutput(last_hidden_state=states[own]),
        attention_mask=batch.seen,
        decoder_input_ids=batch.decoder,
        use_cache=False,
    ).logits.float()
    losses = cross_entropy(
        logits.transpose(1, 2), batch.labels, reduction="none", ignore_index=IGNORE
    )
    return (-losses.sum(1) / (batch.labels != IGNORE).sum(1)).cpu().numpy()
