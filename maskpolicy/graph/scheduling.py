"""The order in which a process tries ready stages, and its pauses while others compute them."""

from __future__ import annotations

import heapq
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from maskpolicy.graph.nodes import Stage, is_urgent

_URGENT = 1_000_000  # longer than any path
_ATTEMPTS = 8  # deferred stages that are tried again at a time
_SHORTEST = 0.1  # seconds of a pause
_POLL = 1.0  # seconds between two polls of the store, at least, in a process that computes
_SHARE = 0.1  # the longest pause, as a share of the time waited so far
_POLLS = 20  # the time between polls is at least this many times as long as a poll

_Rank: TypeAlias = tuple[float, int, float, int]  # -priority, -depth, random, place in the order


class Ready:
    """A priority queue of stages whose inputs are settled (see `priorities`).

    Among equal priorities, stages that are deeper in the graph come first, then the order is that
    of the graph. As soon as another process has claimed a stage, stages of equal priority and depth
    are shuffled, so that processes do not all try to claim the same ones.
    """

    def __init__(self, order: Sequence[Stage], users: Mapping[str, Sequence[Stage]]) -> None:
        """Rank the stages of a graph, which are in topological order; the queue is empty."""
        priority = priorities(order, users)
        self._ranks: dict[str, _Rank] = {
            stage.key: (-priority[stage.key], -stage.depth, 0.0, index)
            for index, stage in enumerate(order)
        }
        self._order = order
        self._heap: list[_Rank] = []
        self._queued: set[str] = set()
        self.deferred: list[Stage] = []  # which other processes have claimed
        self._random = random.Random()
        self._is_shuffled = False

    def push(self, stage: Stage) -> None:
        """Add a stage, unless it is in the queue already."""
        if stage.key not in self._queued:
            self._queued.add(stage.key)
            heapq.heappush(self._heap, self._ranks[stage.key])

    def pop(self) -> Stage | None:
        """Remove and return the stage to try next, or None."""
        if not self._heap:
            return None
        stage = self._order[heapq.heappop(self._heap)[-1]]
        self._queued.remove(stage.key)
        return stage

    def defer(self, stage: Stage) -> None:
        """Set aside a stage that another process has claimed."""
        self.deferred.append(stage)
        if not self._is_shuffled:
            self._is_shuffled = True
            for key, (priority, depth, _, index) in self._ranks.items():
                self._ranks[key] = (priority, depth, self._random.random(), index)
            self._heap = [self._ranks[self._order[rank[-1]].key] for rank in self._heap]
            heapq.heapify(self._heap)

    def resume(self) -> None:
        """Add some of the deferred stages again: their claims may have ended."""
        self._random.shuffle(self.deferred)
        for _ in range(min(_ATTEMPTS, len(self.deferred))):
            self.push(self.deferred.pop())


class BackOff:
    """The pauses of a process that waits: they grow with the time since the last progress."""

    def __init__(self, longest: float) -> None:
        """Start with the shortest pause; the `longest` is in seconds."""
        self._longest = longest
        self._since = time.monotonic()

    def reset(self) -> None:
        """Start with the shortest pause again, because there was progress."""
        self._since = time.monotonic()

    def pause(self, poll: float) -> float:
        """Return the seconds of the next pause; `poll` is how many the last poll of the store took.

        Pauses are random, so that waiting processes do not all poll at the same time.
        """
        waited = time.monotonic() - self._since
        longest = max(self._longest, _POLLS * poll)
        return random.uniform(0.5, 1) * min(longest, max(_SHORTEST, _SHARE * waited))


def poll_interval(poll: float) -> float:
    """Return the seconds between two polls of a process that computes; one took `poll` seconds."""
    return max(_POLL, _POLLS * poll)


def priorities(order: Sequence[Stage], users: Mapping[str, Sequence[Stage]]) -> dict[str, int]:
    """Return the priority of each stage by key; stages of higher priority are computed first.

    It is the number of stages on the longest path from the stage to a sink, itself included, or
    the priority of one of its by-products if that is higher. A stage that uses a transient
    artifact has at least the priority of the stage that computes the artifact, so that few of them
    are in the store at a time. Urgent stages and their inputs come before all others.
    """
    lengths: dict[str, int] = {}

    def longest(stage: Stage) -> int:
        if stage.key not in lengths:
            after = [1 + longest(user) for user in users[stage.key]]
            byproducts = [longest(each) for each in stage.byproducts.values() if each.key in users]
            own = _URGENT if is_urgent(stage.kind) else 1
            lengths[stage.key] = max((own, *after, *byproducts))
        return lengths[stage.key]

    found: dict[str, int] = {}
    for stage in order:  # inputs come before their users
        transient = (need.key for need in stage.inputs.values() if need.transient)
        found[stage.key] = max((longest(stage), *(found[key] for key in transient)))
    return found


def makers_of(order: Iterable[Stage]) -> dict[str, list[Stage]]:
    """Return for each by-product's key the stages of `order` that can commit it."""
    makers: dict[str, list[Stage]] = {}
    for stage in order:
        for byproduct in stage.byproducts.values():
            makers.setdefault(byproduct.key, []).append(stage)
    return makers
