from __future__ import annotations

import json
import logging
import multiprocessing
import os
import signal
from pathlib import Path

import ended
import grouped
import pytest
from clusters import until

from maskpolicy.pipeline.executors.local import member
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.store.artifacts import Store


def run(folder: Path, **local):
    """Compute the sum of 1 to 6 in two processes; returns outcome, store and stages."""
    notes = folder / "notes"
    notes.mkdir()
    half, whole = grouped.node(notes, **local)
    store = Store(folder / "store")
    outcomes = execute([whole, half], store, group=member)
    return outcomes, store, (half, whole)


def total(store, stage) -> int:
    return json.loads((store.path(stage.key) / "total.json").read_text())


def starts(folder: Path) -> list[str]:
    return sorted((folder / "notes" / "starts").read_text().splitlines())


@pytest.mark.slow
def test_two_processes_compute_a_stage_and_its_byproduct(tmp_path):
    outcomes, store, (half, whole) = run(tmp_path)
    assert [outcome.error for outcome in outcomes.values()] == [None, None]
    assert (total(store, half), total(store, whole)) == (6, 21)
    assert starts(tmp_path) == ["0: 0", "1: 0"]
    assert store.recall(half.key)["record"]["facts"] == {"step": 3}
    record = store.recall(whole.key)["record"]
    assert record["facts"]["threads"] == 1
    assert record["local"]["processes"] == 2
    assert store.checkpoints(whole.key).steps() == []


@pytest.mark.slow
def test_a_killed_process_costs_one_line_and_the_steps_since_the_checkpoint(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        outcomes, store, (_, whole) = run(tmp_path, how="killed", at=4)
    assert outcomes[whole.key].error is None
    assert total(store, whole) == 21
    assert starts(tmp_path) == ["0: 0", "0: 3", "1: 0", "1: 3"]
    (line,) = [r.message for r in caplog.records if "killed" in r.message]
    assert (
        line == "grouped-sum of 6: its process was killed: it starts again from its last checkpoint"
    )


@pytest.mark.slow
def test_a_process_that_is_killed_again_and_again_fails_the_stage_alone(tmp_path):
    outcomes, store, (half, whole) = run(tmp_path, how="killed", at=1, times=3)
    sentence = "its process was killed, 3 times in a row: if memory ran out, lower resources."
    assert outcomes[whole.key].error.startswith(sentence)
    assert outcomes[half.key].error is None  # it is computed by itself, after three failures
    assert starts(tmp_path).count("1: 0") == 4  # the other one may be ended before it says so
    assert not list((store.root / "temporary").iterdir())


def test_the_error_of_one_process_is_that_of_the_stage(tmp_path):
    outcomes, _, (_, whole) = run(tmp_path, how="wrong", at=5)
    assert outcomes[whole.key].error == "row 7 of it.jsonl has no answer"
    assert type(outcomes[whole.key].exception).__name__ == "DataError"


@pytest.mark.slow
@ended.needs_proc
def test_the_processes_end_with_the_one_that_started_them(tmp_path):
    spawn = multiprocessing.get_context("spawn")
    running = spawn.Process(target=run, args=(tmp_path,), kwargs={"how": "waits", "at": 2})
    running.start()
    until((tmp_path / "notes" / "failed0").exists)
    pids = [int((tmp_path / "notes" / f"pid{rank}").read_text()) for rank in (0, 1)]
    assert not any(map(ended.gone, pids))
    os.kill(running.pid, signal.SIGKILL)
    running.join()
    ended.wait(pids)
