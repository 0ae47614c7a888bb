"""The kinds of trials of `make soak`, and their folders."""

import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from faults import forks, fuzzing
from faults.corruption import DAMAGES, Corruption
from faults.kills import EXPERIMENT, SHORT, Kills, Wrong, outputs, signals, workers

ROOT = Path(__file__).parents[2]
_TASKS = str.split("triviaqa zsre wow nq webquestions aidayago2 cola squad blimp ner")
_AT_ONCE = 10  # fuzzed files
_RANKS = "resources: {intermediate: {processes: 2}}\n"
_JOBS, _JOB = ("--jobs", "2"), ("--jobs", "1")


@dataclass(frozen=True)
class Kind:
    """One kind of trial."""

    name: str  # in the table
    unit: str  # of the wanted number
    trial: Callable[[int, random.Random], Counter[str]]
    share: float = 1.0  # of the kills, or of the fuzzed files, that are asked for
    counts: str = "kills"  # the count to compare with that number
    each: Sequence[str] = ()  # counts that must not be 0, however many trials that takes
    place: str = ""  # the shared place that trials change, one at a time
    prepare: Callable[[], object] = lambda: None  # called once, before the trials

    def lacks(self, found: Counter[str]) -> list[str]:
        """Return those of `each` that are 0."""
        return [name for name in self.each if not found[name]]


class Campaign:
    """The trials over one experiment, below one folder."""

    def __init__(self, folder: Path) -> None:
        """Run the experiment without faults, and write the originals of mutated files."""
        self.folder = folder
        self.kills = Kills(folder / "kills")
        self.short = Kills(folder / "short", SHORT)
        self.deep = folder / "fuzz" / "a" / "b"  # so that ../../x stays inside
        self.deep.mkdir(parents=True)
        self._write_originals()
        self.corruption = self._finished()

    def kinds(self, kills: int, files: int) -> Iterator[tuple[Kind, int]]:
        """Yield the kinds of trials, each with its number of kills or of files."""
        for kind in self._killing():
            number = round(kills * kind.share)
            if number:
                kind.prepare()
            yield kind, number
        name = "file of a finished store damaged"
        yield Kind(name, "damages", self._corrupt, place="store"), kills
        for kind in self._fuzzing():
            yield kind, round(files * kind.share)

    def _killing(self) -> Iterator[Kind]:
        run, short, power = self.kills, self.short, "power lost"
        yield Kind("run killed before a change of the file system", "kills", run.killed, 0.2)
        name = "tiny graph killed before a change of the file system"
        yield Kind(name, "kills", self._tiny, 0.35)
        yield Kind(f"{power}: unflushed files empty", "kills", run.powerless, 0.04)
        dropped = partial(run.powerless, flushes=False)
        yield Kind(f"{power}: flushes dropped, any files empty", "kills", dropped, 0.04)
        name = "disk full from a change of the file system on"
        yield Kind(name, "disks", short.full, 0.05, counts="trials")
        tiny_full = partial(self._tiny, full=True)
        yield Kind(f"tiny graph, {name}, each in turn", "disks", tiny_full, 0.36, counts="trials")
        for name, hosts in (
            ("two runs on one host killed, stopped or ended", False),
            ("two runs on hosts without shared locks, clocks an hour apart", True),
        ):
            yield Kind(name, "kills", partial(short.shared, hosts=hosts), 0.04)
        jobs = partial(short.grouped, words=_JOBS)
        name, measure = "run --jobs 2 killed at any time", partial(short.measure, *_JOBS)
        yield Kind(name, "kills", jobs, 0.03, prepare=measure)
        name = "run --jobs 2: it or a process killed, stopped or ended"
        others = {"local worker": workers}
        signalled = partial(short.signalled, name="jobs", words=_JOBS, others=others)
        yield Kind(name, "kills", signalled, 0.12, each=signals(*others), prepare=measure)
        name = "run on Ray: it, a task or a raylet killed, stopped or ended"
        each = signals("Ray task", "raylet")
        yield Kind(name, "kills", short.on_ray, 0.04, each=each, place="ray")
        name = "run on Slurm's stand-in: it or a job killed, stopped or ended"
        yield Kind(name, "kills", short.on_slurm, 0.04, each=signals("Slurm task"))
        name = "training of two processes killed at any time"
        yield Kind(name, "kills", self._ranks, 0.02, prepare=self._measure_ranks)
        name = "tiny graph in a bucket killed at a request"
        yield Kind(name, "kills", self._bucket, 0.02)
        name += ", of which 15% fail"
        yield Kind(name, "kills", partial(self._bucket, spoilt="0.15"), 0.03)

    def _fuzzing(self) -> Iterator[Kind]:
        run, mutated = self.deep / "run", self.folder / "mutated"
        shipped = sorted((ROOT / "experiments").rglob("*.yaml"))
        experiments = mutated / "it.yaml", [self.kills.file, *shipped]
        names = [path.relative_to(run).as_posix() for path in sorted(run.glob("*/*.json*"))]
        documents = sorted(self.corpora.iterdir())
        scores = sorted((self.deep / "scores").iterdir()), self.folder / "board"
        text = (self.corpora / "text.txt").read_text()
        fuzz = {
            "mutated experiment files": (0.25, fuzzing.experiment, *experiments),
            "models of odd sizes": (0.05, fuzzing.shape, mutated / "shape.yaml"),
            "mutated command lines": (0.1, fuzzing.command, self.deep),
            "mutated files of tasks": (0.25, fuzzing.rows, self.deep / "tasks", _TASKS),
            "mutated corpora": (0.1, fuzzing.documents, documents),
            "mutated text, cut or learned from by a tokenizer": (0.05, fuzzing.text, text),
            "mutated scores of other programs, and boards": (0.1, fuzzing.scores, *scores),
            "mutated files of a run": (
                *(0.1, fuzzing.results, run),
                ["run.json", "experiment.json", *names],
            ),
        }
        for name, (share, refuses, *words) in fuzz.items():
            many = partial(_several, partial(refuses, *words))
            yield Kind(name, "files", many, share, counts="trials", place="files")
        name = "tokenizer that learns from a word of 3 million characters, or from controls"
        yield Kind(name, "files", fuzzing.long_text, 0.0018, counts="trials")

    def _write_originals(self) -> None:
        from maskpolicy.data import world
        from maskpolicy.experiment.world_settings import SUBJECT_KINDS

        settings = world.make({"people": 8, "general_people": 6, "kinds": list(SUBJECT_KINDS)})
        world.write(settings, self.deep / "world")
        shutil.copytree(self.deep / "world" / "tasks", self.deep / "tasks")
        fuzzing.write_tasks(self.deep / "tasks")
        fuzzing.write_scores(self.deep / "scores")
        shutil.copytree(self.kills.folder / "reference" / "out", self.deep / "run")
        (self.deep / "it.yaml").write_text(EXPERIMENT)
        self.corpora = self.deep / "corpora"
        (self.folder / "mutated").mkdir()
        lines = (self.deep / "world" / "intermediate.jsonl").read_text().splitlines()[:20]
        fuzzing.write_corpora(self.corpora, lines)

    def _finished(self) -> Corruption:
        """Return the trials of a finished store, which the reference's command repairs."""
        place = self.short.folder / "reference"

        def results() -> object:
            return {name: content for name, content in outputs(place).items() if name < "store"}

        # without --verify, a note may say that counts of masked tokens are lost
        words = ("--store", place / "store", "--out", place / "out", "--jobs", "1", "--verify")
        again = forks.command("run", self.short.file, *words)
        return Corruption(place / "store", self.folder / "whole", results, again)

    def _corrupt(self, number: int, rng: random.Random) -> Counter[str]:
        index, how = number % len(self.corruption.files), rng.choice(DAMAGES)
        found = self.corruption.trial(index, how, rng)
        return Counter({**found, "kills": found["trials"]})

    def _ranks(self, number: int, rng: random.Random) -> Counter[str]:
        return self.ranks.grouped(number, rng, _JOB)

    def _measure_ranks(self) -> None:
        self.ranks = Kills(self.folder / "ranks", SHORT + _RANKS)
        self.ranks.measure(*_JOB)

    def _tiny(self, number: int, rng: random.Random, full: bool = False) -> Counter[str]:
        import tiny

        there = self.folder / f"tiny{full:d}-{number}"
        there.mkdir()
        tiny.in_child(there / "reference")
        try:
            had_fault = tiny.ended_at(there, number % 108 if full else rng.randrange(140), full)
        except SystemExit as error:
            raise Wrong(f"{there.name}: {error}") from None
        shutil.rmtree(there)
        return Counter(trials=1, kills=int(had_fault))

    def _bucket(self, number: int, rng: random.Random, spoilt: str = "") -> Counter[str]:
        """Kill the tiny graph at one of its requests to a bucket, in a script of its own."""
        there, moment = self.folder / f"bucket{spoilt}{number}", str(rng.randrange(250))
        there.mkdir()
        tests = ROOT / "tests"
        done = subprocess.run(
            [sys.executable, tests / "tiny_bucket.py", "killed", there, "100000"],
            capture_output=True,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": f"{ROOT}{os.pathsep}{tests}",
                "TINY_FROM": moment,
                "TINY_SPOILT": spoilt,
            },
        )
        if done.returncode or done.stderr:
            raise Wrong(f"bucket{number}: exit code {done.returncode}: {done.stderr[-300:]}")
        shutil.rmtree(there)
        # it prints the first moment that its run does not reach
        return Counter(trials=1, kills=int(done.stdout.strip() != moment))


def _several(
    refuses: Callable[[random.Random], bool], number: int, rng: random.Random
) -> Counter[str]:
    """Mutate several files in one process, because each takes less time than a fork."""
    return Counter(trials=_AT_ONCE, refused=sum(refuses(rng) for _ in range(_AT_ONCE)))
