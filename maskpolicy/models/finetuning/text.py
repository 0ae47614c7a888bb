"""Text tasks: a text-to-text model generates its answer, or selects the most likely choice."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maskpolicy.core.ragged import Ragged
from maskpolicy.core.types import Example
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.task_kinds import AnswerParams, HeadParams
from maskpolicy.models import text_to_text
from maskpolicy.models.families import limits
from maskpolicy.models.training.batching import (
    IGNORE,
    Batch,
    Pairs,
    Progress,
    check_scores,
    collate,
    in_batches,
    rows_for,
)
from maskpolicy.models.training.optimization import cast
from maskpolicy.models.training.specials import Specials
from maskpolicy.models.training.steps import Cut, ExampleSteps, tokenize

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_SLACK = 8  # tokens that an answer may be longer than the longest one in train
loss, training_loss = text_to_text.token_loss, text_to_text.training_loss


def start(folder: Path, examples: Sequence[Example], seed: int) -> Any:
    """Return the pre-trained model as it is: its LM head is the task's."""
    return load(folder)


def load(folder: Path) -> Any:
    """Return a model of a folder."""
    return text_to_text.load(str(folder))


def steps(
    model: Any, tokenizer: Any, examples: Sequence[Example], spec: Training, params: AnswerParams
) -> ExampleSteps:
    """Return the steps over (source, first target); limit answers to the longest target.

    From then on, the model's own `generate` is greedy, as in `generate` here.
    """
    specials = text_to_text.specials(tokenizer, model)
    text_to_text.complete_generation(model, specials)
    text_to_text.set_greedy(model)
    made = ExampleSteps.of(examples, tokenizer, specials, spec, params.keep)
    longest = int(made.pairs.targets.lengths.max()) + _SLACK
    _, most = limits(model.config)
    model.generation_config.max_new_tokens = longest if most is None else min(longest, most - 1)
    return made


def answer(
    model: Any,
    tokenizer: Any,
    examples: Sequence[Example],
    params: AnswerParams,
    spec: Training,
    progress: Progress | None = None,
) -> list[str]:
    """Return the answer to each example: the generated text, or the most likely choice."""
    import torch

    cast(model, torch.bfloat16 if spec.precision == "bf16" else torch.float32)
    sources, limit = [example.source for example in examples], spec.max_source
    if params.choose == "generate":
        return generate(
            model, tokenizer, sources, max_source=limit, keep=params.keep, progress=progress
        )
    choices = [example.choices for example in examples]
    means = likelihoods(model, tokenizer, sources, choices, spec, params.keep, progress)
    pairs = zip(choices, means, strict=True)  # of equal choices the first one wins
    return [of_source[int(np.argmax(values))] for of_source, (values, _) in pairs]


def cuts(
    tokenizer: Any, examples: Sequence[Example], spec: Training, params: HeadParams, training: bool
) -> list[Cut]:
    """Count truncated sources and, in training, targets, or else the choices of likelihoods."""

    def cut(what: str, texts: Sequence[str], key: str) -> Cut:
        lengths = tokenize(texts, tokenizer).lengths + Specials.of(tokenizer).added(key)
        return Cut.of(what, lengths, getattr(spec, key), key)

    counts = [cut("sources", [one.source for one in examples], "max_source")]
    if training:
        counts.append(cut("targets", [one.targets[0] for one in examples], "max_target"))
    elif params.choose == "likelihood":
        texts = [choice for one in examples for choice in one.choices]
        counts.append(cut("choices", texts, "max_target"))
    return counts


def generate(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[str] | Ragged,
    *,
    max_source: int,
    keep: str = "start",
    batch: int | None = None,
    progress: Progress | None = None,
) -> list[str]:
    """Return the greedy answer to each source, in order, without special tokens and outer blanks.

    Sources are texts, in which the name of a mask is ordinary text, or rows of token ids. They are
    truncated to `max_source` tokens; `batch` sources of similar length make a batch (see
    `rows_for`). Only max_new_tokens and the special tokens of the model's generation_config are
    used.
    """
    import torch

    specials = text_to_text.specials(tokenizer, model)
    text_to_text.complete_generation(model, specials)
    ids = sources if isinstance(sources, Ragged) else tokenize(sources, tokenizer)
    rows = specials.wrap(ids, max_source, keep)
    order = np.argsort(rows.lengths, kind="stable")
    answers = [""] * len(rows)
    device = next(model.parameters()).device

    def compute(chosen: NDArray[np.int64]) -> None:
        inputs = rows.take(chosen)
        output = model.generate(
            input_ids=torch.from_numpy(inputs.padded(specials.pad)).to(device),
            attention_mask=torch.from_numpy(inputs.inside).to(device),
        )
        kept = {"skip_special_tokens": True, "clean_up_tokenization_spaces": False}
        texts = tokenizer.batch_decode(output, **kept)
        for index, text in zip(chosen.tolist(), texts, strict=True):
            answers[index] = text.strip()

    own = model.generation_config
    longest = int(rows.lengths.max(initial=1)) + (own.max_new_tokens or 0)
    text_to_text.set_greedy(model)
    try:
        in_batches(model, order, compute, batch or rows_for(longest), progress)
    finally:
        model.generation_config = own
    return answers


def likelihoods(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[str],
    choices: Sequence[Sequence[str]],
    spec: Training,
    keep: str = "start",
    progress: Progress | None = None,
) -> list[tuple[NDArray[np.float64], NDArray[np.int64]]]:
    """Return the mean log-likelihood of the tokens of each choice, (c,), and their number, (c,).

    Special tokens count. Pairs of similar length share a batch, in which pairs of one source share
    its encoder states.
    """
    specials = text_to_text.specials(tokenizer, model)
    rows = specials.wrap(tokenize(sources, tokenizer), spec.max_source, keep)
    owners = np.repeat(np.arange(len(choices)), [len(given) for given in choices])
    texts = [text for given in choices for text in given]
    targets = specials.wrap_targets(tokenize(texts, tokenizer), spec.max_target)
    pairs = Pairs(rows.take(owners), targets)
    order = np.lexsort((owners, pairs.sources.lengths))
    means = np.zeros(len(pairs))
    device = next(model.parameters()).device

    def compute(chosen: NDArray[np.int64]) -> None:
        made = collate(pairs.take(chosen), specials.pad, specials.start)
        means[chosen] = _mean_log_likelihoods(model, made.to(device), owners[chosen])

    in_batches(model, order, compute, progress=progress)
    check_scores(means)
    bounds = np.cumsum([0, *map(len, choices)])
    lengths = pairs.targets.lengths
    return [(means[a:b], lengths[a:b]) for a, b in pairwise(bounds)]


def _mean_log_likelihoods(model: Any, batch: Batch, owners: NDArray[np.int64]) -> Any:
    """Return the mean over each row's labels, shape (b,), on the CPU.

    Rows of one owner, (b,), have the same source.
    """
    import torch
    from torch.nn.functional import cross_entropy

    found = np.unique(owners, return_index=True, return_inverse=True)[1:]
    first, own = (torch.from_numpy(each).to(batch.source.device) for each in found)
    seen = batch.seen.long()  # see `label_logits`
    read = model.get_encoder()(input_ids=batch.source[first], attention_mask=seen[first])
    read["last_hidden_state"] = read.last_hidden_state[own]
    logits = model(
        encoder_outputs=read,
        attention_mask=seen,
        decoder_input_ids=batch.decoder,
        use_cache=False,
    ).logits.float()
    losses = cross_entropy(
        logits.transpose(1, 2), batch.labels, reduction="none", ignore_index=IGNORE
    )
    return (-losses.sum(1) / (batch.labels != IGNORE).sum(1)).cpu().numpy()
