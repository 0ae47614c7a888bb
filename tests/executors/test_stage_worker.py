"""Several workers and a run on one store: one of them is killed, and one stage fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from maskpolicy.store.artifacts import Store

PLUGIN = """
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from maskpolicy import policy

HERE = Path(__file__).parent


class First:
    def select(self, passage: Any, rng: Any) -> Any:
        return passage.columns["first"]


def columns(passages: Any) -> dict[str, Any]:
    return {"first": [np.array([[0, 1]], dtype=np.int32) for _ in passages]}


@policy("slow")
@dataclass(frozen=True)
class Slow(First):
    '''Its annotation waits, in processes that shall, until they are killed.'''

    def annotate(self, passages: Any, fitted: Any = None) -> dict[str, Any]:
        with (HERE / "slow").open("a") as file:
            file.write(f"{os.getpid()} ")
        while "SLOW" in os.environ:
            time.sleep(0.05)
        return columns(passages)


@policy("broken")
@dataclass(frozen=True)
class Broken(First):
    '''Its annotation fails until a file says that it is mended.'''

    def annotate(self, passages: Any, fitted: Any = None) -> dict[str, Any]:
        with (HERE / "broken").open("a") as file:
            file.write(f"{os.getpid()} ")
        if not (HERE / "mended").exists():
            raise ValueError("bad luck")
        return columns(passages)
"""
YAML = """
model: mini
corpus: world
policies: [none, slow, broken]
tasks: [zsre]
seeds: [0, 1]
plugins: [plugin.py]
world: {people: 20, general_people: 6}
general: {steps: 2, batch_size: 4}
intermediate: {steps: 2, batch_size: 4}
finetune: {steps: 2, batch_size: 4, warmup: 1}
"""
PLAIN = YAML.replace("[none, slow, broken]", "[none]").replace("plugins: [plugin.py]", "")
PATIENCE = 180  # seconds until a moment that never comes fails the test


class Place:
    """An experiment in a folder, with a store and what commands said."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "plugin.py").write_text(PLUGIN)
        (folder / "it.yaml").write_text(YAML)
        self.store = Store(folder / "store")
        self.heard = {}

    def words(self, command, *more):
        return [command, self.folder / "it.yaml", "--store", self.store.root, *more]

    def start(self, command, *more, **variables):
        words = map(str, self.words(command, *more))
        return subprocess.Popen(
            [sys.executable, "-m", "maskpolicy", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **variables},
        )

    def end(self, name, running):
        said, _ = running.communicate(timeout=PATIENCE)
        self.heard[name] = SimpleNamespace(code=running.returncode, said=said)

    def run(self, name, command, *more):
        self.end(name, self.start(command, *more))

    def pids(self, name):
        path = self.folder / name
        return [int(pid) for pid in path.read_text().split()] if path.exists() else []

    def until(self, running, happened):
        end = time.monotonic() + PATIENCE
        while not happened():
            assert running.poll() is None, running.communicate()[0]
            assert time.monotonic() < end
            time.sleep(0.01)

    def until_slow(self, running):
        self.until(running, lambda: running.pid in self.pids("slow"))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Kill two workers in the middle, and finish with a run and a worker beside each other."""
    place = Place(tmp_path_factory.mktemp("shared"))
    place.run("before", "status", "--json")
    place.run("alone", "run", "--out", place.folder / "alone", "--store", place.folder / "apart")
    for name in ("slow", "broken"):
        (place.folder / name).unlink()
    stopped = place.start("work", "--only", "slow/zsre", SLOW="1")
    place.until_slow(stopped)
    stopped.send_signal(signal.SIGTERM)
    place.end("stopped", stopped)
    place.claimed_after_stop = place.store.claimed()
    lost = place.start("work", "--only", "slow/zsre", SLOW="1")
    place.until_slow(lost)
    place.run("during", "status", "--json")
    place.run("busy", "work", "--only", "slow/zsre", "--no-wait")
    lost.kill()
    place.end("lost", lost)
    place.lost = lost.pid
    running = place.start("run", "--out", place.folder / "out", "--jobs", "1")
    place.until(running, (place.folder / "out" / "experiment.yaml").exists)
    helping = place.start("work")
    place.end("run", running)
    place.end("helped", helping)
    return place


@pytest.mark.slow
def test_a_worker_that_is_stopped_gives_its_claims_back(place):
    assert place.heard["stopped"].code == 128 + signal.SIGTERM
    assert place.claimed_after_stop == set()


def test_a_worker_that_does_not_wait_says_that_others_are_at_it(place):
    assert place.heard["busy"].code == 3
    assert "left to other workers: " in place.heard["busy"].said


def test_a_lost_worker_is_taken_over(place):
    assert place.heard["lost"].code == -signal.SIGKILL
    assert place.pids("slow")[:2][1] == place.lost
    assert len(place.pids("slow")) == 3


def test_run_and_worker_end_with_the_code_of_a_failure(place):
    assert place.heard["run"].code == 2  # a mistake in a plugin
    assert "2 of 6 cells failed" in place.heard["run"].said
    assert place.heard["helped"].code == 1
    assert "failed: annotate broken: " in place.heard["helped"].said
    assert "bad luck" in place.heard["helped"].said


def test_a_failure_is_tried_once_by_a_run_and_its_workers(place):
    assert len(place.pids("broken")) == 1


def test_the_results_are_those_of_a_run_alone(place):
    one, other = (
        {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for name in ("results", "predictions")
            for path in sorted((folder / name).iterdir())
        }
        for folder in (place.folder / "out", place.folder / "alone")
    )
    assert len(one) == 6 + 4
    assert one == other


def test_the_status_tells_what_is_done_under_way_failed_and_left(place, call):
    before = json.loads(place.heard["before"].said)
    assert (before["done"], before["under_way"], before["seconds"]) == (0, [], None)
    during = json.loads(place.heard["during"].said)
    (under_way,) = during["under_way"]
    assert (under_way["stage"], under_way["pid"]) == ("annotate slow", place.lost)
    assert under_way["host"] == os.uname().nodename
    assert during["left"] > 0
    assert "finetune" in during["unknown"]
    code, after, _ = call(*place.words("status"))
    assert code == 0
    assert f"✗ annotate broken on {os.uname().nodename}: " in after
    assert "0 under way, 1 failed, 5 blocked by these, 0 left" in after
    assert after.splitlines()[-1] == "nothing is left to compute"


def test_a_worker_tries_a_failed_stage_again_only_if_it_is_told_to(place, call):
    (place.folder / "mended").touch()
    code, _, err = call(*place.words("work"))
    assert code == 1
    assert "not run, because these failed: 5 stages" in err
    assert len(place.pids("broken")) == 1
    code, _, err = call(*place.words("work", "--retry-failed"))
    assert code == 0
    assert len(place.pids("broken")) == 2
    assert "6 of them by this worker" in err
    found = json.loads(call(*place.words("status", "--json"))[1])
    assert (found["failed"], found["blocked"], found["left"]) == ([], 0, 0)
    assert call(*place.words("run", "--out", place.folder / "out"))[0] == 0


def test_a_worker_for_some_kinds_leaves_the_others(call, tmp_path):
    place = Place(tmp_path)
    (tmp_path / "it.yaml").write_text(PLAIN)
    words = ("--kind", "world", "--kind", "tokenizer", "--no-wait")
    code, _, err = call(*place.words("work", "--only", "none", *words))
    assert code == 3
    assert "2 stages are done, 2 of them by this worker" in err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--kind", "finetun"), "did you mean 'finetune'"),
        (("--only", "nobody"), "nobody"),
        (("finetune.stepz=3",), "stepz"),
        (("--plugin", "nowhere.py"), "nowhere.py"),
    ],
)
def test_bad_input_is_one_line_before_any_work(refused, tmp_path, words, why):
    place = Place(tmp_path)
    (tmp_path / "it.yaml").write_text(PLAIN)
    assert why in refused(*place.words("work", *words))
    assert not place.store.root.exists()


def test_a_store_that_is_a_file_is_one_line(refused, tmp_path):
    place = Place(tmp_path)
    (tmp_path / "it.yaml").write_text(PLAIN)
    place.store.root.write_text("")
    for command in ("work", "status"):
        assert "is a file" in refused(*place.words(command))
