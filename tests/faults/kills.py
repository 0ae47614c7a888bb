"""Runs that are killed, lose power or share a store end with the same bytes as without faults."""

import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP)
_UNREAD = ("masked-sample", "analysis")
_ENDED = (0, -signal.SIGKILL, 128 + signal.SIGTERM)
_LOST = "3 times in a row"  # said by a run that loses three processes of one stage


class Wrong(Exception):
    """A trial that ended in another way than it must."""


class Kills:
    """The results of one experiment without faults, and trials with faults."""

    def __init__(self, folder: Path, yaml: str = EXPERIMENT) -> None:
        """Run the experiment once without a fault, below a folder."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / "it.yaml"
        self.file.write_text(yaml)
        self.changes = self._reference()
        self.expected = outputs(folder / "reference")
        self._bytes = sum(map(len, self.expected.values()))
        self._seconds: dict[tuple[str, ...], float] = {}  # of a run, by its options

    def _reference(self) -> int:
        """Return the number of changes of the file system of one run."""
        counted = self.folder / "changes"

        def call() -> int:
            count = calls.signal_before(None)
            code = self._run("reference")()
            counted.write_text(str(count()))
            return code

        self._end_well(call, "reference")
        return int(counted.read_text())

    def killed(self, number: int, rng: random.Random) -> Counter[str]:
        """Kill a run before a random change, continue it, kill it again, .. until it ends."""
        there, kills = f"killed{number}", 0
        while self._was_killed(self._start(there, rng, self._run(there)), there):
            kills += 1
        self._end_well(self._run(there), there)
        self._compare(there)
        return Counter(trials=1, kills=kills)

    def powerless(self, number: int, rng: random.Random, flushes: bool = True) -> Counter[str]:
        """Kill a run, and empty all files that it had not flushed to the disk.

        Without `flushes`, any file may be empty, because the disk has dropped flushes too; --verify
        finds those that the run does not read again.
        """
        there = f"{'powerless' if flushes else 'unflushed'}{number}"
        record = self.folder / f"{there}.flushed"

        def call() -> int:
            calls.record_flushes(record)
            return self._run(there)()

        kills = int(self._was_killed(self._start(there, rng, call), there))
        lost = calls.lose(self.folder / there, record if flushes else None, rng)
        words = ("--jobs", "1") if flushes else ("--jobs", "1", "--verify")
        self._end_well(self._run(there, *words), there)
        self._compare(there, spotless=flushes)
        return Counter(trials=1, kills=kills, lost=lost)

    def shared(self, number: int, rng: random.Random, hosts: bool) -> Counter[str]:
        """Let two commands use a store by two paths; kill, end or stop both, and continue.

        As two `hosts`, they share no locks, and their clocks are an hour apart.
        """
        there, running = f"shared{hosts:d}-{number}", []
        place = self.folder / there
        (place / "store").mkdir(parents=True)
        (place / "mount").symlink_to("store")  # another path to the same folder
        for hours, path in enumerate(("store", "mount")):
            words = ("--store", place / path, "--out", self.folder / f"{there}.{path}" / "out")
            run = forks.command("run", self.file, *words, "--jobs", "1")
            call = partial(calls.as_host, hours * hosts, run, has_locks=not hosts)
            running.append(self._start(there, rng, call, rng.choice(SIGNALS)))
        while not all(map(forks.has_ended, running)):
            time.sleep(0.5)
            for child in running:  # a stopped one continues
                os.kill(child, signal.SIGCONT)
        kills = sum(self._was_killed(child, there) for child in running)
        # each host removes its own leftovers, also those of analyses that the other has finished
        commands = [self._run(there), forks.command("store", "prune", "--store", place / "store")]
        for hours in (1, 0) if hosts else (0,):
            for command in commands[: 1 + hosts]:
                self._end_well(partial(calls.as_host, hours, command, has_locks=True), there)
        self._compare(there)
        return Counter(trials=1, kills=kills)

    def full(self, number: int, rng: random.Random) -> Counter[str]:
        """Fill the disk at a moment that moves on with the number; then make room, and continue.

        Every other trial fills a small file system, if one can be mounted.
        """
        there, small = f"full{number}", f"{self.folder}/full{number}"
        (self.folder / there).mkdir()
        part = (5**0.5 - 1) / 2 * number % 1  # spread evenly, however many trials there are
        options = f"size={(0.02 + 0.98 * part) * self._bytes:.0f}"
        is_small = number % 2 == 1 and _mount(small, options)

        def call() -> int:
            if not is_small:
                calls.no_room_from(int(part * self.changes), self.folder / there)
            return self._run(f"{there}/it")()

        try:
            code = forks.wait(forks.start(call, self._said(there)))
            said = self._said(there).read_text()
            errors = [line for line in said.splitlines() if line.startswith("error: ")]
            if code not in (0, 2) or len(errors) != (code == 2) or "Traceback" in said:
                raise Wrong(f"{there}: exit code {code}: {said[-600:]}")
            if is_small:
                _mount(small, "remount,size=1g")
            self._end_well(self._run(f"{there}/it"), there)
            self._compare(f"{there}/it")
        finally:
            if is_small:
                subprocess.run(["umount", small], check=True)
        shutil.rmtree(self.folder / there)
        return Counter(trials=1, real=int(is_small and code == 2))

    def signalled(
        self,
        number: int,
        rng: random.Random,
        name: str,
        words: tuple[str, ...],
        others: Mapping[str, Callable[[int], Sequence[int]]],
        prepare: Callable[[], object] = lambda: None,
    ) -> Counter[str]:
        """Kill, end and stop the processes of a command at random times, and continue.

        `others` returns further processes of a command by their names, groups as negative numbers.
        Each number begins with another signal. `prepare` is called in the command's process.
        """
        there, sent, turns = f"{name}{number}", Counter[str](), signals(*others)
        processes = {"driver": lambda command: [command], **others}

        def call() -> int:
            prepare()
            return self._run(there, *words)()

        for first in (number, number + len(SIGNALS)):
            child = forks.start(call, self._said(there))
            for turn in (turns * 2)[first % len(turns) :][:3]:
                sign, _, process = turn.partition(" ")
                until = time.monotonic() + rng.uniform(0.1, 0.6) * self._seconds[words]
                victims: Sequence[int] = []
                while not forks.has_ended(child) and not victims:
                    time.sleep(0.05)
                    victims = processes[process](child) if time.monotonic() > until else []
                if victims and not forks.has_ended(child):
                    sent[turn] += _send(rng.choice(victims), signal.Signals[sign], rng)
            self._was_killed(child, there, excuse=_LOST)
        is_partial = _LOST in self._said(there).read_text(errors="replace")
        self._end_well(call, there)
        self._compare(there, is_partial=is_partial)
        kills = sum(count for turn, count in sent.items() if signal.SIGSTOP.name not in turn)
        return sent + Counter(trials=1, kills=kills)

    def on_ray(self, number: int, rng: random.Random) -> Counter[str]:
        """Kill, end or stop tasks, raylets and the command of a run on a Ray cluster."""
        address, file = (self.folder / f"ray{number}.{part}" for part in ("address", "raylets"))
        cluster = forks.start(partial(_nodes, address, file), self._said(f"ray{number}"))

        def raylets(child: int) -> list[int]:
            return [pid for pid in map(int, file.read_text().split()) if _words(pid)]  # not ended

        def tasks(child: int) -> list[int]:
            return [pid for pid in forks.children(raylets(child)) if b"ray::_task" in _words(pid)]

        try:
            forks.until(file.exists, cluster)
            words = ("--executor", f"ray={address.read_text()}")
            self._seconds.setdefault(words, 20.0)
            others = {"Ray task": tasks, "raylet": raylets}
            return self.signalled(number, rng, "ray", words, others)
        finally:
            address.unlink(missing_ok=True)
            self._was_killed(cluster, f"ray{number}", codes=(0,))  # or Ray's processes survive

    def on_slurm(self, number: int, rng: random.Random) -> Counter[str]:
        """Kill, end or stop jobs and the command of a run on Slurm's stand-in."""
        import clusters

        folder = self.folder / f"slurm{number}.commands"
        words = ("slurm.gpus=false", "slurm.tasks=2", "--executor", "slurm")
        self._seconds.setdefault(words, 30.0)

        def jobs(child: int) -> list[int]:
            pids = [int(path.read_text() or 0) for path in folder.glob("pid-*")]
            return [-pid for pid in pids if str(self.folder).encode() in _words(pid)]  # not reused

        def prepare() -> None:
            from maskpolicy.pipeline.executors import slurm_engine

            os.environ["PATH"] = clusters.fake_slurm(folder)
            slurm_engine._POLL = 1.0

        try:
            return self.signalled(number, rng, "slurm", words, {"Slurm task": jobs}, prepare)
        finally:
            for job in jobs(0):
                with suppress(ProcessLookupError):
                    os.kill(job, signal.SIGKILL)

    def measure(self, *words: str) -> None:
        """Run once with these options and without a fault, and note the seconds."""
        if words in self._seconds:
            return
        began = time.monotonic()
        self._end_well(self._run("measured", *words), "measured")
        self._seconds[words] = time.monotonic() - began
        self._compare("measured")

    def grouped(self, number: int, rng: random.Random, words: tuple[str, ...]) -> Counter[str]:
        """Kill all processes of a command at once, at a random time within a measured run."""
        there, kills = f"grouped{number}", 0
        for _ in range(2):
            until = time.monotonic() + rng.uniform(0.05, 1) * self._seconds[words]
            child = forks.start(self._run(there, *words), self._said(there))
            while time.monotonic() < until and not forks.has_ended(child):
                time.sleep(0.05)
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            kills += self._was_killed(child, there)
        self._end_well(self._run(there, *words), there)
        self._compare(there)
        return Counter(trials=1, kills=kills)

    def _run(self, there: str, *words: str) -> Callable[[], int]:
        place = self.folder / there
        places = ("--store", place / "store", "--out", place / "out")
        return forks.command("run", self.file, *places, *(words or ("--jobs", "1")))

    def _start(
        self, there: str, rng: random.Random, call: Callable[[], int], number: int = signal.SIGKILL
    ) -> int:
        """Start a call that gets a signal before one of its changes, unless it makes fewer."""
        moment = rng.randrange(self.changes)

        def killed() -> int:
            calls.signal_before(moment, number)
            return call()

        return forks.start(killed, self._said(there))

    def _was_killed(
        self, child: int, there: str, codes: Sequence[int] = _ENDED, excuse: str | None = None
    ) -> bool:
        """Wait for a command; return whether a signal has ended it.

        Raises Wrong if it failed, unless it said `excuse`.
        """
        code = forks.wait(child)
        if code not in codes:
            said = self._said(there).read_text(errors="replace")
            if code != 1 or not excuse or excuse not in said:
                raise Wrong(f"{there}: exit code {code}: {said[-600:]}")
        return code != 0

    def _end_well(self, call: Callable[[], int], there: str) -> None:
        """Run a call in a forked process; raises Wrong if it fails."""
        self._was_killed(forks.start(call, self._said(there)), there, codes=(0,))

    def _compare(self, there: str, spotless: bool = True, is_partial: bool = False) -> None:
        found = outputs(self.folder / there)
        store = Store(self.folder / there / "store")
        if is_partial:  # the store keeps the analyses of the page that had failed cells
            analyses = _of_kind(store, store.committed(), "analysis")
            more = {name for name in found if analyses & {*Path(name).parts}} - self.expected.keys()
            found = {name: content for name, content in found.items() if name not in more}
        damaged = {key for key in store.committed() if store.verify(key)}
        if not spotless:  # masks for analyses are verified when an analysis reads them
            reference = Store(self.folder / "reference" / "store")
            unread = _of_kind(reference, damaged, *_UNREAD)
            damaged -= unread
            whole = {name for name in self.expected if unread & {*Path(name).parts}}
            found |= {name: self.expected[name] for name in whole}
        differ = [name for name in self.expected if found.get(name) != self.expected[name]]
        if differ or found.keys() != self.expected.keys():
            raise Wrong(f"{there}: other bytes: {differ[:3]} {found.keys() ^ self.expected.keys()}")
        if damaged:
            raise Wrong(f"{there}: damaged: {damaged}")
        names = ("temporary/*", "checkpoints/*", *(("quarantine/*",) if spotless else ()))
        if left := [path for name in names for path in store.root.glob(name)]:
            raise Wrong(f"{there}: left over: {left[0]}")
        shutil.rmtree(self.folder / there)

    def _said(self, there: str) -> Path:
        return self.folder / f"{there}.said"


def _of_kind(store: Store, keys: Iterable[str], *kinds: str) -> set[str]:
    """Return those keys whose artifacts are of these kinds."""
    records = {key: (store.peek(key) or {"record": {}})["record"] for key in keys}
    return {key for key, record in records.items() if record.get("kind") in kinds}


def signals(*others: str) -> list[str]:
    """Return each signal to each process of a command, as trials take turns with them."""
    return [f"{sign.name} {process}" for sign in SIGNALS for process in ("driver", *others)]


def _send(process: int, sign: int, rng: random.Random) -> bool:
    """Send a signal to a process or a group; a stopped one continues after a moment."""
    try:
        os.kill(process, sign)
        if sign == signal.SIGSTOP:
            time.sleep(rng.uniform(0.1, 3))
            os.kill(process, signal.SIGCONT)
    except ProcessLookupError:
        return False
    return True


def workers(command: int) -> list[int]:
    """Return the processes that a command has started to compute stages."""
    return [pid for pid in forks.children([command]) if b"spawn_main" in _words(pid)]


def _words(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def _mount(folder: str, options: str) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder]
    return not subprocess.run(command, capture_output=True).returncode


def _nodes(address: Path, raylets: Path) -> int:
    """Keep a Ray cluster of two nodes, and replace nodes that end, until `address` is removed."""
    from benchmarks import raylets as ray

    parent = os.getppid()
    with ray.nodes(2) as nodes:
        address.write_text(nodes.address)
        while address.exists() and os.getppid() == parent:
            part = raylets.with_suffix(".part")
            part.write_text(" ".join(str(ray._raylet(node)) for node in nodes.all()))
            part.replace(raylets)
            for node in nodes.all():
                if node.all_processes["raylet"][0].process.poll() is not None:
                    nodes.kill(node)
                    nodes.add()
            time.sleep(0.1)
    return 0


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
