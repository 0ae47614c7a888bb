"""Arrays of jobs: the scripts that a cluster would get, and jobs of submitit's local executor."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from dataclasses import replace

import clusters
import pytest

from benchmarks import raylets
from maskpolicy import stages
from maskpolicy.config.parse import load_experiment
from maskpolicy.executors import slurm_engine
from maskpolicy.executors.request import Request, plan_digest
from maskpolicy.executors.slurm_task import Task
from maskpolicy.graph.execution import execute
from maskpolicy.graph.nodes import topological
from maskpolicy.graph.outcomes import Silent
from maskpolicy.store.opening import open_store

pytest.importorskip("submitit", reason="the extra maskpolicy[slurm] is not installed")

ASKED = (
    *("slurm.partition=cpus", "slurm.gpu_partition=gpus", "slurm.time=90", "slurm.tasks=3"),
    *("slurm.memory=12", "slurm.setup=[module load cuda]", "slurm.more.mail-type=END"),
    *("resources.intermediate.gpus=4", "resources.annotate.cpus=8"),
)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """One file for all tests: its plugin is imported in this process."""
    return clusters.write_experiment(tmp_path_factory.mktemp("slurm"))


def test_a_dry_run_shows_the_scripts_of_submitit_and_writes_nothing(file, tmp_path, call):
    words = ("--store", tmp_path / "store", "--out", tmp_path / "out", "--dry-run")
    code, out, err = call("run", file, *ASKED, *words, "--executor", "slurm")
    assert (code, err) == (0, "")
    widest, ones, eights, others = out.split("#!/bin/bash")[1:]
    assert "for intermediate\n" in out
    common = {"time=90", "mem=12GB", "signal=USR2@120", "mail-type=END"}
    for script, own in (
        (widest, {"partition=gpus", "gpus-per-node=4", "cpus-per-task=4"}),
        (ones, {"gpus-per-node=1", "array=0-2%3"}),
        (eights, {"cpus-per-task=8"}),
        (others, {"partition=cpus"}),
    ):
        options = {line.removeprefix("#SBATCH --") for line in script.splitlines()}
        assert options >= common | own
        assert "module load cuda" in options
        assert "-m submitit.core._submit" in script
    assert "gpus-per-node" not in others
    assert not (tmp_path / "out").exists()


def test_without_sbatch_it_is_one_line(file, tmp_path, refused, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    words = ("--store", tmp_path / "store", "--out", tmp_path / "out", "--executor", "slurm")
    assert "there is no sbatch here" in refused("run", file, *words)
    assert not list((tmp_path / "store").glob("artifacts/*"))


def test_other_executors_have_no_dry_run(file, tmp_path, refused):
    assert "maskpolicy plan" in refused("run", file, "--dry-run", "--out", tmp_path / "out")


def test_a_task_on_a_host_with_other_files_says_so_and_computes_nothing(file, tmp_path):
    request = Request(str(file), store=str(tmp_path / "store"), kinds=("world",))
    assert "plans other stages" in Task(replace(request, plan=f"{plan_digest([])}"), None)()
    assert "is another one on this host" in Task(request, "0" * 64)()
    assert not list((tmp_path / "store").glob("artifacts/*"))


def preempt(notes, pids):
    """Send the signal of preemption to the first process that begins a general stage."""
    until = time.monotonic() + clusters.PATIENCE
    while time.monotonic() < until:
        begun = [
            int(words[1]) for words in raylets.lines(notes / "begins") if words[0] == "general"
        ]
        if begun:
            pids.append(begun[0])
            os.kill(begun[0], signal.SIGUSR2)
            return
        time.sleep(0.05)


@pytest.mark.slow
def test_jobs_compute_a_run_and_a_preempted_one_is_queued_again(file, tmp_path, monkeypatch):
    clusters.finish(clusters.start(file, tmp_path / "alone"))
    monkeypatch.setattr(slurm_engine, "_POLL", 1.0)
    store = open_store(tmp_path / "store")
    experiment = load_experiment(file, ["slurm.tasks=2", "slurm.gpus=false"])
    targets = stages.build(experiment, store.hash_file, store.cut_file).targets
    order = topological(targets)
    request = Request(
        *(str(file), ("slurm.tasks=2", "slurm.gpus=false")),
        store=str(store.root),
        logs=str(tmp_path / "logs"),
        plan=plan_digest(order),
    )
    notes = tmp_path / "notes"
    notes.mkdir()
    monkeypatch.setenv("NOTES", str(notes))  # for the jobs; the plugin is imported here already
    monkeypatch.setenv("PAUSE", "1")
    pids: list[int] = []
    threading.Thread(target=preempt, args=(notes, pids), daemon=True).start()
    with slurm_engine.on_slurm(request, experiment, order, store, slurm_engine.LOCAL) as workers:
        outcomes = execute(
            *(order, store, workers.watch(Silent())),
            targets=targets,
            kinds=(),
            pause=workers.pause,
        )
    assert [outcome.error for outcome in outcomes.values() if outcome.error] == []
    begun = raylets.lines(notes / "begins")
    again = [int(words[1]) for words in begun if words[0] == "general"]
    assert again[0] == pids[0]
    assert len(again) == 2
    counted = Counter(words[0] for words in raylets.lines(notes / "commits"))
    assert set(counted.values()) == {1}
    alone = raylets.artifacts(tmp_path / "alone" / "store")
    assert raylets.artifacts(store.root) == alone
    said = [path.read_text() for path in (tmp_path / "logs").rglob("*_log.*")]
    assert any("Requeued job" in text for text in said)
