"""Trials in several processes at once, so that all kinds are equally far when the time is over."""

from __future__ import annotations

import os
import random
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait

from faults.campaign import Kind
from faults.kills import Wrong


@dataclass
class _Lane:
    """A process that makes one trial after another."""

    process: int
    pipe: Connection
    kind: int | None = None  # of the trial that it makes
    began: float = 0.0


class Lanes:
    """Some processes, and what their trials have given so far."""

    def __init__(self, kinds: Sequence[tuple[Kind, int]], count: int, seed: int) -> None:
        """Start `count` processes for the kinds of trials, each with the number that is wanted."""
        self.kinds, self.seed = kinds, seed
        self.found = [Counter[str]() for _ in kinds]
        self.wrong: list[str] = []
        self._begun = [0] * len(kinds)
        self._longest = [0.0] * len(kinds)  # seconds
        self.lanes: list[_Lane] = []
        for _ in range(count):
            self.lanes.append(self._start())

    def run(self, until: float, tell: Callable[[str], object] = lambda line: None) -> None:
        """Make the trials; none begins that would not end by `until`, as far as that is known.

        `tell` gets a line every minute.
        """
        told = time.monotonic()
        while True:
            if time.monotonic() > told + 60:
                told = time.monotonic()
                shares = [self._progress(index) for index in range(len(self.kinds))]
                tell(
                    f"{min(shares):.0%} to {max(shares):.0%} of each kind, {len(self.wrong)} wrong"
                )
            for lane in self.lanes:
                if lane.kind is None:
                    self._give(lane, until)
            busy = [lane for lane in self.lanes if lane.kind is not None]
            if not busy:
                break
            ready = wait([lane.pipe for lane in busy])
            for lane in busy:
                if lane.pipe in ready:
                    self._take(lane)
        for lane in self.lanes:
            lane.pipe.send(None)
            os.waitpid(lane.process, 0)

    def missing(self) -> int:
        """Return the number of kinds of which there were fewer trials than wanted."""
        return sum(self._progress(index) < 1 for index in range(len(self.kinds)))

    def _start(self) -> _Lane:
        ours, theirs = Pipe()
        child = os.fork()
        if child:
            theirs.close()
            return _Lane(child, ours)
        for lane in self.lanes:
            lane.pipe.close()
        ours.close()
        try:
            while (order := theirs.recv()) is not None:
                theirs.send(self._trial(*order))
        except EOFError:  # the campaign was ended
            pass
        finally:
            os._exit(0)

    def _give(self, lane: _Lane, until: float) -> None:
        """Give a process a trial of the kind that is furthest behind, if there is one."""
        taken = {self.kinds[each.kind][0].place for each in self.lanes if each.kind is not None}
        now = time.monotonic()
        open_kinds = [
            index
            for index, (kind, _) in enumerate(self.kinds)
            if self._progress(index) < 1
            and (not kind.place or kind.place not in taken)
            and now + self._longest[index] < until
        ]
        if open_kinds:
            lane.kind, lane.began = min(open_kinds, key=self._progress), now
            lane.pipe.send((lane.kind, self._begun[lane.kind]))
            self._begun[lane.kind] += 1

    def _progress(self, index: int) -> float:
        """Return the share of what is wanted of a kind, with trials under way."""
        kind, wanted = self.kinds[index]
        under_way = sum(lane.kind == index for lane in self.lanes)
        return (self.found[index][kind.counts] + under_way) / wanted if wanted else 1.0

    def _take(self, lane: _Lane) -> None:
        """Add what a trial has given."""
        index = lane.kind
        assert index is not None
        found, wrong = lane.pipe.recv()
        self.found[index] += found
        self.wrong += [wrong] if wrong else []
        self._longest[index] = max(self._longest[index], time.monotonic() - lane.began)
        lane.kind = None

    def _trial(self, index: int, number: int) -> tuple[Counter[str], str]:
        """Make one trial with random numbers of its own."""
        kind = self.kinds[index][0]
        name, wrong = f"{kind.name} {number}", Counter({"wrong": 1, "trials": 1, kind.counts: 1})
        try:
            return kind.trial(number, random.Random(f"{self.seed} {name}")), ""
        except Wrong as error:
            return wrong, f"{name}: {error}"
        except Exception:  # noqa: BLE001 - the other trials are still worth making
            return wrong, f"{name}:\n{traceback.format_exc()}"
