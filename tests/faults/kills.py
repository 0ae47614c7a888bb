"""Runs that are killed, lose power or share a store end with the bytes of one without faults."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from faults import calls, forks

from maskpolicy.pipeline.store.artifacts import Store

EXPERIMENT = """
model: mini
corpus: world
policies: [none, random, {name: supervised, train_on: [zsre], hidden: 8}]
tasks: [zsre]
keep_models: [finetune]
world: {people: 12, general_people: 6}
general: {steps: 6, warmup: 2, batch_size: 4, dropout: 0.1, checkpoint_every: 0.01}
fit: {steps: 6, warmup: 2, batch_size: 4, eval_every: 3, checkpoint_every: 0.01}
intermediate: {steps: 6, warmup: 2, batch_size: 4, dropout: 0.1, checkpoint_every: 0.01}
finetune: {steps: 4, warmup: 2, batch_size: 4, eval_every: 2, checkpoint_every: 0.01}
"""
SHORT = "\n".join(line for line in EXPERIMENT.splitlines() if not line.startswith("keep_models"))
SHORT = SHORT.replace(", {name: supervised, train_on: [zsre], hidden: 8}", "") + "\n"
_FORMS = ("leaderboard.json", "leaderboard.md", "leaderboard.csv", "leaderboard.tex")
_PARTS = ("results", "predictions", "questions")


class Wrong(Exception):
    """A trial that ended in another way than it must."""


class Kills:
    """One experiment, as it ends without faults, and trials of it with faults."""

    def __init__(self, folder: Path, yaml: str = EXPERIMENT) -> None:
        """Run the experiment once without a fault, below a folder."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / "it.yaml"
        self.file.write_text(yaml)
        self.changes = self._reference()
        self.expected = outputs(folder / "reference")
        self._seconds: dict[tuple[str, ...], float] = {}  # of a run, by its options

    def _reference(self) -> int:
        """Return the number of changes of the file system of one run."""
        counted = self.folder / "changes"

        def call() -> int:
            count = calls.signal_before(None)
            code = self._run("reference")()
            counted.write_text(str(count()))
            return code

        self._finish(forks.start(call, self._said("reference")), "reference")
        return int(counted.read_text())

    def killed(self, number: int, rng: random.Random) -> Counter[str]:
        """Kill a run before a random change, go on, kill it again, .. until it ends."""
        there, kills = f"killed{number}", 0
        while self._kill(there, rng, self._run(there)):
            kills += 1
        self._finish(forks.start(self._run(there), self._said(there)), there)
        self._compare(there)
        return Counter(trials=1, kills=kills)

    def powerless(self, number: int, rng: random.Random, flushes: bool = True) -> Counter[str]:
        """Kill a run, and empty all files that it had not flushed to the disk.

        Without `flushes`, the disk has dropped these too: any file may be empty, also of artifacts
        that the run does not read again, which --verify finds.
        """
        there = f"{'powerless' if flushes else 'unflushed'}{number}"
        record = self.folder / f"{there}.flushed"

        def call() -> int:
            calls.record_flushes(record)
            return self._run(there)()

        kills = int(self._kill(there, rng, call))
        lost = calls.lose(self.folder / there, record if flushes else None, rng)
        words = ("--jobs", "1") if flushes else ("--jobs", "1", "--verify")
        self._finish(forks.start(self._run(there, *words), self._said(there)), there)
        self._compare(there, spotless=flushes)
        return Counter(trials=1, kills=kills, lost=lost)

    def shared(self, number: int, rng: random.Random) -> Counter[str]:
        """Let two hosts, without shared locks, use a store over two paths; kill both, and go on."""
        there, kills = f"shared{number}", 0
        place = self.folder / there
        (place / "store").mkdir(parents=True)
        (place / "mount").symlink_to("store")  # another path to the same folder
        hosts = []
        for path in ("store", "mount"):
            words = ("--store", place / path, "--out", self.folder / f"{there}.{path}")
            run = forks.command("run", self.file, *words, "--jobs", "1")
            hosts.append(self._start(there, rng, partial(calls.without_locks, run)))
        for child in hosts:
            kills += self._was_killed(child, there)
        self._finish(forks.start(self._run(there), self._said(there)), there)
        self._compare(there)
        return Counter(trials=1, kills=kills)

    def measure(self, *words: str) -> None:
        """Run with these options and without a fault, and note how long that takes."""
        began = time.monotonic()
        self._finish(forks.start(self._run("measured", *words), self._said("measured")), "measured")
        self._seconds[words] = time.monotonic() - began
        self._compare("measured")

    def grouped(self, number: int, rng: random.Random, words: tuple[str, ...]) -> Counter[str]:
        """Kill a command of several processes at a random time, all of them at once.

        The time is within that of a run with these options, which was measured before.
        """
        there, kills = f"grouped{number}", 0
        for _ in range(2):
            until = time.monotonic() + rng.uniform(0.05, 1) * self._seconds[words]
            child = forks.start(self._run(there, *words), self._said(there))
            while time.monotonic() < until and not forks.has_ended(child):
                time.sleep(0.05)
            kills += self._kill_group(child, there)
        self._finish(forks.start(self._run(there, *words), self._said(there)), there)
        self._compare(there)
        return Counter(trials=1, kills=kills)

    def _run(self, there: str, *words: str) -> Callable[[], int]:
        place = self.folder / there
        places = ("--store", place / "store", "--out", place / "out")
        return forks.command("run", self.file, *places, *(words or ("--jobs", "1")))

    def _start(self, there: str, rng: random.Random, call: Callable[[], int]) -> int:
        """Start a call that is killed before one of its changes, if it makes so many."""
        moment = rng.randrange(self.changes)

        def killed() -> int:
            calls.signal_before(moment)
            return call()

        return forks.start(killed, self._said(there))

    def _kill(self, there: str, rng: random.Random, call: Callable[[], int]) -> bool:
        """Return whether a call was killed; it may have ended before."""
        return self._was_killed(self._start(there, rng, call), there)

    def _kill_group(self, child: int, there: str) -> bool:
        """Kill a command with all of its processes; return whether it had not ended before."""
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        return self._was_killed(child, there)

    def _was_killed(self, child: int, there: str) -> bool:
        """Wait for a command, and return whether it was killed; raises Wrong if it failed."""
        code = forks.wait(child)
        if code not in (0, -signal.SIGKILL):
            raise Wrong(f"{there}: exit code {code}: {self._last(there)}")
        return code != 0

    def _finish(self, child: int, there: str) -> None:
        if code := forks.wait(child):
            raise Wrong(f"{there}: exit code {code}: {self._last(there)}")

    def _compare(self, there: str, spotless: bool = True) -> None:
        found = outputs(self.folder / there)
        differ = [name for name in self.expected if found.get(name) != self.expected[name]]
        if differ or found.keys() != self.expected.keys():
            raise Wrong(f"{there}: other bytes: {differ[:3]} {found.keys() ^ self.expected.keys()}")
        store = Store(self.folder / there / "store")
        if damaged := [one for key in store.committed() if (one := store.verify(key))]:
            raise Wrong(f"{there}: damaged: {damaged[0]}")
        names = ("temporary/*", "checkpoints/*", *(("quarantine/*",) if spotless else ()))
        if left := [path for name in names for path in store.root.glob(name)]:
            raise Wrong(f"{there}: left over: {left[0]}")
        shutil.rmtree(self.folder / there)

    def _said(self, there: str) -> Path:
        return self.folder / f"{there}.said"

    def _last(self, there: str) -> str:
        return self._said(there).read_text(errors="replace")[-600:]


def outputs(place: Path) -> dict[str, bytes]:
    """Return the bytes of all results of a run, and of all artifacts but their manifests."""
    return {path.relative_to(place).as_posix(): path.read_bytes() for path in _files(place)}


def _files(place: Path) -> Iterator[Path]:
    yield from (place / "out" / name for name in _FORMS)
    for part in _PARTS:
        yield from sorted((place / "out" / part).glob("*"))
    for path in sorted((place / "store" / "artifacts").rglob("*")):
        if path.is_file() and path.name != "MANIFEST.json":
            yield path
