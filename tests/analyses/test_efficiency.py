"""Scores on the way through the intermediate stage, each tested against the baseline."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import folders
import pytest

from maskpolicy.analyses.builtin.efficiency import Efficiency
from maskpolicy.analyses.cache import analyse
from maskpolicy.leaderboard.results.cell import STEP, Run, cell_name, read_run
from maskpolicy.pipeline.store.artifacts import Store

ROWS = {"none": 0.1, "random": 0.12, "salient-span": 0.9}


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "store")


def kept(folder: Path, store: Store, step: int = 500, answered: bool = True) -> Run:
    """Return a run whose models of one step answered as those of the end did."""
    run = read_run(folders.write(folder, ROWS, ("zsre",), seeds=3))
    early = []
    for result in run.results:
        if result.policy == "none":
            continue
        name = cell_name(result.policy, result.task, result.seed)
        key = hashlib.sha256(f"{name} {step}".encode()).hexdigest()
        if answered:
            with store.write(key, {}) as out:
                text = (folder / "predictions" / f"{name}.jsonl").read_bytes()
                (out / "predictions.jsonl").write_bytes(text)
        stages = {f"evaluate {result.policy}, step {step}": key}
        early.append(replace(result, config={**result.config, STEP: step}, stages=stages))
    return replace(run, early=tuple(early))


def test_each_step_is_tested_against_the_baseline_as_one_family(tmp_path, store):
    found = Efficiency().analyse([kept(tmp_path / "run", store)], store)
    rows = {(row["policy"], row["steps"]): row for row in found.rows}
    assert rows["salient-span", 500]["difference"] == pytest.approx(
        rows["salient-span", 500]["score"] - rows["salient-span", 0]["score"]
    )
    assert rows["salient-span", 500]["p (Holm)"] < 0.05
    assert rows["salient-span", 500]["detectable"] is None
    assert rows["random", 500]["p (Holm)"] > 0.05
    assert rows["random", 500]["detectable"] > 0
    assert "p (Holm)" not in rows["random", 0]
    assert any("other seeds" in note for note in found.notes)
    json.dumps(list(found.rows))


def test_runs_of_one_name_are_told_apart(tmp_path, store):
    runs = [kept(tmp_path / name / "run", store, step) for name, step in (("a", 400), ("b", 500))]
    found, _ = analyse("efficiency", Efficiency(), runs, store)
    early = {(row["run"], row["steps"]) for row in found.rows if 0 < row["steps"] < 1000}
    assert early == {("a/run", 400), ("b/run", 500)}


def test_without_its_answers_in_the_store_a_step_has_no_test(tmp_path, store):
    found = Efficiency().analyse([kept(tmp_path / "run", store, answered=False)], store)
    rows = {(row["policy"], row["steps"]): row for row in found.rows}
    assert "p (Holm)" not in rows["salient-span", 500]
    assert rows["salient-span", 1000]["p (Holm)"] < 0.05
    assert found.partial
    assert any("no predictions" in note for note in found.notes)
