"""Arrays of jobs: the scripts that a cluster would get, submitit's local jobs, a fake sbatch."""

import os
import shutil
import signal
import sys
import threading
from collections import Counter
from pathlib import Path

import clusters
import forked
import pytest
import tiny
from refusals import refused

from benchmarks import raylets
from maskpolicy.core import hardware
from maskpolicy.core.errors import ConfigError
from maskpolicy.experiment.budgets import Need, Resources
from maskpolicy.experiment.parse import load_experiment
from maskpolicy.pipeline.executors import slurm_engine
from maskpolicy.pipeline.executors.local import Room, room_of
from maskpolicy.pipeline.graph.calls import Lost, answer_elsewhere, call_of
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.graph.nodes import Stage
from maskpolicy.pipeline.store.artifacts import Store

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


@pytest.fixture
def experiment(file):
    return load_experiment(file, ["slurm.tasks=2", "slurm.gpus=false"])


def test_a_dry_run_shows_the_scripts_of_submitit_and_writes_nothing(file, tmp_path, call):
    words = ("--store", tmp_path / "store", "--out", tmp_path / "out", "--dry-run")
    code, out, err = call("run", file, *ASKED, *words, "--executor", "slurm")
    assert code == 0
    assert "auto" not in err
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
        assert f"--output={tmp_path}/out/logs/slurm/" in script
        assert "module load cuda" in options
        assert "-m submitit.core._submit" in script
    assert "gpus-per-node" not in others
    assert not (tmp_path / "out").exists()


def test_a_training_on_gpus_does_not_go_on_without_them(tmp_path, monkeypatch):
    monkeypatch.setattr(hardware, "gpus", lambda: 0)
    store = Store(tmp_path / "store")
    call = call_of(tiny.node("a"), store, {}, gpus=2)
    refused(answer_elsewhere, call, print, match="PyTorch finds 0 of the 2 GPUs of tiny-walk a:")


def test_feedback_has_one_gpu_of_its_training():
    resources = Resources(intermediate=Need(gpus=4, cpus=2))
    rooms = [room_of(resources, f"intermediate{end}", gpus=True) for end in ("", "-feedback")]
    assert rooms == [Room(4, 8), Room(1, 2)]


def test_auto_is_not_decided_by_a_login_node(file, tmp_path, call, monkeypatch):
    words = (file, "--store", tmp_path / "store", "--executor", "slurm", "--dry-run")
    monkeypatch.setattr(hardware, "is_cuda", lambda: False)
    code, _, err = call("run", *words)
    assert code == 2
    assert "add resources.intermediate.gpus=1" in err
    assert "finetune.attention" in err
    for added in ("slurm.gpus=false", "resources.intermediate.gpus=1"):
        assert call("run", *words, added)[0] == 0


def test_without_sbatch_it_is_one_line(file, tmp_path, refused, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    words = ("--store", tmp_path / "store", "--out", tmp_path / "out", "--executor", "slurm")
    assert "there is no sbatch here" in refused("run", file, *words)
    assert not list((tmp_path / "store").glob("artifacts/*"))


def test_a_task_on_a_host_with_another_version_or_store_says_so(tmp_path):
    stage, store = tiny.node("a"), Store(tmp_path / "store")
    for about, says in (({"version": "0"}, "install the same"), ({"run": "0" * 64}, "is another")):
        task = slurm_engine.Task(call_of(stage, store, {}, **about), 1, tmp_path / "note.json")
        error = task()
        assert isinstance(error, ConfigError)
        assert says in str(error)
    assert not list((tmp_path / "store").glob("artifacts/*"))


def test_jobs_of_slurm_compute_what_one_process_computes(tmp_path, experiment, store, monkeypatch):
    """A task that is killed without a signal is submitted again; the third time it fails."""
    monkeypatch.setenv("PATH", clusters.fake_slurm(tmp_path / "slurm"))
    tests = str(Path(tiny.__file__).parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([tests, *sys.path]))
    monkeypatch.setattr(slurm_engine, "_GATHER", 0.1)
    monkeypatch.setattr(slurm_engine, "_POLL", 0.3)
    count = tmp_path / "count"
    told = tiny.TinyLocal(count=str(count), label="fatal")
    fatal = Stage("tiny-fatal", "", tiny.Fate(0), {}, told)
    a = tiny.node("a")
    stages = [a, tiny.node("b", inputs={"a": a})]
    with slurm_engine.SlurmEngine(experiment, tmp_path / "logs") as engine:
        outcomes = execute([*stages, fatal], store, engine=engine)
    said = (tmp_path / "slurm" / "errors").read_text()
    assert not any(outcomes[each.key].error for each in stages), said
    assert tiny.content(store, stages) == tiny.alone(stages)
    assert outcomes[fatal.key].error.startswith("Slurm job ")
    assert "3 times in a row" in outcomes[fatal.key].error
    assert count.read_text().count("fatal") == 3


def preempt(notes, pids):
    """Send the signal of preemption to the first process that begins to fine-tune, and waits."""
    pids.append(clusters.until(lambda: clusters.begun(notes, "finetune"))[0])
    os.kill(pids[0], signal.SIGUSR2)
    (notes / "hold-finetune").unlink()


@pytest.mark.slow
def test_jobs_compute_a_run_and_a_preempted_one_is_queued_again(file, tmp_path):
    """Jobs of submitit's local executor stand for Slurm's."""
    alone = clusters.start(file, tmp_path / "alone", "policies=[none]", command=forked.command)
    clusters.finish(alone)
    store = Store(shutil.copytree(tmp_path / "alone" / "store", tmp_path / "store"))
    (answers,) = (r["key"] for r in store.records() if r["record"]["kind"] == "evaluate")
    store.drop(answers)  # and the fine-tuned model was dropped after its use
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "hold-finetune").touch()
    before = "from maskpolicy.pipeline.executors import slurm_engine as engine\n"
    before += "engine.SlurmEngine.__init__.__defaults__ = (engine.LOCAL,)"
    words = ("run", file, "--store", store.root, "--out", tmp_path / "out")
    words = (*words, "policies=[none]", "slurm.tasks=2", "slurm.gpus=false", "--executor", "slurm")
    pids: list[int] = []
    threading.Thread(target=preempt, args=(notes, pids), daemon=True).start()
    clusters.finish(forked.command(*words, before=before, NOTES=str(notes)))
    again = clusters.begun(notes, "finetune")
    assert again[0] == pids[0]
    assert len(again) == 2
    counted = Counter(words[0] for words in raylets.lines(notes / "commits"))
    assert list(counted.values()) == [1, 1]  # each job takes seconds of imports
    artifacts = raylets.artifacts(tmp_path / "alone" / "store")
    assert raylets.artifacts(store.root) == artifacts
    said = [path.read_text() for path in (tmp_path / "out" / "logs").rglob("*_log.*")]
    assert any("Requeued job" in text for text in said)


def test_a_number_of_jobs_from_the_environment_is_named(file, refused, monkeypatch):
    monkeypatch.setenv("MASKPOLICY_JOBS", "2")
    assert "unset $MASKPOLICY_JOBS" in refused("run", file, "--executor", "slurm")


@pytest.fixture
def sbatch(tmp_path, monkeypatch):
    """Put an sbatch with lines of a shell on the path, whose jobs never run."""
    monkeypatch.setattr(slurm_engine, "_POLL", 0.1)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def write(lines):
        for name, text in (("sbatch", lines), ("srun", ""), ("sacct", "")):
            (tmp_path / name).write_text(f"#!/bin/sh\n{text}")
            (tmp_path / name).chmod(0o755)

    return write


def test_no_array_is_larger_than_slurm_allows(experiment, store, tmp_path, monkeypatch, sbatch):
    sbatch(f"grep -e --array $1 >> {tmp_path}/arrays; echo job 7")
    monkeypatch.setattr(slurm_engine, "_MOST", 3)
    with slurm_engine.SlurmEngine(experiment, tmp_path / "logs") as engine:
        for seed in range(5):
            last = engine.submit(call_of(tiny.node("a", seed), store, {}), print)
        clusters.until(lambda: last.done() or len(engine._jobs) == 5)
    assert (tmp_path / "arrays").read_text().split() == [
        *("#SBATCH", "--array=0-2%2"),
        *("#SBATCH", "--array=0-1%2"),
    ]


def test_an_array_is_submitted_again_if_slurm_took_one_before(experiment, store, tmp_path, sbatch):
    calls = tmp_path / "calls"
    sbatch(f"""echo >> {calls}
        test $(wc -l < {calls}) = 2 && echo Socket timed out >&2 && exit 1
        echo job 7""")
    with slurm_engine.SlurmEngine(experiment, tmp_path / "logs") as engine:
        engine.submit(call_of(tiny.node("a"), store, {}), print)
        clusters.until(lambda: len(engine._jobs) == 1)
        second = engine.submit(call_of(tiny.node("b"), store, {}), print)
        clusters.until(lambda: second.done() or len(engine._jobs) == 2)
    assert not second.done()
    assert len(calls.read_text()) == 3


def test_a_first_array_that_slurm_refuses_is_an_error(experiment, store, tmp_path, sbatch):
    sbatch("echo invalid partition >&2; exit 1")
    with slurm_engine.SlurmEngine(experiment, tmp_path / "logs") as engine:
        first = engine.submit(call_of(tiny.node("a"), store, {}), print)
        with pytest.raises(ConfigError, match="--executor slurm: invalid partition"):
            first.result(clusters.PATIENCE)


def test_a_job_whose_result_cannot_be_read_is_lost(experiment, store, tmp_path, sbatch):
    sbatch("echo job 7")
    calls = [call_of(tiny.node(name), store, {}) for name in "ab"]
    with slurm_engine.SlurmEngine(experiment, tmp_path / "logs") as engine:
        futures = [engine.submit(call, print) for call in calls]
        clusters.until(lambda: len(engine._jobs) == 2)
        damaged, folder = (each.job.paths.result_pickle for each in engine._jobs)
        folder.mkdir(parents=True)
        damaged.parent.mkdir(exist_ok=True)
        damaged.write_text("no pickle")
        for future, why in zip(futures, ("UnpicklingError", "IsADirectoryError"), strict=True):
            with pytest.raises(Lost, match=rf"Slurm job 7_[01] gave no result \({why}; see "):
                future.result(10)
