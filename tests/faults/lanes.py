"""Trials in several processes at once, all kinds equally far, which end before a deadline."""

from __future__ import annotations

import pickle
import random
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from faults import forks
from faults.campaign import Kind
from faults.kills import Wrong

_LONGEST = 600.0  # seconds of one trial: one that takes longer is wrong


@dataclass
class _Trial:
    """A trial under way."""

    kind: int
    name: str
    answer: Path
    began: float


class Lanes:
    """The kinds of trials, some of them under way, and what they have given so far."""

    def __init__(self, kinds: Sequence[tuple[Kind, int]], count: int, seed: int) -> None:
        """Take the kinds, each with the number that is wanted, for `count` trials at a time."""
        self.kinds, self.count, self.seed = kinds, count, seed
        self.found = [Counter[str]() for _ in kinds]
        self.wrong: list[str] = []
        self._begun = [0] * len(kinds)
        self._longest = [0.0] * len(kinds)  # seconds
        self._running: dict[int, _Trial] = {}  # by process

    def run(self, until: float, tell: Callable[[str], object] = lambda line: None) -> None:
        """Make the trials; those that have not ended by `until` are stopped, and do not count.

        None begins that is known to take longer. `tell` gets a line every minute, and one for each
        trial that was wrong.
        """
        told, told_wrong = time.monotonic(), 0
        with TemporaryDirectory() as folder:
            while self._begin(until, Path(folder)):
                time.sleep(0.01)
                for child in [*self._running]:
                    self._look(child, until)
                if time.monotonic() > told + 60:
                    told = time.monotonic()
                    shares = [self._progress(index) for index in range(len(self.kinds))]
                    tell(
                        f"{min(shares):.0%} to {max(shares):.0%} of each kind, "
                        f"{len(self.wrong)} wrong"
                    )
                for line in self.wrong[told_wrong:]:
                    tell(f"WRONG, {line}")
                told_wrong = len(self.wrong)

    def missing(self) -> list[str]:
        """Return a line for each kind of which there were fewer trials than wanted."""
        return [
            f"{kind.name}: {self.found[index][kind.counts]} of {wanted}"
            for index, (kind, wanted) in enumerate(self.kinds)
            if self.found[index][kind.counts] < wanted
        ]

    def _begin(self, until: float, folder: Path) -> bool:
        """Begin trials of the kinds that are furthest behind; return whether any is under way."""
        while len(self._running) < self.count and (waiting := self._waiting(until)):
            index = min(waiting, key=self._progress)
            kind, number = self.kinds[index][0], self._begun[index]
            self._begun[index] += 1
            trial = _Trial(index, f"{kind.name} {number}", folder / f"{index}-{number}", _now())
            rng = random.Random(f"{self.seed} {trial.name}")
            call = partial(_answer, kind, number, rng, trial.answer)
            self._running[forks.start(call, trial.answer.with_suffix(".said"))] = trial
        return bool(self._running)

    def _waiting(self, until: float) -> list[int]:
        taken = {self.kinds[trial.kind][0].place for trial in self._running.values()}
        return [
            index
            for index, (kind, _) in enumerate(self.kinds)
            if self._progress(index) < 1
            and (not kind.place or kind.place not in taken)
            and _now() + self._longest[index] < until
        ]

    def _progress(self, index: int) -> float:
        """Return the share of what is wanted of a kind, with trials under way."""
        kind, wanted = self.kinds[index]
        under_way = sum(trial.kind == index for trial in self._running.values())
        return (self.found[index][kind.counts] + under_way) / wanted if wanted else 1.0

    def _look(self, child: int, until: float) -> None:
        """Add what a trial has given, if it has ended; stop it when its time is over."""
        trial, now = self._running[child], _now()
        has_ended = forks.has_ended(child)
        if not has_ended and now < min(until, trial.began + _LONGEST):
            return
        del self._running[child]
        kind, wrong = self.kinds[trial.kind][0], f"did not end within {_LONGEST:g} s"
        found = Counter({"wrong": 1, "trials": 1, kind.counts: 1})
        if has_ended:
            wrong = f"its process ended with {forks.wait(child)}"
            if trial.answer.exists():
                given, wrong = pickle.loads(trial.answer.read_bytes())
                found = found if wrong else given
        else:
            forks.kill(child)
            if now >= until:
                return
        self.found[trial.kind] += found
        self.wrong += [f"{trial.name}: {wrong}"] if wrong else []
        self._longest[trial.kind] = max(self._longest[trial.kind], now - trial.began)


def _now() -> float:
    return time.monotonic()


def _answer(kind: Kind, number: int, rng: random.Random, to: Path) -> int:
    """Make one trial with random numbers of its own; write what it gives, and what is wrong."""
    found, wrong = Counter[str](), ""
    try:
        found = kind.trial(number, rng)
    except Wrong as error:
        wrong = str(error)
    except Exception:  # noqa: BLE001 - the other trials are still worth making
        wrong = f"\n{traceback.format_exc()}"
    to.write_bytes(pickle.dumps((found, wrong)))
    return 0
