"""The seeded, length-bucketed batch order, and the arrays of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maskpolicy.masking import generator

if TYPE_CHECKING:
    import torch

IGNORE = -100
"""The label of a position without loss (PyTorch's and Transformers' convention)."""


@dataclass(frozen=True, eq=False)
class Order:
    """Which items make up each optimizer step: a function of (seed, step) alone.

    Every epoch is a permutation; within windows of `window` steps, items of like length meet in a
    step and the steps are shuffled, so that padding is small and every item comes once per epoch.
    """

    lengths: NDArray[np.int64]  # (n,) tokens of each item
    size: int  # items per step
    seed: int
    window: int = 32  # steps

    def step(self, number: int) -> list[tuple[int, int]]:
        """Return the (item, epoch) pairs of optimizer step `number`, counted from 0."""
        count = len(self.lengths)
        places = range(number * self.size, (number + 1) * self.size)
        return [
            (int(self._epoch(place // count)[place % count]), place // count) for place in places
        ]

    @lru_cache(maxsize=2)  # noqa: B019 (an Order lives as long as its stage)
    def _epoch(self, epoch: int) -> NDArray[np.int64]:
        rng = generator(self.seed, epoch, "", "order")
        items = rng.permutation(len(self.lengths))
        whole = len(items) - len(items) % self.size
        steps: list[NDArray[np.int64]] = []
        for begin in range(0, whole, self.window * self.size):
            window = items[begin : min(begin + self.window * self.size, whole)]
            window = window[np.argsort(self.lengths[window], kind="stable")]
            rows = window.reshape(-1, self.size)
            steps.extend(rows[rng.permutation(len(rows))])
        return np.concatenate([*steps, items[whole:]])


@dataclass(frozen=True, eq=False)
class Pair:
    """Token ids of one source and target, special tokens included; an empty target adds no loss."""

    source: NDArray[np.int32]
    target: NDArray[np.int32]
    excluded: NDArray[np.bool_] | None = None  # (len(source),) what the encoder does not see


@dataclass(frozen=True, eq=False)
class Batch:
    """Arrays of one micro-batch: b pairs, n source tokens, m target tokens."""

    source: torch.Tensor  # (b, n) ids
    seen: torch.Tensor  # (b, n) bool, False at padding
    decoder: torch.Tensor  # (b, m) decoder input ids
    labels: torch.Tensor  # (b, m) ids, IGNORE at padding
    excluded: torch.Tensor | None = None  # (b, n) bool

    def to(self, device: torch.device) -> Batch:
        """Return the batch on another device."""
        fields: dict[str, Any] = {
            k: v if v is None else v.to(device) for k, v in vars(self).items()
        }
        return Batch(**fields)


def micro_batches(pairs: Sequence[Pair], budget: int) -> list[list[Pair]]:
    """Cut the pairs of one step into runs of like length of at most `budget` padded tokens.

    Pairs without a target are left out: they keep their place in the step and add no loss.
    """
    rows = sorted(
        (pair for pair in pairs if len(pair.target)),
        key=lambda pair: (len(pair.target), len(pair.source)),
    )
    cuts: list[list[Pair]] = []
    widest = 0
    for pair in rows:
        widest = max(widest, len(pair.source))
        if cuts and (len(cuts[-1]) + 1) * (widest + len(pair.target)) <= budget:
            cuts[-1].append(pair)
        else:
            cuts.append([pair])
            widest = len(pair.source)
    return cuts


def collate(pairs: Sequence[Pair], pad: int, start: int) -> Batch:
    """Pad pairs to a batch; the decoder's input is the target shifted right behind `start`."""
    import torch

    source = _padded([pair.source for pair in pairs], pad)
    labels = _padded([pair.target for pair in pairs], IGNORE)
    decoder = np.full_like(labels, start)
    decoder[:, 1:] = np.where(labels[:, :-1] == IGNORE, pad, labels[:, :-1])
    lengths = np.asarray([len(pair.source) for pair in pairs])
    seen = np.arange(source.shape[1]) < lengths[:, None]
    excluded = None
    if any(pair.excluded is not None and pair.excluded.any() for pair in pairs):
        rows = [np.zeros(len(p.source), bool) if p.excluded is None else p.excluded for p in pairs]
        excluded = torch.from_numpy(_padded(rows, 0).astype(bool))
    plain = [torch.from_numpy(array) for array in (source, seen, decoder, labels)]
    return Batch(plain[0], plain[1], plain[2], plain[3], excluded)


def _padded(rows: Sequence[NDArray], value: int) -> NDArray[np.int64]:
    width = max(map(len, rows), default=0)
    table = np.full((len(rows), width), value, np.int64)
    for index, row in enumerate(rows):
        table[index, : len(row)] = row
    return table
