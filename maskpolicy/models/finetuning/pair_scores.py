"""Tasks of minimal pairs, without fine-tuning: which of two texts is more likely to a model?

An encoder scores a text by its pseudo-log-likelihood (Salazar et al. 2020): each token is masked in
a copy of the text, and the log-probabilities of the true tokens are summed. `within_word_l2r` also
masks the rest of the token's word (Kauf and Ivanova 2023). Text-to-text models score as in BabyLM's
pipeline. With `enc_dec_mask` they read such a copy and predict the token after BOS and a mask. With
`enc_dec_prefix` the encoder reads the text's prefix and a mask, and the decoder scores the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from maskpolicy.core.errors import ConfigError, DataError
from maskpolicy.core.ragged import Ragged
from maskpolicy.core.types import Example
from maskpolicy.data.corpus.passages import backend_of
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.task_kinds import AnswerParams
from maskpolicy.models import encoders, text_to_text
from maskpolicy.models.loading import load_weights
from maskpolicy.models.training.batching import IGNORE, Batch, Progress
from maskpolicy.models.training.specials import Specials

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Ints: TypeAlias = NDArray[np.int64]
Asked: TypeAlias = tuple[Batch, Ints, Ints, Ints]
"""A batch, and for each of c tokens to score: its text, its row of the logits, its id."""


def load(folder: Path) -> Any:
    """Return the model of a folder; ConfigError for an encoder without a head."""
    from transformers import AutoConfig

    if load_weights(AutoConfig, str(folder)).is_encoder_decoder:
        return text_to_text.load(str(folder))
    model = encoders.load(str(folder))
    if not encoders.is_masked_lm(model):
        raise ConfigError(
            "the model has no head for masked language modelling, with which it would score pairs: "
            "set model.head: own"
        )
    return model


def answer(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    examples: Sequence[Example],
    params: AnswerParams,
    spec: Training,
    progress: Progress | None = None,
) -> list[str]:
    """Return the text of each pair that scores higher; of equal scores, the second text."""
    texts = [(one.source, choice) for one in examples for choice in one.choices]
    found = scores(model, tokenizer, texts, params.choose, spec, progress).reshape(-1, 2)
    return [
        one.choices[0 if good > bad else 1]
        for one, (good, bad) in zip(examples, found, strict=True)
    ]


def scores(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[tuple[str, str]],
    choose: str,
    spec: Training,
    progress: Progress | None = None,
) -> NDArray[np.float64]:
    """Return the log-likelihood of each text given its prefix, (n,), in nats.

    `texts` are (prefix, text), and `choose` is one of task_kinds.PAIR_SCORES. A batch has
    `spec.micro_tokens` tokens of texts of equal length. Raises DataError for a text without tokens,
    or with more than the model reads.
    """
    import torch

    device, module = next(model.parameters()).device, model.eval()
    logits: Callable[..., torch.Tensor] = text_to_text.label_logits
    if not model.config.is_encoder_decoder:
        from maskpolicy.models.masked_encoder import OwnHead

        module, logits = OwnHead(model, None), encoders.label_logits
    ask = _prefixed if choose == "enc_dec_prefix" else _masked
    found, done = np.zeros(len(texts)), 0
    for batch, owners, rows, tokens in ask(model, tokenizer, texts, choose, spec):
        with torch.inference_mode():
            likelihoods = logits(module, batch.to(device)).float().log_softmax(-1)
            own = likelihoods[torch.from_numpy(rows), torch.from_numpy(tokens)]
        np.add.at(found, owners, own.cpu().double().numpy())
        if progress:
            done += len(np.unique(owners))
            progress(min(done, len(texts)), len(texts), "")
    return found


def _masked(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[tuple[str, str]],
    choose: str,
    spec: Training,
) -> Iterator[Asked]:
    """Yield copies of texts, each with one token masked; a batch holds equal copies once."""
    specials, starts = _specials(model, tokenizer), _decoder_starts(model, tokenizer)
    encoded = _encoded(
        [f"{before} {text}" if before else text for before, text in texts], tokenizer
    )
    before, after = specials.source_ends or ((specials.bos,), (specials.eos,))
    ends = len(before) + len(after)
    lengths = np.asarray([len(one.ids) + ends for one in encoded])
    _check(lengths, ends, texts, spec)
    for some in _alike(lengths[:, None], lengths * (lengths - ends), spec.micro_tokens):
        ids = np.asarray([(*before, *encoded[place].ids, *after) for place in some])
        stops = np.asarray([[stop for _, stop in encoded[place].offsets] for place in some])
        # tokens of the text end after the prefix; without a prefix, a token may be empty
        first = np.asarray([len(texts[place][0]) or -1 for place in some])
        row, at = np.nonzero(stops > first[:, None])
        places = np.arange(stops.shape[1])
        hidden = places == at[:, None]
        if choose == "within_word_l2r":
            words = np.asarray([encoded[place].word_ids for place in some], float)[row]
            same = words == np.take_along_axis(words, at[:, None], 1)  # no word: NaN
            hidden |= same & (places > at[:, None])
        at = at + len(before)
        copies = ids[row]
        copies[:, len(before) : len(before) + len(places)][hidden] = specials.mask
        keyed = np.concatenate([copies, at[:, None]], axis=1)
        different, of_copy = np.unique(keyed, axis=0, return_inverse=True)
        size = max(1, spec.micro_tokens // copies.shape[1])
        for begin in range(0, len(different), size):
            part = different[begin : begin + size]
            own = (of_copy >= begin) & (of_copy < begin + size)
            batch = _batch(part[:, :-1], part[:, -1], starts)
            yield batch, some[row[own]], of_copy[own] - begin, ids[row[own], at[own]]


def _alike(shapes: Ints, costs: Ints, budget: int) -> Iterator[Ints]:
    """Yield the indices of equal rows of `shapes`, (n, k), whose costs sum up to a budget."""
    for shape in np.unique(shapes, axis=0):
        every = np.flatnonzero((shapes == shape).all(1))
        size = max(1, budget // int(costs[every[0]]))
        yield from np.split(every, range(size, len(every), size))


def _batch(sources: Ints, places: Ints, starts: list[int]) -> Batch:
    """Return a batch whose labels are at the places of the sources, or behind the `starts`."""
    import torch

    read = torch.from_numpy(sources)
    labels = torch.full((len(read), len(starts) or read.shape[1]), IGNORE)
    labels[torch.arange(len(read)), len(starts) - 1 if starts else torch.from_numpy(places)] = 0
    decoder = torch.tensor([starts]).expand(len(read), -1) if starts else None
    return Batch(read, torch.ones_like(read, dtype=torch.bool), decoder, labels)


def _prefixed(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[tuple[str, str]],
    choose: str,
    spec: Training,
) -> Iterator[Asked]:
    """Yield the texts as labels of the decoder; the encoder reads their prefixes and a mask."""
    import torch

    specials, starts = _specials(model, tokenizer), _decoder_starts(model, tokenizer)
    before = _encoded([prefix for prefix, _ in texts], tokenizer)
    after = _encoded([f" {text}" if prefix else text for prefix, text in texts], tokenizer)
    sources = [[*one.ids, specials.mask] for one in before]
    wrapped = specials.wrap(Ragged.of([np.asarray(ids) for ids in sources], np.int64), 2**31)
    lengths = np.asarray([len(one.ids) for one in after])
    _check(np.maximum(wrapped.lengths, lengths + 1), 1, texts, spec)
    shapes = np.stack([wrapped.lengths, lengths], axis=1)
    for some in _alike(shapes, shapes.sum(1), spec.micro_tokens):
        read = torch.from_numpy(wrapped.take(some).padded(specials.pad))
        tokens = torch.tensor([after[place].ids for place in some])
        decoder = torch.cat([torch.tensor([starts] * len(some)), tokens[:, :-1]], dim=1)
        labels = torch.cat([torch.full((len(some), len(starts) - 1), IGNORE), tokens], dim=1)
        batch = Batch(read, torch.ones_like(read, dtype=torch.bool), decoder, labels)
        flat = tokens.flatten().numpy()
        yield batch, np.repeat(some, tokens.shape[1]), np.arange(len(flat)), flat


def _specials(model: Any, tokenizer: PreTrainedTokenizerBase) -> Specials:
    if model.config.is_encoder_decoder:
        return text_to_text.specials(tokenizer, model)
    return Specials.of_encoder(tokenizer)


def _decoder_starts(model: Any, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Return the decoder's input before the first token to score; [] without a decoder."""
    specials = _specials(model, tokenizer)
    if specials.start is None:
        return []
    first = tokenizer.bos_token_id
    return [specials.start if first is None else first, specials.mask]


def _encoded(texts: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> list[Any]:
    """Encode texts with words and offsets; the name of a special token is ordinary text."""
    backend = backend_of(tokenizer)
    backend.encode_special_tokens = True
    return backend.encode_batch(texts, add_special_tokens=False)


def _check(lengths: Ints, least: int, texts: Sequence[tuple[str, str]], spec: Training) -> None:
    for length, (_, text) in zip(lengths.tolist(), texts, strict=True):
        if length <= least:
            raise DataError(
                f"the text {text!r:.60} has no token that could be scored: leave it out"
            )
        if length > spec.max_source:
            raise DataError(
                f"the text {text!r:.60} has {length} tokens, and the model reads "
                f"{spec.max_source}: shorten it, or leave it out"
            )
