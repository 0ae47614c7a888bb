"""What a training reads: steps in a seeded order that groups items by length, and batches."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maskpolicy.core import hardware
from maskpolicy.core.errors import StageError
from maskpolicy.core.ragged import Ragged
from maskpolicy.core.seeding import generator

if TYPE_CHECKING:
    import torch

IGNORE = -100
"""Label of positions that the loss ignores, as in PyTorch and Transformers."""
BATCH = 64  # inputs of a batch for answers

Loss = Callable[[Any, Any], "tuple[torch.Tensor, int]"]
"""loss(module, micro-batch) -> (sum over units, number of units); mostly, a unit is a token."""
Progress = Callable[[int, int, str], None]
"""progress(done, total, note): called before the first step and after each step."""


@dataclass(frozen=True)
class Step:
    """Data of one optimizer step, or of a process's share of it."""

    batches: Sequence[Any]  # each has .to(device)
    units: float  # over all micro-batches; the loss is divided by it
    work: Mapping[str, int] = field(default_factory=dict)  # keys: see WORK
    tokens: int = 0  # that the model reads and writes, without padding; 0: not counted


# what steps count, see Step.work
WORK = (
    *("passages", "passages_without_span", "spans", "hidden_tokens", "source_tokens"),
    *("target_tokens", "spans_without_sentinel", "spans_without_room", "passage_tokens"),
    *("cut_tokens", "examples", "windows", "tokens", "episodes"),
)


@dataclass(frozen=True)
class Share:
    """The part of each step that one of several processes computes; by default the whole step."""

    rank: int = 0
    ranks: int = 1

    def rows(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows of this process, sorted, for rows of `lengths`, (n,) in tokens.

        Rows are dealt from the longest to the shortest, each to the process with the fewest tokens
        so far, so that processes get similar numbers of tokens. The first one gets a row if n > 0.
        """
        loads = [(0, rank) for rank in range(self.ranks)]
        own = []
        for row in np.argsort(-lengths, kind="stable").tolist():
            tokens, rank = loads[0]
            heapq.heapreplace(loads, (tokens + int(lengths[row]), rank))
            if rank == self.rank:
                own.append(row)
        return np.sort(np.asarray(own, np.int64))


WHOLE = Share()


@dataclass(frozen=True, eq=False)
class Order:
    """The items of each optimizer step, as a function of (seed, step) alone.

    Each epoch is a permutation of all items. Within windows of `window` steps, items are sorted by
    length, split into steps, and the steps are shuffled. This keeps padding small, and each item
    still occurs once per epoch.
    """

    lengths: NDArray[np.int64]  # (n,) tokens of each item
    size: int  # items per step
    seed: int
    window: int = 32  # steps
    share: Share = WHOLE
    most: int | None = None  # tokens that a training reads of an item; None: all

    def step(self, number: int) -> list[tuple[int, int]]:
        """Return the (item, epoch) pairs of `share` in optimizer step `number`, from 0."""
        turns = np.arange(number * self.size, (number + 1) * self.size)
        epochs, places = divmod(turns, len(self.lengths))
        pairs: list[tuple[int, int]] = []
        for epoch in np.unique(epochs).tolist():
            items = self._epoch(epoch)[places[epochs == epoch]]
            pairs += [(item, epoch) for item in items.tolist()]
        if self.share.ranks == 1:
            return pairs
        lengths = np.minimum(self.lengths[[item for item, _ in pairs]], self.most or np.inf)
        return [pairs[row] for row in self.share.rows(lengths)]

    def items(self, first: int, until: int) -> NDArray[np.int64]:
        """Return the items, (k,), ascending, that all shares read in steps `first` to `until`."""
        begin, end, count = first * self.size, until * self.size, len(self.lengths)
        epochs = range(begin // count, -(-end // count))
        read = [self._epoch(e)[max(0, begin - e * count) : end - e * count] for e in epochs]
        return np.unique(np.concatenate(read))

    def steps_of(self, items: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        """Return the step, (k,), that holds each of `items`, (k,), in an epoch."""
        places = np.argsort(self._epoch(epoch))[items]  # a permutation and its inverse
        return np.asarray((epoch * len(self.lengths) + places) // self.size)

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
            steps.append(rows[rng.permutation(len(rows))].ravel())
        return np.concatenate([*steps, items[whole:]])


@dataclass(frozen=True, eq=False)
class Pair:
    """One source and its target, both with special tokens. An empty target adds no loss.

    For a text-to-text model the target holds token ids. Otherwise it holds labels: one for each
    source token (IGNORE: no loss), a class (or a number), or the start and end of a span.
    """

    source: NDArray[np.int32]
    target: NDArray[Any]
    excluded: NDArray[np.bool_] | None = None  # (len(source),) True: not in the encoder's input


@dataclass(frozen=True, eq=False)
class Pairs(Sequence[Pair]):
    """A sequence of pairs, stored as flat arrays."""

    sources: Ragged
    targets: Ragged
    excluded: Ragged | None = None  # of source tokens
    weights: Ragged | None = None  # of the losses of target tokens; None: 1
    # of target tokens, for replaced-token detection: a number in [0, 1) that decides what the
    # generator writes instead of a token, and the weight of telling whether it did
    draws: Ragged | None = None
    detection: Ragged | None = None

    @classmethod
    def of(cls, pairs: Sequence[Pair]) -> Pairs:
        """Pack a sequence of pairs."""
        flags = [np.zeros(len(p.source), bool) if p.excluded is None else p.excluded for p in pairs]
        sources = Ragged.of((pair.source for pair in pairs), np.int32)
        targets = Ragged.of((pair.target for pair in pairs), np.int32)
        return cls(sources, targets, Ragged.of(flags, bool))

    def take(self, rows: NDArray[np.int64]) -> Pairs:
        """Return the pairs at `rows`, (k,), in that order."""
        more = (self.excluded, self.weights, self.draws, self.detection)
        taken = (None if own is None else own.take(rows) for own in more)
        return Pairs(self.sources.take(rows), self.targets.take(rows), *taken)

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, index: Any) -> Any:
        excluded = None if self.excluded is None else self.excluded[index]
        return Pair(self.sources[index], self.targets[index], excluded)


@dataclass(frozen=True, eq=False)
class Batch:
    """Tensors of one micro-batch of b pairs, padded to n source tokens and m target tokens.

    With `in_buckets`, all shapes are those of buckets (see `bucket`).
    """

    source: torch.Tensor  # (b, n) ids
    seen: torch.Tensor  # (b, n) bool, False at padding
    decoder: torch.Tensor | None  # (b, m) decoder input ids; None without a decoder
    labels: torch.Tensor  # (b, m), IGNORE at padding
    excluded: torch.Tensor | None = None  # (b, n) bool
    weights: torch.Tensor | None = None  # (b, m) of the losses of the labels; None: 1
    draws: torch.Tensor | None = None  # (b, m), see `Pairs`
    detection: torch.Tensor | None = None  # (b, m)
    in_buckets: bool = False
    has_types: bool = False  # see `Specials`

    @cached_property
    def places(self) -> torch.Tensor:
        """Where the k labels are in the flattened labels, (k,); those of a bucket end in IGNORE."""
        import torch

        is_label = (self.labels != IGNORE).flatten()
        places, others = (each.nonzero()[:, 0] for each in (is_label, ~is_label))
        extra = bucket(len(places)) - len(places) if self.in_buckets else 0
        return torch.cat([places, others[:extra]])

    @property
    def targets(self) -> torch.Tensor:
        """The k labels, (k,), row by row; see `places`."""
        return self.labels.flatten()[self.places]

    @property
    def label_weights(self) -> torch.Tensor | None:
        """The weights of the k labels, (k,), row by row; None: 1."""
        return None if self.weights is None else self.weights.flatten()[self.places]

    def labelled(self, states: torch.Tensor) -> torch.Tensor:
        """Return the rows of states, (b, m, d), that have a label, (k, d)."""
        return states.flatten(0, 1).index_select(0, self.places)

    @cached_property
    def mask(self) -> torch.Tensor | None:
        """`seen`, or None if nothing is padded: attention without a mask has the fastest kernel."""
        return None if bool(self.seen.all()) else self.seen

    @property
    def attended(self) -> torch.Tensor | None:
        """`mask` as integers, which some encoders need."""
        return None if self.mask is None else self.mask.long()

    @property
    def kept(self) -> torch.Tensor:
        """The tokens that the encoder sees, (b, n) bool."""
        return self.seen if self.excluded is None else self.seen & ~self.excluded

    @cached_property
    def packing(self) -> Packing:
        """The input without the excluded tokens."""
        import torch

        kept = self.kept
        lengths = kept.sum(1)
        width = int(lengths.max())
        width = min(bucket(width), kept.shape[1]) if self.in_buckets else width
        position = torch.argsort(~kept, dim=1, stable=True)[:, :width]
        visible = torch.arange(width, device=kept.device) < lengths[:, None]
        first = torch.arange(len(kept), device=kept.device)[:, None] * width
        return Packing(visible, position, kept, first + (kept.cumsum(1) - 1).clamp(min=0))

    def to(self, device: torch.device) -> Batch:
        """Return a copy of the batch on `device`.

        The host never waits for a GPU: memory is pinned, and properties that depend on values are
        computed before.
        """
        moved = Batch(*(_moved(getattr(self, field.name), device) for field in fields(self)))
        cache = vars(moved)  # of the cached properties
        cache["places"], cache["mask"] = (_moved(t, device) for t in (self.places, self.mask))
        if self.excluded is not None:
            cache["packing"] = Packing(*(_moved(tensor, device) for tensor in self.packing))
        return moved


class Packing(NamedTuple):
    """A batch without its excluded tokens: b rows of up to k tokens."""

    visible: torch.Tensor  # (b, k) bool, False at padding
    position: torch.Tensor  # (b, k) in the source
    kept: torch.Tensor  # (b, n) bool, False at padding and excluded tokens
    place: torch.Tensor  # (b, n) in the flattened (b, k), of the kept tokens

    def scattered(self, states: torch.Tensor, full: torch.Tensor) -> torch.Tensor:
        """Return `full`, (b, n, d), with the states, (b, k, d), of the visible tokens."""
        own = states.flatten(0, 1).index_select(0, self.place.flatten()).view_as(full)
        return own.to(full.dtype).where(self.kept[..., None], full)


def _moved(tensor: Any, device: torch.device) -> Any:
    if tensor is None or isinstance(tensor, bool):
        return tensor
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def bucket(count: int, least: int = 8) -> int:
    """Return the smallest size of a bucket that holds `count` rows, tokens or labels.

    Sizes are multiples of `least`, four between two powers of two: a dozen from 80 to 512. So a
    compiled loss sees few shapes, and a tenth of what it computes is padding.
    """
    step = max(least, 1 << max(0, (count - 1).bit_length() - 3))
    return -(-count // step) * step


def micro_batches(
    pairs: Pairs, budget: int, decodes: bool, in_buckets: bool = False
) -> list[Pairs]:
    """Split the pairs of one step, sorted by length, into chunks of up to `budget` padded tokens.

    Targets count if a decoder reads them. A longer pair gets a chunk of its own. Pairs with an
    empty target are dropped: they count towards the batch size, but add no loss.
    """
    targets, sources = pairs.targets.lengths, pairs.sources.lengths
    order = np.lexsort((sources, targets))
    order = order[targets[order] > 0]
    read = targets * decodes

    def tokens(rows: int, source: int, target: int) -> int:
        if in_buckets:
            rows, source, target = bucket(rows, 1), bucket(int(source)), bucket(int(target))
        return rows * (source + target)

    if tokens(len(order), sources.max(initial=0), read.max(initial=0)) <= budget:
        return [pairs.take(order)] if len(order) else []
    starts: list[int] = []
    widest = 0
    sizes = zip(sources[order].tolist(), read[order].tolist(), strict=True)
    for place, (source, target) in enumerate(sizes):
        widest = max(widest, source)
        if not starts or tokens(place + 1 - starts[-1], widest, target) > budget:
            starts.append(place)
            widest = source
    return [pairs.take(rows) for rows in np.split(order, starts[1:]) if len(rows)]


def collate(
    pairs: Pairs, pad: int, start: int | None, limits: tuple[int, int] | None = None
) -> Batch:
    """Pad pairs to a batch; `start` is None without a decoder, see `shifted`.

    With `limits`, the most tokens of a source and of a target, its shapes are those of buckets.
    Further rows repeat the first one, without labels.
    """
    import torch

    count, sizes = len(pairs), [0, 0]
    if limits is not None:
        lengths = (int(each.lengths.max()) for each in (pairs.sources, pairs.targets))
        sizes = [min(bucket(n), most) for n, most in zip(lengths, limits, strict=True)]
        pairs = pairs.take(np.r_[:count, np.zeros(bucket(count, 1) - count, np.int64)])
    source, labels = pairs.sources.padded(pad, sizes[0]), pairs.targets.padded(IGNORE, sizes[1])
    decoder = None if start is None else shifted(labels, pad, start)
    labels[count:] = IGNORE
    seen = np.arange(source.shape[1]) < pairs.sources.lengths[:, None]
    excluded = None
    if pairs.excluded is not None and pairs.excluded.flat.any():
        excluded = pairs.excluded.padded(False, source.shape[1]).astype(bool)
    of_targets = (pairs.weights, pairs.draws, pairs.detection)
    more = [None if own is None else own.padded(0, labels.shape[1]) for own in of_targets]
    for array in more:
        if array is not None:
            array[count:] = 0
    arrays = (source, seen, decoder, labels, excluded, *more)
    tensors: Any = (None if array is None else torch.from_numpy(array) for array in arrays)
    return replace(Batch(*tensors), in_buckets=limits is not None)


def shifted(labels: NDArray[np.int64], pad: int, start: int) -> NDArray[np.int64]:
    """Return the decoder's input, (b, m): the labels shifted right, beginning with `start`."""
    inputs = np.full_like(labels, start)
    inputs[:, 1:] = np.where(labels[:, :-1] == IGNORE, pad, labels[:, :-1])
    return inputs


def rows_for(tokens: int) -> int:
    """Return how many inputs of up to `tokens`, with their output, make a batch for answers.

    A GPU gets as many as its free memory holds at a quarter of a megabyte for a token: twice what
    BART-large's attention stores of it.
    """
    if not hardware.is_cuda():
        return BATCH
    return min(16 * BATCH, max(BATCH, hardware.free_gpu_memory() // (tokens << 18)))


def check_scores(scores: NDArray[Any]) -> None:
    """Raise StageError if a score of a model is not a number."""
    if np.isnan(scores).any():
        raise StageError("a score of the model is not a number: its weights may be damaged")


def in_batches(
    model: Any,
    order: NDArray[np.int64],
    compute: Callable[[NDArray[np.int64]], None],
    size: int = BATCH,
    progress: Progress | None = None,
) -> None:
    """Call `compute` with the indices of each batch: `size` of `order`, which sorts by length.

    The model is set to evaluation and computes without gradients. If memory runs out, this batch
    and all later ones have half the size.
    """
    import torch
    from accelerate.utils.memory import clear_device_cache

    model.eval()
    begin = 0
    while begin < len(order):
        chosen = order[begin : begin + size]
        try:
            with torch.inference_mode():
                compute(chosen)
        except Exception as error:
            if len(chosen) == 1 or not hardware.ran_out(error):
                raise
            size = len(chosen) // 2
        else:
            begin += len(chosen)
            if progress:
                progress(begin, len(order), "")
            continue
        clear_device_cache(garbage_collection=True)  # here, the failed batch is garbage
