"""Stages that several processes of this machine compute together: losses, errors, the one loop."""

import json
import logging
import re
import signal
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import clusters
import forked
import grouped
import pytest
import torch
from clusters import until
from safetensors.torch import load_file
from tiny import broken

from maskpolicy.pipeline.graph import calls
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.graph.nodes import Stage
from maskpolicy.pipeline.store.artifacts import Store
from tests.models import test_loop as alone


def train(folder: Path, steps: int, every: int = 0, byproducts=None, **fault):
    """Train in two processes; returns outcome, folder of notes, and weights and records of each."""
    notes = folder / "notes"
    notes.mkdir(parents=True)
    told = grouped.GroupLocal(processes=2, notes=str(notes), **fault)
    stage = Stage("grouped-training", "", grouped.Loop(steps, every), {}, told, "grouped")
    stage = stage.adjusted(byproducts=byproducts or {})
    outcome = execute([stage, *stage.byproducts.values()], Store(folder / "store"))[stage.key]
    made = [
        (load_file(path)["w"], json.loads(path.with_suffix(".json").read_text()))
        for path in sorted(notes.glob("*.safetensors"))
    ]
    return outcome, notes, made


@pytest.mark.slow
@pytest.mark.usefixtures("in_forks")
def test_a_killed_training_costs_one_line_and_goes_on_with_the_same_bits(tmp_path, caplog):
    _, _, whole = train(tmp_path / "whole", 12)
    with caplog.at_level(logging.WARNING):
        outcome, notes, made = train(tmp_path / "killed", 12, how="killed", at=8)
    assert outcome.error is None
    (line,) = [message for message in caplog.messages if "killed" in message]
    assert line.endswith("its process was killed: it starts again from its last checkpoint")
    starts = (notes / "starts").read_text().split()
    assert len(starts) == 8
    assert sum(int(step) >= 7 for step in starts[1::2]) == 2
    for (weights, done), (same, record) in zip(made, whole, strict=True):
        assert torch.equal(weights, same)
        assert done == record
    assert torch.equal(made[0][0], made[1][0])


@pytest.mark.usefixtures("in_forks")
def test_two_processes_share_threads_and_validation_and_the_first_one_judges_for_both(tmp_path):
    outcome, notes, made = train(tmp_path, 12, every=3)
    steps = alone.masked(replace(alone.SPEC, batch_size=8))
    units = [steps(number).units for number in range(3)]
    validated = [json.loads((notes / f"validated{rank}").read_text()) for rank in (0, 1)]
    assert validated == [[[1, 3], units], [[2], units]]
    assert [done["best_step"] for _, done in made] == [6, 6]
    assert torch.equal(made[0][0], made[1][0])
    record = json.loads((outcome.artifact / "MANIFEST.json").read_text())["record"]
    assert (record["facts"]["threads"], record["local"]["processes"]) == (1, 2)


@pytest.mark.usefixtures("in_forks")
def test_the_error_of_one_process_is_that_of_the_stage_whose_seconds_count_later(tmp_path):
    outcome, _, _ = train(tmp_path, 6, how="wrong", at=3)
    assert outcome.error == "row 7 of it.jsonl has no answer"
    assert type(outcome.exception).__name__ == "DataError"
    store = Store(tmp_path / "store")
    checkpoints = store.checkpoints(outcome.stage.key)
    step, folder = checkpoints.latest()
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    del files["MANIFEST.json"]
    checkpoints._before = 1000.0
    checkpoints.save(step, lambda to: [(to / name).write_bytes(files[name]) for name in files])
    (outcome,) = execute([outcome.stage], store).values()
    assert (outcome.error, outcome.seconds > 1000) == (None, True)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["loss", "validate", "share"])
@pytest.mark.usefixtures("in_forks")
def test_what_one_process_fails_with_all_raise_together(where, tmp_path):
    outcome, notes, made = train(tmp_path, 3, every=2, how=where)
    assert outcome.error == "the outer loss of example 'q7' became nan"
    assert [(notes / f"raised{rank}").read_text() for rank in (0, 1)] == [outcome.error] * 2
    assert made == []


@pytest.mark.slow
@pytest.mark.usefixtures("in_forks")
def test_a_process_that_hangs_ends_the_training_with_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(calls, "_TIMEOUT", timedelta(seconds=5))
    monkeypatch.setattr(calls, "_GRACE", 0.1)
    outcome, notes, _ = train(tmp_path, 6, how="waits", at=2)
    assert re.fullmatch(r"RuntimeError: .*Timed out waiting .*", outcome.error)
    assert clusters.gone(int((notes / "pid1").read_text()))


@pytest.mark.usefixtures("in_forks")
def test_a_training_that_diverges_before_a_byproduct_says_so(tmp_path):
    outcome, _, _ = train(tmp_path, 6, byproducts={"2": broken()}, how="diverges")
    assert outcome.error.startswith("the loss became nan before step 2: lower lr")


WAITS = """
import forked, pathlib
from tests.pipeline.test_process_group import train
forked.fork_jobs()
train(pathlib.Path("{}"), 6, how="waits", at=2)
"""


@clusters.needs_proc
def test_the_processes_end_with_the_one_that_started_them(tmp_path):
    running = forked.Script(WAITS.format(tmp_path))
    until((tmp_path / "notes" / "failed").exists, running)
    pids = [int((tmp_path / "notes" / f"pid{rank}").read_text()) for rank in (0, 1)]
    assert not any(map(clusters.gone, pids))
    running.send_signal(signal.SIGKILL)
    clusters.all_gone(pids)


def intermediate(folder: Path) -> tuple[Path, dict]:
    """Return the folder of the intermediate stage's artifact, and its record."""
    store = Store(folder / "store")
    records = {each["key"]: each["record"] for each in store.records(dropped=False)}
    (key,) = (key for key, record in records.items() if record["kind"] == "intermediate")
    return store.path(key), records[key]


@pytest.mark.slow
def test_two_processes_reach_the_loss_of_one(tmp_path):
    file = clusters.write_experiment(tmp_path)
    twice = (f"resources.{kind}.processes=2" for kind in ("intermediate", "finetune"))
    for name, words in (
        ("one", ("--jobs", "1")),
        ("two", (*twice, "--jobs", "2")),
    ):
        words = ("intermediate.dropout=0", "finetune.eval_every=2", *words)
        started = clusters.start(file, tmp_path / name, *words, command=forked.command_with_forks)
        assert "Traceback" not in clusters.finish(started)
    (one, alone), (two, together) = (intermediate(tmp_path / name) for name in ("one", "two"))
    assert one.name == two.name  # its key
    assert together["local"] == alone["local"] | {"processes": 2}
    assert together["facts"]["loss"] == pytest.approx(alone["facts"]["loss"], rel=1e-4)
    assert (one / "work.json").read_text() == (two / "work.json").read_text()
    weights, same = (load_file(each / "model.safetensors") for each in (one, two))
    for name, weight in weights.items():
        assert abs(weight - same[name]).mean() < 1e-4
