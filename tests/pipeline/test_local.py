"""Processes of this machine: killed, lost with their driver, and the bytes of one process."""

import json
import logging
import os
import signal
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path

import clusters
import forked
import pytest
import tiny
from clusters import begun, until
from stores import beside
from tiny import node

from benchmarks import raylets
from maskpolicy.core import hardware
from maskpolicy.core.errors import StoreError
from maskpolicy.pipeline.executors import local
from maskpolicy.pipeline.graph import processes
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.graph.nodes import Stage
from maskpolicy.pipeline.graph.processes import Process
from maskpolicy.pipeline.store.artifacts import Store


@pytest.fixture(scope="module", autouse=True)
def no_imports():
    """Let processes not import PyTorch, which tiny stages do not need."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "_import_models", os.getpid)
        yield


@pytest.fixture(scope="module")
def engine(no_imports):
    with local.LocalEngine(2) as started:
        yield started


def pid_of(process: Process) -> int:
    return process._started.result()


class Ends:
    def __del__(self):
        signal.raise_signal(signal.SIGTERM)


def end_in_a_destructor(report):
    Ends()


def test_a_process_hides_bars_of_libraries_even_if_it_starts_before_the_command_does(monkeypatch):
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    with Process(imports=False) as process:
        assert process._pool.submit(os.getenv, "TQDM_DISABLE").result() == "1"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_process_costs_the_steps_since_the_checkpoint(store, engine, caplog, number):
    stages, killed = tiny.diamond(pause=0.05), []

    def listen(event):
        if event.what == "advanced" and not killed:
            until(store.checkpoints(stages[0].key).steps)
            (busy,) = (each for each in engine._processes if each.is_busy)
            killed.append(pid_of(busy))
            os.kill(killed[0], number)

    with caplog.at_level(logging.WARNING):
        outcomes = execute(stages, store, listen, engine=engine)
    assert not any(outcome.error for outcome in outcomes.values())
    assert killed
    assert tiny.content(store, stages) == tiny.alone(tiny.diamond())
    (line,) = [record.message for record in caplog.records if "killed" in record.message]
    assert line == "tiny-walk a: its process was killed: it starts again from its last checkpoint"
    assert list((store.root / "temporary").iterdir()) == []


@pytest.mark.parametrize("further", [False, True])
def test_a_stage_that_kills_its_processes_fails_after_three_of_them(store, engine, count, further):
    """With a new checkpoint each time, it is tried as often as needed."""
    told = tiny.TinyLocal(count=str(count), label="fatal")
    fatal = Stage("tiny-fatal", "fatal", tiny.Fate(3 if further else 0), {}, told)
    after, other = node("after", 1, {"x": fatal}), node("other", 2, pause=0.02)
    outcomes = execute([after, other], store, engine=engine)
    assert outcomes[other.key].error is None
    if further:
        assert outcomes[after.key].error is None
        assert count.read_text() == "fatal\n" * 4
    else:
        sentence = "its process was killed, 3 times in a row: if memory ran out, give each process"
        assert outcomes[fatal.key].error.startswith(sentence)  # only trainings have micro_tokens
        told = "not run, because tiny-fatal fatal failed: its process was killed"
        assert outcomes[after.key].error.startswith(told)
        assert count.read_text() == "fatal\n" * 3


def test_stages_are_computed_at_a_time_with_reports_logs_and_the_bytes_of_one(
    store, engine, caplog
):
    events = []
    stages = tiny.diamond(pause=0.05, warns=True)
    with caplog.at_level(logging.WARNING):
        execute(stages, store, events.append, engine=engine)
    assert tiny.content(store, stages) == tiny.alone(tiny.diamond())
    order = [event.stage.label + event.what[0] for event in events if event.what != "advanced"]
    assert order[:4] == ["as", "af", "bs", "cs"]
    assert {event.stage.label for event in events if event.note.startswith("x ")} == set("abcd")
    assert [record.message for record in caplog.records].count("walks") == 4


def test_a_failure_and_an_unusable_store_travel(store, engine):
    (outcome,) = execute([tiny.broken()], store, engine=engine).values()
    assert (outcome.error, type(outcome.exception)) == ("ValueError: bad luck", ValueError)
    (store.root / "artifacts").write_text("")
    with pytest.raises(StoreError):
        execute([node("a")], store, engine=engine)


def test_control_c_ends_the_processes_after_a_checkpoint(store):
    stage = node("a", steps=10_000, every=100_000, pause=0.05)

    def listen(event):
        if event.what == "advanced":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), local.LocalEngine(2) as engine:
        execute([stage], store, listen, engine=engine)
    assert all(clusters.gone(pid_of(process)) for process in engine._processes)
    assert not list((store.root / "temporary").iterdir())
    assert not store.is_busy(stage.key)


def drive(root, **settings):
    """Compute the diamond with two processes, whose numbers are written beside the store."""
    with local.LocalEngine(2) as engine:
        pids = [pid_of(process) for process in engine._processes]
        (root.parent / "pids").write_text(json.dumps(pids))
        execute(tiny.diamond(**settings), Store(root), engine=engine)


@clusters.needs_proc
def test_a_killed_driver_takes_its_processes_along_and_the_same_command_goes_on(store, count):
    settings = {"pause": 0.05, "count": str(count)}
    stages = tiny.diamond(**settings)
    with beside(drive, store.root, **settings):
        until(lambda: store.checkpoints(stages[0].key).steps())
    clusters.all_gone(json.loads((store.root.parent / "pids").read_text()))
    execute(stages, store)
    assert count.read_text().split() == ["a", "a", "b", "c", "d"]
    assert tiny.content(store, stages) == tiny.alone(tiny.diamond())


@pytest.mark.parametrize(
    ("jobs", "gpus", "starts"), [(2, False, True), (1, False, False), (2, True, False)]
)
def test_one_process_starts_early_if_several_will_compute(monkeypatch, jobs, gpus, starts):
    """With GPUs, a process must know its own ones before it imports PyTorch."""
    monkeypatch.setattr(hardware, "may_have_gpus", lambda: gpus)
    monkeypatch.setattr(processes, "_import_models", partial(time.sleep, 2))
    with local.one_early(jobs) as early:
        assert (early is not None) == starts
    if early is not None:  # an error line does not wait for the imports
        assert clusters.gone(pid_of(early))
        assert early._imports.cancelled() or early._imports.exception() is not None


def start(folder: Path, jobs: int, **variables: str) -> clusters.Running:
    file, words = clusters.write_experiment(folder), ("--jobs", str(jobs))
    return clusters.start(
        file, folder / str(jobs), *words, command=forked.command_with_forks, **variables
    )


@pytest.mark.slow
def test_results_do_not_depend_on_the_number_of_jobs_nor_on_kills(tmp_path):
    """Two jobs, one of whose processes is killed, and then the command itself."""
    clusters.finish(start(tmp_path, 1))
    notes = tmp_path / "notes"
    notes.mkdir()
    holds = [notes / f"hold-{kind}" for kind in ("annotate", "finetune")]
    for hold in holds:
        hold.touch()
    running = start(tmp_path, 2, NOTES=str(notes))
    os.kill(until(lambda: begun(notes, "annotate"), running)[0], signal.SIGKILL)
    until(lambda: begun(notes, "annotate")[1:], running)
    holds[0].unlink()
    pids = until(lambda: begun(notes, "finetune")[1:], running)
    assert len(set(begun(notes, "finetune"))) == 2
    running.send_signal(signal.SIGKILL)
    assert "its process was killed: it starts again" in running.communicate()[0]
    clusters.all_gone(pids)
    holds[1].unlink()
    clusters.finish(start(tmp_path, 2))
    one, two = (tmp_path / jobs for jobs in "12")
    assert raylets.artifacts(two / "store") == raylets.artifacts(one / "store")
    assert raylets.results(two / "out") == raylets.results(one / "out")
    records = [json.loads((out / "out" / "run.json").read_text()) for out in (one, two)]
    assert not any(stage["from_store"] for stage in records[0]["stages"])
    assert any(stage["from_store"] for stage in records[1]["stages"])


def test_a_signal_that_meets_a_destructor_ends_the_process_without_a_traceback(capfd):
    with Process() as process:
        ended = process.submit(end_in_a_destructor, print)
        with pytest.raises(BrokenProcessPool):
            ended.result(clusters.PATIENCE)
    assert not capfd.readouterr().err


def test_a_signal_waits_for_the_process_that_is_being_started(monkeypatch):
    started = []

    class Pool(ProcessPoolExecutor):
        def submit(self, task, /, *given, **named):
            signal.raise_signal(signal.SIGTERM)
            started.append(super().submit(task, *given, **named))
            return started[-1]

    def end(number, frame):
        raise KeyboardInterrupt

    monkeypatch.setattr(processes, "ProcessPoolExecutor", Pool)
    before = signal.signal(signal.SIGTERM, end)
    try:
        with pytest.raises(KeyboardInterrupt):
            Process()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert [each.result(clusters.PATIENCE) > 0 for each in started] == [True]
