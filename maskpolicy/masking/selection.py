"""Select the spans that a policy masks: random draws, separate streams, checks, and members."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskpolicy.core.distribution import at_draw, drawn_fields
from maskpolicy.core.errors import ConfigError
from maskpolicy.core.schema import at_progress, scheduled_fields
from maskpolicy.core.seeding import Streams
from maskpolicy.core.types import (
    Denoising,
    LossWeight,
    Passage,
    Policy,
    Spans,
    as_spans,
    unwritable,
)
from maskpolicy.experiment.policy_blocks import member_blocks
from maskpolicy.plugins import hooks
from maskpolicy.plugins.registry import policy_errors, policy_name, statistics_for
from maskpolicy.plugins.statistics import Statistics


def draw(units: Spans, ratio: float, rng: np.random.Generator) -> Spans:
    """Draw floor(ratio * n + u) of n ranges without replacement, u uniform in [0, 1).

    Returns them in their order in `units`.
    """
    count = _count(units, ratio, rng)
    if not count:
        return as_spans([])
    return units.take(np.sort(rng.permutation(len(units))[:count]), axis=0)


def _count(units: Spans, ratio: float, rng: np.random.Generator) -> int:
    return min(len(units), int(ratio * len(units) + rng.random()))


def draw_highest(
    units: Spans, scores: NDArray[Any], ratio: float, rng: np.random.Generator
) -> Spans:
    """Return the floor(ratio * n + u) of n ranges with the highest scores (n,), u as in `draw`.

    Ties are broken at random. The ranges keep their order in `units`.
    """
    count = _count(units, ratio, rng)
    shuffled = rng.permutation(len(units))
    lowest = -np.asarray(scores, np.float64)  # of unsigned numbers, too
    best = shuffled[np.argsort(lowest[shuffled], kind="stable")][:count]
    return units.take(np.sort(best), axis=0)


def draw_weighted(
    units: Spans, weights: NDArray[Any], ratio: float, rng: np.random.Generator
) -> Spans:
    """Draw floor(ratio * n + u) of n ranges one by one, each in proportion to its weight (n,).

    Draws without replacement, u as in `draw`. Ranges of weight 0 are drawn last. The ranges keep
    their order in `units`. Source: the exponential keys of Efraimidis and Spirakis 2006.
    """
    count = _count(units, ratio, rng)
    waits = rng.exponential(size=len(units))
    keys = np.divide(waits, weights, out=np.full(len(units), np.inf), where=weights > 0)
    first = np.lexsort((waits, keys))[:count]
    return units.take(np.sort(first), axis=0)


def fill(units: Spans, budget: int, rng: np.random.Generator) -> Spans:
    """Draw ranges in random order until they hold `budget` tokens or more.

    The last one is drawn whole. Returns them in their order in `units`.
    """
    order = rng.permutation(len(units))
    sizes = (units[:, 1] - units[:, 0])[order]
    before = np.cumsum(sizes) - sizes  # tokens of the ranges drawn before each
    return as_spans(units[np.sort(order[before < budget])])


def choose(weights: Sequence[float], rng: np.random.Generator) -> int:
    """Draw an index with probability proportional to its weight; ConfigError if all are 0."""
    ends = np.cumsum(weights)
    if not len(ends) or not ends[-1] > 0:
        raise ConfigError("weights: add up to 0: give a member a weight above 0")
    return int(ends.searchsorted(rng.random() * ends[-1], side="right"))


def scatter(
    units: Spans, ratio: float, lengths: NDArray[np.float64], rng: np.random.Generator
) -> Spans:
    """Draw spans that cover floor(ratio * n + u) of n adjacent `units`, u uniform in [0, 1).

    `lengths[i]` is the probability of a span of i + 1 units. The last span is cut to the rest of
    the budget. All placements are equally likely, without rejection sampling, so every ratio takes
    bounded time. Spans do not touch each other if there is room.
    """
    budget = _count(units, ratio, rng)
    if not budget:
        return as_spans([])
    drawn = 1 + rng.choice(len(lengths), size=budget, p=lengths)
    ends = np.cumsum(drawn)
    count = int(np.searchsorted(ends, budget)) + 1
    drawn = drawn[:count]
    drawn[-1] -= ends[count - 1] - budget
    first = _starts(rng.permutation(drawn), len(units), rng)
    return np.stack([units[first[0], 0], units[first[1] - 1, 1]], axis=1)


def _starts(
    lengths: NDArray[np.int64], room: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Place ranges of these lengths, in this order, in `room` positions; return starts and ends.

    The free positions go to the gaps before, between and after the ranges; all ways to distribute
    them are equally likely ("stars and bars").
    """
    free, count = room - int(lengths.sum()), len(lengths)
    apart = int(free >= count - 1)  # one position between two ranges, if there is room for all
    free -= apart * (count - 1)
    bars = np.sort(rng.permutation(free + count)[:count]) - np.arange(count)
    starts = bars + np.arange(count) * apart + np.cumsum(lengths) - lengths
    return starts, starts + lengths


_LOWEST = 1e-6  # rate that a weight is computed with
_INTEGERS = {np.dtype(each) for each in "bhilqBHI"}  # NumPy joins int64 and uint64 to floats


def select(
    policy: Policy,
    passages: Sequence[Passage],
    seed: int,
    epochs: Sequence[int],
    progress: float = 0.0,
    statistics: Statistics | None = None,
    examples: Sequence[int] | None = None,
) -> list[Spans]:
    """Return the spans that `policy` masks in each passage, validated as one batch.

    `progress` is the share of the training that is done, in [0, 1), `statistics` are those of the
    corpus, for a policy that reads them, and `examples` the number of each passage's example.
    Raises PluginError with the policy and the passage if a user's `select` fails, and ConfigError
    if the spans are not an integer array of shape (n, 2) with sorted, disjoint, non-empty ranges
    within the passage.
    """
    streams = Streams()
    spans: list[Spans] = []
    more: dict[str, Any] = statistics_for(hooks.SELECT, policy, statistics)
    if "progress" in hooks.SELECT.extra(policy):
        more["progress"] = progress
    drawn = _drawing(policy, progress, seed)
    asks = hooks.EXAMPLE_NUMBER in hooks.SELECT.extra(policy)
    with policy_errors(policy, lambda: f"select of passage {passage.id!r}"):
        for i, (passage, epoch) in enumerate(zip(passages, epochs, strict=True)):
            if asks:
                more[hooks.EXAMPLE_NUMBER] = examples and examples[i]
            rng = streams.at(seed, epoch, passage.id)
            is_empty = not len(passage.tokens)  # policies may read a first word or sentence
            now = drawn(passage, epoch)
            spans.append(as_spans([]) if is_empty else now.select(passage, rng, **more))
    check(spans, passages, policy)
    return spans


def _drawing(
    policy: Any, progress: float, seed: int, purpose: str = "distribution"
) -> Callable[[Passage, int], Any]:
    """Return the function that gives the policy for a passage in an epoch.

    Its fields that follow a schedule have the values of `progress`, and those with a distribution
    have numbers drawn for the passage, always the same in an epoch; `purpose` names their stream.
    """
    now = at_progress(policy, progress)
    names = drawn_fields(now)
    if not names:
        return lambda passage, epoch: now
    streams = Streams()
    return lambda passage, epoch: at_draw(now, names, streams.at(seed, epoch, passage.id, purpose))


def loss_weights(
    policy: Any,
    denoising: Denoising,
    selected: tuple[Sequence[Passage], Sequence[Spans], Sequence[int]],
    seed: int,
    progress: float,
) -> list[Any]:
    """Return the loss weight of each passage: one number, or one for each of its tokens, (t,).

    `selected` are the passages, their spans and their epochs. Raises PluginError if a user's
    `weigh` fails, and ConfigError if it returns a negative weight or no numbers.
    """
    weigh, drawn = hooks.WEIGH.of(policy), _drawing(policy, progress, seed)
    weights: list[Any] = []
    with policy_errors(policy, lambda: f"weigh of passage {passage.id!r}"):
        for passage, spans, epoch in zip(*selected, strict=True):
            now = drawn(passage, epoch)
            own: Any = 1.0
            if weigh is not None and len(passage.tokens):
                own = np.asarray(now.weigh(passage, unwritable(spans)), np.float64)
                is_valid = (np.isfinite(own) & (own >= 0)).all()
                if own.shape not in ((), passage.tokens.shape) or not is_valid:
                    raise ConfigError(
                        f"{policy_name(policy)}, passage {passage.id!r}: weigh must return "
                        f"a number from 0, or one for each of its {len(passage.tokens)} tokens"
                    )
            weights.append(own * _of_objective(denoising.loss_weight, policy, now))
    return weights


def _of_objective(kind: LossWeight, policy: Any, drawn: Any) -> float:
    """Return the weight of a passage by the numbers drawn for it."""
    if kind == "equal":
        return 1.0
    (name,) = drawn_fields(policy)
    rate: float = max(getattr(drawn, name), _LOWEST)
    density: float = 1.0 if kind == "rate" else getattr(policy, name).density(rate)
    return 1 / (rate * density)


def check(batch: Sequence[Spans], passages: Sequence[Passage], policy: Policy) -> None:
    """Raise ConfigError with the policy's name unless each array of token spans is valid."""
    if not batch:
        return
    for spans, passage in zip(batch, passages, strict=True):
        if fault := _fault(spans):
            raise _wrong(policy, passage, fault)
    flat = np.concatenate(batch)
    counts = np.asarray([len(spans) for spans in batch])
    limit = np.repeat([len(passage.tokens) for passage in passages], counts)
    ends = counts.cumsum()
    begin, end = flat.T
    overlaps = np.zeros(len(flat) + 1, bool)
    overlaps[1:-1] = begin[1:] < end[:-1]
    overlaps[ends] = False  # the first span of the next passage
    for what, bad in (
        ("hold an empty or reversed range", begin >= end),
        ("leave the passage", (begin < 0) | (end > limit)),
        ("overlap or are not sorted", overlaps[:-1]),
    ):
        if bad.any():
            at = int(np.searchsorted(ends, np.argmax(bad), side="right"))
            raise _wrong(policy, passages[at], what)


def _fault(spans: Any) -> str:
    """Return what keeps a policy's spans from being an array of ranges; "" if they are one."""
    if type(spans) is not np.ndarray:
        made = "return as_spans([]) for no span" if spans is None else "`as_spans` makes one of it"
        return f"are not a NumPy array but a {type(spans).__name__} ({made})"
    if spans.ndim != 2 or spans.shape[1] != 2:
        return f"are not an array of shape (n, 2) but {spans.shape}"
    return "" if spans.dtype in _INTEGERS else f"are not signed integers but {spans.dtype}"


def _wrong(policy: Policy, passage: Passage, what: str) -> ConfigError:
    return ConfigError(
        f"{policy_name(policy)}, passage {passage.id!r} of {len(passage.tokens)} tokens: "
        f"its spans {what}; select must return sorted, disjoint, non-empty token ranges (n, 2)"
    )


@dataclass(frozen=True, eq=False)
class Selection:
    """The masked spans of n passages, their denoising objectives, and their loss weights."""

    passages: list[Passage]
    spans: list[Spans]
    denoisings: list[Denoising]
    weights: list[Any]  # of the loss of each passage, or of each of its tokens, (t,)


def check_repeats(policy: Policy, first: Selection, again: Selection) -> None:
    """Raise ConfigError if a policy gives other spans or weights for equal arguments."""
    one, other = ([*each.spans, *each.weights] for each in (first, again))
    if not all(map(np.array_equal, one, other)):
        raise ConfigError(
            f"{policy_name(policy)}: `select` masks other tokens when it is called again with the "
            "same passage and rng, or `weigh` gives other weights: draw from `rng` alone, not from "
            "NumPy's or Python's global generator, and keep no state"
        )


@dataclass(frozen=True, eq=False)
class Masker:
    """A policy that selects, or one that draws a member for each passage.

    The leaves are the policies that select. Each has a view of the passages, with its own columns.
    """

    policy: Any
    denoising: Denoising
    members: tuple[Masker, ...] = ()
    level: int = 0  # the number of policies around this one that draw members
    statistics: Statistics | None = None  # of the corpus, for a leaf that reads them

    @classmethod
    def of(
        cls,
        policy: Any,
        denoising: Denoising,
        statistics: Iterable[Statistics | None] = (),
        level: int = 0,
    ) -> Masker:
        """Return the masker of a policy; raises ConfigError for a member that cannot be used.

        `statistics` are those that each leaf reads.
        """
        rest = iter(statistics)  # the members take theirs from it
        members = tuple(
            cls.of(block.policy, block.denoising, rest, level + 1)
            for block in member_blocks(policy, policy_name(policy))
        )
        return cls(policy, denoising, members, level, None if members else next(rest, None))

    @property
    def leaves(self) -> tuple[Masker, ...]:
        """The policies that select, in the order of their blocks."""
        if not self.members:
            return (self,)
        return tuple(leaf for member in self.members for leaf in member.leaves)

    @property
    def weighs(self) -> bool:
        """Whether the losses of passages or tokens have weights."""
        return any(
            leaf.denoising.loss_weight != "equal" or hooks.WEIGH.of(leaf.policy) is not None
            for leaf in self.leaves
        )

    @property
    def follows_progress(self) -> bool:
        """Whether what is masked depends on the progress of the training."""
        own = self.policy
        asks = "progress" in hooks.SELECT.extra(own) | hooks.CHOOSE_MEMBER.extra(own)
        follow = any(member.follows_progress for member in self.members)
        return asks or follow or bool(scheduled_fields(own))

    def select(
        self,
        views: Sequence[Sequence[Passage]],
        items: Sequence[int],
        seed: int,
        epochs: Sequence[int],
        progress: float = 0.0,
        examples: Sequence[int] | None = None,
    ) -> Selection:
        """Return what is masked in the passages `items` in their `epochs`; see `selection.select`.

        `views` holds the same passages for each leaf; members get no `examples`. Raises ConfigError
        as `select` does, and for a drawn member that does not exist.
        """
        passages = [views[0][item] for item in items]
        if not self.members:
            arguments = (seed, epochs, progress, self.statistics, examples)
            spans = select(self.policy, passages, *arguments)
            how, weights = self.denoising, [1.0] * len(items)
            if self.weighs:
                selected = (passages, spans, epochs)
                weights = loss_weights(self.policy, how, selected, seed, progress)
            return Selection(passages, spans, [how] * len(items), weights)
        drawn = self._draw(passages, seed, epochs, progress)
        parts, order, first = [], np.argsort(drawn, kind="stable"), 0
        for number, member in enumerate(self.members):
            at = np.flatnonzero(drawn == number).tolist()
            own = views[first : first + len(member.leaves)]
            first += len(member.leaves)
            rows, turns = [items[i] for i in at], [epochs[i] for i in at]
            parts.append(member.select(own, rows, seed, turns, progress))
        return _merged(parts, np.argsort(order).tolist())

    def _draw(
        self, passages: Sequence[Passage], seed: int, epochs: Sequence[int], progress: float
    ) -> NDArray[np.int64]:
        policy, streams = self.policy, Streams()
        drawn_of = _drawing(policy, progress, seed, f"distribution {self.level}")
        more = dict.fromkeys(hooks.CHOOSE_MEMBER.extra(policy), progress)
        drawn = []
        with policy_errors(policy, lambda: f"choose_member of passage {passage.id!r}"):
            for passage, epoch in zip(passages, epochs, strict=True):
                rng = streams.at(seed, epoch, passage.id, f"member {self.level}")
                number = drawn_of(passage, epoch).choose_member(passage, rng, **more)
                if not isinstance(number, int | np.integer) or not 0 <= number < len(self.members):
                    raise ConfigError(
                        f"{policy_name(policy)}, passage {passage.id!r}: choose_member must "
                        f"return a number from 0 to {len(self.members) - 1}, not {number!r:.60}"
                    )
                drawn.append(int(number))
        return np.asarray(drawn, np.int64)


def _merged(parts: Sequence[Selection], back: Sequence[int]) -> Selection:
    names = ("passages", "spans", "denoisings", "weights")
    columns = [[row for part in parts for row in getattr(part, name)] for name in names]
    return Selection(*([column[i] for i in back] for column in columns))
