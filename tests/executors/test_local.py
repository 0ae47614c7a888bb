from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import ended
import pytest

from maskpolicy import hardware
from maskpolicy.executors import local
from maskpolicy.executors.request import Request
from maskpolicy.executors.stage_worker import plan

PLUGIN = """
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from maskpolicy.plugins.registry import policy


@policy("meeting")
@dataclass(frozen=True)
class Meeting:
    '''Hides first tokens; its annotation waits until as many processes as it wants annotate.'''

    words: int = 0

    def annotate(self, passages: Any, fitted: Any = None) -> dict[str, Any]:
        folder, wanted = Path(os.environ["MEETING"]), int(os.environ["WANTED"])
        (folder / str(os.getpid())).touch()
        until = time.monotonic() + 120
        while len(list(folder.iterdir())) < wanted and time.monotonic() < until:
            time.sleep(0.01)
        return {"first": [np.array([[0, 1]], dtype=np.int32) for _ in passages]}

    def select(self, passage: Any, rng: Any) -> Any:
        return passage.columns["first"]
"""
MEETINGS = """
  - meeting
  - {name: meeting, words: 3}"""
YAML = f"""
model: mini
corpus: world
policies:
  - none{MEETINGS}
tasks: [zsre]
seeds: [0, 1]
plugins: [meeting.py]
world: {{people: 20, general_people: 6}}
general: {{steps: 2, batch_size: 4}}
intermediate: {{steps: 2, batch_size: 4}}
finetune: {{steps: 2, batch_size: 4, warmup: 3}}
"""
PATIENCE = 180  # seconds until a moment that never comes fails the test


def start(folder: Path, wanted: int, jobs: int) -> subprocess.Popen[str]:
    """Start an experiment, from the folder above, whose two annotations want so many processes."""
    (folder / "pids").mkdir(parents=True)
    (folder.parent / "meeting.py").write_text(PLUGIN)
    file = folder.parent / "it.yaml"
    file.write_text(YAML)
    # all threads are free to be used, and yet the number of jobs changes no byte
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    words = ("run", file, "--out", folder / "out", "--store", folder / "store", "--jobs", jobs)
    return subprocess.Popen(
        [sys.executable, "-m", "maskpolicy", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment | {"MEETING": str(folder / "pids"), "WANTED": str(wanted)},
    )


def pids(folder: Path) -> set[int]:
    return {int(path.name) for path in (folder / "pids").iterdir()}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """One experiment by one process, and by two."""
    folder = tmp_path_factory.mktemp("runs")
    for jobs in (1, 2):
        running = start(folder / str(jobs), wanted=jobs, jobs=jobs)
        said, _ = running.communicate(timeout=PATIENCE)
        assert running.returncode == 0, said
        assert "leaked" not in said
        (folder / str(jobs) / "said").write_text(said)
    return folder


@pytest.mark.slow
def test_two_jobs_compute_two_stages_at_a_time(runs):
    assert len(pids(runs / "1")) == 1
    assert len(pids(runs / "2")) == 2


def test_results_do_not_depend_on_the_number_of_jobs(runs):
    one, two = (
        {
            path.relative_to(runs / jobs).as_posix(): path.read_bytes()
            for path in sorted((runs / jobs / "out").rglob("*"))
            if path.is_file() and path.name not in ("run.json", "leaderboard.html")
        }
        for jobs in ("1", "2")
    )
    assert len(one) > 12
    assert one == two


def test_what_is_to_say_of_the_plan_is_said_once(runs):
    for jobs in ("1", "2"):
        assert (runs / jobs / "said").read_text().count("is more than the") == 1


def test_what_the_others_computed_counts_as_computed(runs):
    for jobs in ("1", "2"):
        record = json.loads((runs / jobs / "out" / "run.json").read_text())
        assert not any(stage["from_store"] for stage in record["stages"])
        computed = {part["name"]: part["computed"] for part in record["parts"]}
        assert computed["finetune"] == 6


@pytest.mark.slow
@ended.needs_proc
def test_the_others_end_with_the_process_that_started_them(tmp_path):
    running = start(tmp_path / "run", wanted=3, jobs=2)  # one more than will come
    until = time.monotonic() + PATIENCE
    while len(pids(tmp_path / "run")) < 2:
        assert running.poll() is None, running.communicate()[0]
        assert time.monotonic() < until
        time.sleep(0.01)
    (other,) = pids(tmp_path / "run") - {running.pid}
    assert not ended.gone(other)
    running.send_signal(signal.SIGKILL)
    running.wait()
    ended.wait([other])
    running.stdout.close()


def test_jobs_under_a_launcher_are_refused(tmp_path):
    file = tmp_path / "it.yaml"
    file.write_text("model: mini\ncorpus: world\npolicies: [none]\ntasks: [zsre]\n")
    done = subprocess.run(
        [sys.executable, "-m", "maskpolicy", "run", str(file), "--jobs", "2"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "WORLD_SIZE": "2", "RANK": "0"},
    )
    assert done.returncode == 2
    assert "--jobs" in done.stderr


@pytest.fixture
def no_gpus(monkeypatch):
    """With GPUs, no worker starts early."""
    monkeypatch.setattr(hardware, "may_have_gpus", lambda: False)


@ended.needs_proc
def test_an_early_worker_computes_what_it_is_asked_and_ends_with_the_block(tmp_path, no_gpus):
    (tmp_path / "it.yaml").write_text(
        YAML.replace("plugins: [meeting.py]", "").replace(MEETINGS, "")
    )
    request = Request(str(tmp_path / "it.yaml"), store=str(tmp_path / "store"), kinds=("world",))
    planned = plan(request)
    world = next(stage for stage in planned.order if stage.kind == "world")
    with local.one_early(2) as early:
        assert early is not None
        with local.beside(2, request, early=early):
            until = time.monotonic() + PATIENCE
            while not planned.store.has(world.key):
                assert time.monotonic() < until
                time.sleep(0.05)
    assert early.join() is not None


def test_an_early_worker_that_nobody_asks_is_killed(no_gpus):
    with local.one_early(2) as early:
        assert early is not None
    assert early.join() == -signal.SIGKILL


def test_an_early_worker_without_work_ends_before_the_others_compute(tmp_path, no_gpus):
    request = Request("it.yaml", store=str(tmp_path))
    with local.one_early(2) as early, local.beside(1, request, early=early):
        assert early.join() == -signal.SIGKILL


def test_one_process_needs_no_early_worker(monkeypatch):
    with local.one_early(1) as early:
        assert early is None
    monkeypatch.setenv("WORLD_SIZE", "2")  # a launcher has started several
    with local.one_early(None) as early:
        assert early is None
