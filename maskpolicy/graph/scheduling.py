"""Which stage a process takes next, and how long it waits when others are at all that is ready."""

from __future__ import annotations

import heapq
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from maskpolicy.graph.nodes import Stage, is_urgent

_URGENT = 1_000_000  # more than any path has stages
_ATTEMPTS = 8  # of the claims of others that are tried again at a time
_SHORTEST = 0.1  # seconds of a pause
_OFTEN = 1.0  # seconds: a process that computes looks at what others did at most so often
_SHARE = 0.1  # of the time waited so far that one pause may take
_LOOKS = 20  # looking around takes at most one in so many seconds

_Place: TypeAlias = tuple[float, int, float, int]


class Ready:
    """The stages whose inputs are settled; the one on the longest path to a target comes first.

    A stage that uses a transient artifact comes before stages that make another one, so that few
    of them are in the store at a time. Otherwise the order is that of the graph, until a stage
    turns out to be claimed by another process: then this process shuffles stages of equal rank, so
    that several processes do not all try to claim the same ones.
    """

    def __init__(self, order: Sequence[Stage], users: Mapping[str, Sequence[Stage]]) -> None:
        """Rank the stages of a graph, in topological order; none is ready yet."""
        pressing = pressure(order, users)
        self._places: dict[str, _Place] = {
            stage.key: (-pressing[stage.key], -stage.depth, 0.0, index)
            for index, stage in enumerate(order)
        }
        self._order = order
        self._heap: list[_Place] = []
        self._queued: set[str] = set()
        self.deferred: list[Stage] = []  # other processes have claimed them
        self._random = random.Random()
        self._is_shuffled = False

    def push(self, stage: Stage) -> None:
        """Add a stage; nothing happens if it is there."""
        if stage.key not in self._queued:
            self._queued.add(stage.key)
            heapq.heappush(self._heap, self._places[stage.key])

    def pop(self) -> Stage | None:
        """Remove and return the stage to try next, or None."""
        if not self._heap:
            return None
        stage = self._order[heapq.heappop(self._heap)[-1]]
        self._queued.remove(stage.key)
        return stage

    def defer(self, stage: Stage) -> None:
        """Set a stage aside that another process has claimed."""
        self.deferred.append(stage)
        if not self._is_shuffled:
            self._is_shuffled = True
            for key, (rank, depth, _, index) in self._places.items():
                self._places[key] = (rank, depth, self._random.random(), index)
            self._heap = [self._places[self._order[place[-1]].key] for place in self._heap]
            heapq.heapify(self._heap)

    def resume(self) -> None:
        """Add some of the deferred stages again, in case their claims have ended."""
        self._random.shuffle(self.deferred)
        for _ in range(min(_ATTEMPTS, len(self.deferred))):
            self.push(self.deferred.pop())


class BackOff:
    """Pauses of a process that waits: they grow with the time since something happened."""

    def __init__(self, longest: float) -> None:
        """Start with the shortest pause; the `longest` is in seconds."""
        self._longest = longest
        self._since = time.monotonic()

    def reset(self) -> None:
        """Begin with short pauses again."""
        self._since = time.monotonic()

    def pause(self, look: float) -> float:
        """Return the seconds of the next pause; `look` is how long looking around took.

        Pauses are random, so that processes that wait for one another do not act in step.
        """
        waited = time.monotonic() - self._since
        longest = max(self._longest, _LOOKS * look)
        return random.uniform(0.5, 1) * min(longest, max(_SHORTEST, _SHARE * waited))


def looks_after(look: float) -> float:
    """Return the seconds between two looks of a process that computes; one took `look` seconds."""
    return max(_OFTEN, _LOOKS * look)


def pressure(order: Sequence[Stage], users: Mapping[str, Sequence[Stage]]) -> dict[str, int]:
    """Return how pressing each stage is: the stages on the longest path from it, itself included.

    A stage is as pressing as what it makes on its way, and as the transient artifacts that it uses.
    Urgent stages and their inputs come before all others.
    """
    ranks: dict[str, int] = {}

    def rank(stage: Stage) -> int:
        if stage.key not in ranks:
            after = [1 + rank(user) for user in users[stage.key]]
            made = [rank(each) for each in stage.byproducts.values() if each.key in users]
            own = _URGENT if is_urgent(stage.kind) else 1
            ranks[stage.key] = max((own, *after, *made))
        return ranks[stage.key]

    pressing: dict[str, int] = {}
    for stage in order:  # inputs come before their users
        transient = (need.key for need in stage.inputs.values() if need.transient)
        pressing[stage.key] = max((rank(stage), *(pressing[key] for key in transient)))
    return pressing


def makers_of(order: Iterable[Stage]) -> dict[str, list[Stage]]:
    """Return for each key the stages of `order` that can make its artifact on their way."""
    makers: dict[str, list[Stage]] = {}
    for stage in order:
        for made in stage.byproducts.values():
            makers.setdefault(made.key, []).append(stage)
    return makers
