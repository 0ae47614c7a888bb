"""Split long texts into windows to train an extractor and to find candidates in passages."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from maskpolicy.core.ragged import Ragged
from maskpolicy.core.types import Passage, Spans, as_spans
from maskpolicy.experiment.budgets import Training
from maskpolicy.models.training.batching import WHOLE, Order, Share, Step

if TYPE_CHECKING:
    from torch import Tensor

    from maskpolicy.models.learned.extractor import Extractor, Texts

_log = logging.getLogger(__name__)
WINDOW = 512  # tokens; longer texts are read in windows that overlap by half
BATCH = 16_384  # padded tokens per forward pass
Candidates: TypeAlias = tuple[Spans, NDArray[np.float32]]
"""Token spans (n, 2), best first, and their scores (n,)."""


@dataclass(frozen=True, eq=False)
class Window:
    """A text or a part of one, cut between words: at most WINDOW tokens unless it is one word."""

    tokens: NDArray[np.int32]  # (t,)
    words: Spans  # (w, 2) tokens
    gold: Spans  # (g, 2) first word and number of further words

    @classmethod
    def of(cls, passage: Passage, begin: int, end: int, gold: Any) -> Window:
        """Return the words [begin, end) of a passage."""
        words = passage.words[begin:end]
        start, stop = words[0, 0], words[-1, 1]
        return cls(passage.tokens[start:stop], as_spans(words - start), as_spans(gold))


def cut(passage: Passage, answers: Spans, max_words: int) -> list[Window]:
    """Return the windows of a passage that hold any of `answers`, (n, 2) tokens.

    Answers of more than `max_words` words, or that no window holds completely, are left out.
    """
    words = passage.words
    first = np.searchsorted(words[:, 0], answers[:, 0])
    more = np.searchsorted(words[:, 1], answers[:, 1]) - first
    fit = more < max_words
    first, more = first[fit], more[fit]
    windows = []
    for begin, end in bounds(words):
        inside = (first >= begin) & (first + more < end)
        if inside.any():
            gold = np.stack([first[inside] - begin, more[inside]], axis=1)
            windows.append(Window.of(passage, begin, end, gold))
    return windows


def cut_all(held: Sequence[tuple[Passage, Spans]], max_words: int) -> list[Window]:
    """Return the windows of passages with answers; log how many have only longer answers."""
    cuts = [cut(passage, answers, max_words) for passage, answers in held]
    if unused := sum(not windows for windows in cuts):
        _log.info(
            f"of {len(cuts)} contexts with an answer, {unused} are unused: their answers exceed "
            f"{max_words} words"
        )
    return [window for windows in cuts for window in windows]


def bounds(words: Spans) -> list[tuple[int, int]]:
    """Return the words [first, end) of windows of at most WINDOW tokens that overlap by half.

    A word longer than WINDOW tokens is a separate window.
    """
    windows, begin, end = [], 0, 0
    while end < len(words):
        end = int(np.searchsorted(words[:, 1], words[begin, 0] + WINDOW, side="right"))
        end = max(end, begin + 1)
        windows.append((begin, end))
        half = int(np.searchsorted(words[:, 0], words[begin, 0] + WINDOW // 2))
        begin = min(max(half, begin + 1), end)
    return windows


@dataclass(frozen=True, eq=False)
class WindowSteps:
    """The training steps of an extractor; a unit is a window."""

    windows: Sequence[Window]
    spec: Training
    share: Share = WHOLE

    @cached_property
    def order(self) -> Order:
        """The order of the windows."""
        lengths = np.asarray([len(window.tokens) for window in self.windows])
        return Order(lengths, self.spec.batch_size, self.spec.seed, share=self.share)

    def __call__(self, number: int) -> Step:
        """Collate the windows of one step."""
        chosen = [self.windows[item] for item, _ in self.order.step(number)]
        lengths = [len(window.tokens) for window in chosen]
        cuts = batches(lengths, self.spec.batch_tokens)
        made = [collate([chosen[i] for i in cut]) for cut in cuts]
        return Step(made, len(chosen), Counter(windows=len(chosen), tokens=sum(lengths)))


def batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Yield batches of indices, by length: one text, or at most `budget` padded tokens."""
    batch: list[int] = []
    for place in np.argsort(lengths, kind="stable").tolist():
        if batch and (len(batch) + 1) * lengths[place] > budget:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def candidates(
    extractor: Extractor, passages: Sequence[Passage], k: int, max_words: int, overlap: bool = False
) -> list[Candidates]:
    """Return the k best spans of up to `max_words` words of each passage; see `extractor.best`.

    Short passages have fewer than k. The batches depend only on the passages.
    """
    import torch

    best: list[Candidates] = [(as_spans([]), np.zeros(0, np.float32))] * len(passages)
    with torch.inference_mode():
        for batch in with_words(passages):
            found = rank(extractor, [passages[place] for place in batch], k, max_words, overlap)
            flat = torch.cat([scores for _, scores in found]).cpu().numpy()  # one wait for a GPU
            ends = np.cumsum([len(own) for own, _ in found])[:-1]
            for place, (own, _), row in zip(batch, found, np.split(flat, ends), strict=True):
                best[place] = own, row
    return best


def with_words(passages: Sequence[Passage]) -> Iterator[list[int]]:
    """Yield the indices of the passages with at least one word, in batches of similar length."""
    places = [place for place, passage in enumerate(passages) if len(passage.words)]
    for batch in batches([len(passages[place].tokens) for place in places], BATCH):
        yield [places[i] for i in batch]


def rank(
    extractor: Extractor, passages: Sequence[Passage], k: int, max_words: int, overlap: bool = False
) -> list[tuple[Spans, Tensor]]:
    """Return the same as `candidates`, with scores that keep their gradient.

    Each passage must have at least one word. The host waits for a GPU once for all passages.
    """
    from maskpolicy.models.learned.extractor import best, span_scores

    texts, logits = read(extractor, passages)
    scores = span_scores(logits, texts.to(logits.device), max_words)
    places, values = best(scores.detach(), k, overlap)
    flat = places[..., 0] * scores.shape[2] + places[..., 1]
    first, last = places[..., 0].cpu().numpy(), places.sum(2).cpu().numpy()
    counts = values.isfinite().sum(1).cpu().numpy()  # they are sorted: these are the first
    chosen = scores.flatten(1).gather(1, flat)
    return [
        (
            as_spans(np.stack([p.words[first[row, :n], 0], p.words[last[row, :n], 1]], axis=1)),
            chosen[row, :n],
        )
        for row, (p, n) in enumerate(zip(passages, counts.tolist(), strict=True))
    ]


def read(extractor: Extractor, passages: Sequence[Passage]) -> tuple[Texts, Tensor]:
    """Return the arrays of passages with at least one word, and their logits (b, t, 2) in float32.

    A long text is read in windows; each token takes its logits from the window whose middle is
    nearest to it.
    """
    import torch

    texts = collate([Window(p.tokens, p.words, as_spans([])) for p in passages])
    device = extractor.embeddings.device
    if texts.tokens.shape[1] <= WINDOW:
        return texts, extractor(texts.tokens.to(device), texts.lengths.to(device)).float()
    logits = torch.zeros(*texts.tokens.shape, 2, device=device)
    for row, passage in enumerate(passages):
        parts = [passage.words[[begin, end - 1], [0, 1]] for begin, end in bounds(passage.words)]
        middle = [int(before[1] + after[0]) // 2 for before, after in pairwise(parts)]
        middle = [0, *middle, len(passage.tokens)]
        for part, start, stop in zip(parts, middle[:-1], middle[1:], strict=True):
            begin, end = part.tolist()
            piece = texts.tokens[row : row + 1, begin:end].to(device)
            given = extractor(piece, torch.tensor([end - begin], device=device)).float()
            logits[row, start:stop] = given[0, start - begin : stop - begin]
    return texts, logits


def collate(windows: Sequence[Window]) -> Texts:
    """Pad windows to the arrays of a batch."""
    import torch

    from maskpolicy.models.learned.extractor import Texts

    def padded(rows: list[NDArray[Any]], value: int) -> Tensor:
        return torch.from_numpy(Ragged.of_arrays(rows).padded(value))

    tokens = padded([window.tokens for window in windows], 0)
    words = padded([window.words - [0, 1] for window in windows], 0)
    gold = padded([window.gold for window in windows], -1)
    lengths = torch.tensor([len(window.tokens) for window in windows])
    counts = torch.tensor([len(window.words) for window in windows])
    return Texts(tokens, lengths, words, counts, gold)
