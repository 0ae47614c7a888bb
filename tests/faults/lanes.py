"""Trials in several processes at once, all kinds equally far, which end before a deadline."""

from __future__ import annotations

import os
import random
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from types import FrameType

from faults import forks
from faults.campaign import Kind
from faults.kills import Wrong

_LONGEST = 600.0  # seconds of one trial: one that takes longer is wrong
_GRACE = 60.0  # seconds after the deadline in which a process must stop its trial


class _Over(BaseException):
    """The time of a trial is over; no `except Exception` of what it calls keeps this."""


@dataclass
class _Lane:
    """A process that makes one trial after another."""

    process: int
    pipe: Connection
    kind: int | None = None  # of the trial that it makes
    number: int = 0  # of that trial among those of its kind
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
        """Make the trials; those that have not ended by `until` are stopped, and do not count.

        None begins that is known to take longer. `tell` gets a line every minute, and one for each
        trial that was wrong.
        """
        told, told_wrong = time.monotonic(), 0
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
            ready = wait([lane.pipe for lane in busy], timeout=60)
            for lane in busy:
                if lane.pipe not in ready and time.monotonic() > until + _GRACE:
                    os.kill(lane.process, signal.SIGKILL)  # so that its pipe ends
                if lane.pipe in ready:
                    self._take(lane)
            for line in self.wrong[told_wrong:]:
                tell(f"WRONG, {line}")
            told_wrong = len(self.wrong)
        for lane in self.lanes:
            lane.pipe.send(None)
            os.waitpid(lane.process, 0)

    def missing(self) -> list[str]:
        """Return a line for each kind of which there were fewer trials than wanted."""
        return [
            f"{kind.name}: {self.found[index][kind.counts]} of {wanted}"
            for index, (kind, wanted) in enumerate(self.kinds)
            if self.found[index][kind.counts] < wanted
        ]

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
            lane.number = self._begun[lane.kind]
            self._begun[lane.kind] += 1
            lane.pipe.send((lane.kind, lane.number, until))

    def _progress(self, index: int) -> float:
        """Return the share of what is wanted of a kind, with trials under way."""
        kind, wanted = self.kinds[index]
        under_way = sum(lane.kind == index for lane in self.lanes)
        return (self.found[index][kind.counts] + under_way) / wanted if wanted else 1.0

    def _take(self, lane: _Lane) -> None:
        """Add what a trial has given; replace a process that has ended."""
        index = lane.kind
        assert index is not None
        try:
            found, wrong = lane.pipe.recv()
        except EOFError:
            code = os.waitstatus_to_exitcode(os.waitpid(lane.process, 0)[1])
            found = _wrong(self.kinds[index][0])
            wrong = f"{self._name(index, lane.number)}: its process ended with {code}"
            lane.pipe.close()
            new = self._start()
            lane.process, lane.pipe = new.process, new.pipe
        self.found[index] += found
        self.wrong += [wrong] if wrong else []
        self._longest[index] = max(self._longest[index], time.monotonic() - lane.began)
        lane.kind = None

    def _trial(self, index: int, number: int, until: float) -> tuple[Counter[str], str]:
        """Make one trial with random numbers of its own; return what it gives, and what is wrong.

        Both are empty if it has not ended by `until`.
        """
        kind, name = self.kinds[index][0], self._name(index, number)
        last = time.monotonic() + _LONGEST
        try:
            with _ending(min(until, last)):
                return kind.trial(number, random.Random(f"{self.seed} {name}")), ""
        except _Over:
            if until < last:
                return Counter(), ""
            return _wrong(kind), f"{name}: did not end within {_LONGEST:g} s"
        except Wrong as error:
            return _wrong(kind), f"{name}: {error}"
        except Exception:  # noqa: BLE001 - the other trials are still worth making
            return _wrong(kind), f"{name}:\n{traceback.format_exc()}"

    def _name(self, index: int, number: int) -> str:
        return f"{self.kinds[index][0].name} {number}"


def _wrong(kind: Kind) -> Counter[str]:
    return Counter({"wrong": 1, "trials": 1, kind.counts: 1})


@contextmanager
def _ending(until: float) -> Iterator[None]:
    """Raise _Over in the block at a time, and kill the processes that it has started."""

    def end(number: int, frame: FrameType | None) -> None:
        raise _Over

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, max(0.001, until - time.monotonic()))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        forks.kill_all()
