"""Trials in several processes at once; all kinds advance together, and end before a deadline."""

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

_LONGEST = 600.0  # seconds; a trial that takes longer is wrong


@dataclass
class _Trial:
    """A running trial."""

    kind: int
    name: str
    answer: Path
    began: float


class Lanes:
    """The kinds of trials, the running ones, and the results so far."""

    def __init__(self, kinds: Sequence[tuple[Kind, int]], count: int, seed: int) -> None:
        """Prepare the kinds, each with the wanted number, for `count` trials at a time."""
        self.kinds, self.count, self.seed = kinds, count, seed
        self.found = [Counter[str]() for _ in kinds]
        self.wrong: list[str] = []
        self._begun = [0] * len(kinds)
        self._longest = [0.0] * len(kinds)  # seconds
        self._running: dict[int, _Trial] = {}  # by process

    def run(self, until: float, tell: Callable[[str], object] = lambda line: None) -> None:
        """Make the trials; those that have not ended by `until` are stopped, and do not count.

        A trial does not begin if one of its kind took longer than the time left. `tell` gets a line
        for every minute, and for each wrong trial.
        """
        told = time.monotonic()
        with TemporaryDirectory() as folder:
            while self._begin(until, Path(folder)):
                time.sleep(0.01)
                for child in [*self._running]:
                    if wrong := self._look(child, until):
                        self.wrong.append(wrong)
                        tell(f"WRONG, {wrong}")
                if time.monotonic() > told + 60:
                    told, shares = time.monotonic(), [*map(self._progress, range(len(self.kinds)))]
                    tell(f"{min(shares):.0%} to {max(shares):.0%}, {len(self.wrong)} wrong")

    def missing(self) -> list[str]:
        """Return a line for each kind with fewer trials than wanted, or without some count."""
        return [
            f"{kind.name}: {found[kind.counts]} of {wanted}{''.join(f', no {n}' for n in lacks)}"
            for (kind, wanted), found in zip(self.kinds, self.found, strict=True)
            if (lacks := kind.lacks(found)) or found[kind.counts] < wanted
        ]

    def _begin(self, until: float, folder: Path) -> bool:
        """Begin trials of the kinds that are furthest behind; return whether any is running."""
        while len(self._running) < self.count and (waiting := self._waiting(until)):
            index = min(waiting, key=self._progress)
            kind, number = self.kinds[index][0], self._begun[index]
            self._begun[index] += 1
            name, answer = f"{kind.name} {number}", folder / f"{index}-{number}"
            rng = random.Random(f"{self.seed} {name}")
            child = forks.start(partial(_answer, kind, number, rng, answer), folder / "said")
            self._running[child] = _Trial(index, name, answer, time.monotonic())
        return bool(self._running)

    def _waiting(self, until: float) -> list[int]:
        taken = {self.kinds[trial.kind][0].place for trial in self._running.values()} - {""}
        left = until - time.monotonic()
        return [
            index
            for index, (kind, _) in enumerate(self.kinds)
            if kind.place not in taken and self._longest[index] < left and self._progress(index) < 1
        ]

    def _progress(self, index: int) -> float:
        """Return the share of the wanted number of a kind, including running trials."""
        (kind, wanted), found = self.kinds[index], self.found[index]
        running = sum(trial.kind == index for trial in self._running.values())
        share = (found[kind.counts] + running) / wanted if wanted else 1.0
        return min(share, 0.99) if kind.lacks(found) else share

    def _look(self, child: int, until: float) -> str:
        """Count a trial if it has ended, or stop it if its time is over; return what is wrong."""
        trial, now = self._running[child], time.monotonic()
        has_ended = forks.has_ended(child)
        if not has_ended and now < min(until, trial.began + _LONGEST):
            return ""
        del self._running[child]
        given, wrong = Counter[str](), f"did not end within {_LONGEST:g} s"
        if has_ended:
            wrong = f"its process ended with {forks.wait(child)}"
            if trial.answer.exists():
                given, wrong = pickle.loads(trial.answer.read_bytes())
        else:
            forks.kill(child)
            if now >= until:
                return ""
        counts = self.kinds[trial.kind][0].counts
        self.found[trial.kind] += Counter({"wrong": 1, "trials": 1, counts: 1}) if wrong else given
        self._longest[trial.kind] = max(self._longest[trial.kind], now - trial.began)
        return f"{trial.name}: {wrong}" if wrong else ""


def _answer(kind: Kind, number: int, rng: random.Random, to: Path) -> int:
    """Make one trial, and write its counts and what is wrong."""
    found, wrong = Counter[str](), ""
    try:
        found = kind.trial(number, rng)
    except Wrong as error:
        wrong = str(error)
    except Exception:  # noqa: BLE001 - the other trials are still worth making
        wrong = f"\n{traceback.format_exc()}"
    to.write_bytes(pickle.dumps((found, wrong)))
    return 0
