"""Tasks of minimal pairs, without fine-tuning: which of two texts is more likely to a model?

An encoder scores a text by its pseudo-log-likelihood (Salazar et al. 2020): each token is masked in
a copy of the text, and the log-probabilities of the true tokens are summed. `within_word_l2r` also
masks the rest of the token's word (Kauf and Ivanova 2023). Text-to-text models score as in BabyLM's
pipeline. With `enc_dec_mask` they read such a copy and predict the token after BOS and a mask. With
`enc_dec_prefix` the encoder reads the text's prefix and a mask, and the decoder scores the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
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
from maskpolicy.models.loading import load_config
from maskpolicy.models.training.batching import IGNORE, Batch, Progress, check_scores
from maskpolicy.models.training.specials import Specials

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Ints: TypeAlias = NDArray[np.int64]
Asked: TypeAlias = tuple[Batch, Ints, Ints, Ints]
"""A batch, and for each of c tokens to score: its text, its row of the logits, its id."""


def load(folder: Path) -> Any:
    """Return the model of a folder; ConfigError for an encoder without a head."""
    if load_config(folder).is_encoder_decoder:
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
    """Return the text of each pair that scores higher; of equal scores, the wrong text."""
    texts = [(one.source, choice) for one in examples for choice in one.choices]
    first, second = scores(model, tokenizer, texts, params.choose, spec, progress).reshape(-1, 2).T
    wrong = [one.choices[0] in one.targets for one in examples]
    best = np.where(first == second, wrong, first < second).tolist()
    return [one.choices[place] for one, place in zip(examples, best, strict=True)]


def scores(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[tuple[str, str]],
    choose: str,
    spec: Training,
    progress: Progress | None = None,
) -> NDArray[np.float64]:
    """Return the log-likelihood of each text given its prefix, (n,), in nats.

    `texts` are (prefix, text), with one blank between them, and `choose` is one of
    task_kinds.PAIR_SCORES. A batch has `spec.batch_tokens` tokens of texts of equal length. Raises
    DataError for a text without tokens, or with more than the model reads, and StageError for a
    score of NaN.
    """
    import torch

    pairs = _Texts(model, tokenizer, [(prefix.rstrip(), text) for prefix, text in texts], spec)
    device, module = next(model.parameters()).device, model.eval()
    logits: Callable[..., torch.Tensor] = text_to_text.label_logits
    if not model.config.is_encoder_decoder:
        from maskpolicy.models.masked_encoder import OwnHead

        module, logits = OwnHead(model, None), OwnHead.label_logits
    batches = pairs.prefixed() if choose == "enc_dec_prefix" else pairs.masked(choose)
    totals, done = np.zeros(len(texts)), 0
    for batch, owners, rows, tokens in batches:
        with torch.inference_mode():
            likelihoods = logits(module, batch.to(device)).float().log_softmax(-1)
            own = likelihoods[torch.from_numpy(rows), torch.from_numpy(tokens)]
        np.add.at(totals, owners, own.cpu().double().numpy())
        if progress:
            done += len(np.unique(owners))
            progress(min(done, len(texts)), len(texts), "")
    check_scores(totals)
    return totals


@dataclass(frozen=True)
class _Texts:
    """The (prefix, text) pairs that a model scores."""

    model: Any
    tokenizer: PreTrainedTokenizerBase
    texts: Sequence[tuple[str, str]]
    spec: Training

    @cached_property
    def specials(self) -> Specials:
        """The special tokens for the model's kind."""
        if self.model.config.is_encoder_decoder:
            return text_to_text.specials(self.tokenizer, self.model)
        return Specials.of_encoder(self.tokenizer)

    @cached_property
    def starts(self) -> list[int]:
        """The decoder's input before the first token to score; [] without a decoder."""
        if self.specials.start is None:
            return []
        first = self.tokenizer.bos_token_id
        return [self.specials.start if first is None else first, self.specials.mask]

    def masked(self, choose: str) -> Iterator[Asked]:
        """Yield copies of texts, each with one token masked; a batch holds equal copies once."""
        specials = self.specials
        whole = [f"{prefix} {text}" if prefix else text for prefix, text in self.texts]
        encoded = self._encoded(whole)
        before, after = specials.ends()
        ends = len(before) + len(after)
        lengths = np.asarray([len(one.ids) + ends for one in encoded])
        # tokens of the text end after the prefix; without a prefix, a token may be empty
        first = np.asarray([len(prefix) or -1 for prefix, _ in self.texts])
        last = [max((end for _, end in one.offsets), default=-1) for one in encoded]
        self._check(lengths, last > first)
        for some in _alike(lengths[:, None], lengths * (lengths - ends), self.spec.batch_tokens):
            ids = np.asarray([(*before, *encoded[place].ids, *after) for place in some])
            stops = np.asarray([[stop for _, stop in encoded[place].offsets] for place in some])
            row, at = np.nonzero(stops > first[some, None])
            places = np.arange(stops.shape[1])
            hidden = places == at[:, None]
            if choose == "within_word_l2r":
                words = np.asarray([_words(encoded[place], whole[place]) for place in some])[row]
                same = words == np.take_along_axis(words, at[:, None], 1)  # no word: NaN
                hidden |= same & (places > at[:, None])
            at = at + len(before)
            copies = ids[row]
            copies[:, len(before) : len(before) + len(places)][hidden] = specials.mask
            keyed = np.concatenate([copies, at[:, None]], axis=1)
            different, of_copy = np.unique(keyed, axis=0, return_inverse=True)
            of_copy = of_copy.ravel()  # a column in NumPy 2.0.0
            size = max(1, self.spec.batch_tokens // copies.shape[1])
            for begin in range(0, len(different), size):
                part = different[begin : begin + size]
                own = (of_copy >= begin) & (of_copy < begin + size)
                batch = self._batch(part[:, :-1], part[:, -1])
                yield batch, some[row[own]], of_copy[own] - begin, ids[row[own], at[own]]

    def _batch(self, sources: Ints, places: Ints) -> Batch:
        """Return a batch with one label a row, at its place in the source or after `starts`."""
        import torch

        read, count = torch.from_numpy(sources), len(self.starts)
        labels = torch.full((len(read), count or read.shape[1]), IGNORE)
        labels[torch.arange(len(read)), count - 1 if count else torch.from_numpy(places)] = 0
        decoder = torch.tensor([self.starts]).expand(len(read), -1) if count else None
        return Batch(read, torch.ones_like(read, dtype=torch.bool), decoder, labels)

    def prefixed(self) -> Iterator[Asked]:
        """Yield the texts as labels of the decoder; the encoder reads their prefixes and a mask."""
        import torch

        specials, starts = self.specials, self.starts
        before = self._encoded(prefix for prefix, _ in self.texts)
        after = self._encoded(f" {text}" if prefix else text for prefix, text in self.texts)
        sources = Ragged.of(([*one.ids, specials.mask] for one in before), np.int64)
        wrapped = specials.wrap(sources, 2**31)
        lengths = np.asarray([len(one.ids) for one in after])
        self._check(np.maximum(wrapped.lengths, lengths + 1), lengths > 0)
        shapes = np.stack([wrapped.lengths, lengths], axis=1)
        for some in _alike(shapes, shapes.sum(1), self.spec.batch_tokens):
            read = torch.from_numpy(wrapped.take(some).padded(specials.pad))
            tokens = torch.tensor([after[place].ids for place in some])
            decoder = torch.cat([torch.tensor([starts] * len(some)), tokens[:, :-1]], dim=1)
            labels = torch.cat([torch.full((len(some), len(starts) - 1), IGNORE), tokens], dim=1)
            batch = Batch(read, torch.ones_like(read, dtype=torch.bool), decoder, labels)
            flat = tokens.flatten().numpy()
            yield batch, np.repeat(some, tokens.shape[1]), np.arange(len(flat)), flat

    def _encoded(self, texts: Iterable[str]) -> list[Any]:
        """Encode texts with words and offsets; the name of a special token is ordinary text."""
        backend = backend_of(self.tokenizer)
        backend.encode_special_tokens = True
        return backend.encode_batch(list(texts), add_special_tokens=False)

    def _check(self, lengths: Ints, has_tokens: NDArray[np.bool_]) -> None:
        limit = self.spec.max_source
        rows = zip(lengths.tolist(), has_tokens, self.texts, strict=True)
        for length, has_token, (_, text) in rows:
            if not has_token:
                raise DataError(
                    f"the text {text!r:.60} has no token that could be scored: leave it out"
                )
            if length > limit:
                raise DataError(
                    f"the text {text!r:.60} has {length} tokens, and the model reads {limit} (its "
                    "positions, or finetune.max_source): shorten it, or leave it out"
                )


def _alike(shapes: Ints, costs: Ints, budget: int) -> Iterator[Ints]:
    """Yield the indices of equal rows of `shapes`, (n, k), whose costs sum up to a budget."""
    for shape in np.unique(shapes, axis=0):
        every = np.flatnonzero((shapes == shape).all(1))
        size = max(1, budget // int(costs[every[0]]))
        yield from np.split(every, range(size, len(every), size))


def _words(encoded: Any, text: str) -> list[float]:
    """Return the number of each token's word: the tokenizer's words, cut at blanks; NaN: none."""
    return [
        np.nan if word is None else word + text.count(" ", 0, begin + 1)
        for word, (begin, _) in zip(encoded.word_ids, encoded.offsets, strict=True)
    ]
