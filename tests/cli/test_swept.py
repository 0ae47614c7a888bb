"""An experiment with sweeps: run, planned again with more of everything, and joined."""

from __future__ import annotations

import csv
import json

import pytest

import maskpolicy as mp
from maskpolicy import stages
from maskpolicy.config.parse import load_experiment
from maskpolicy.graph import planning
from maskpolicy.leaderboard.build import build_leaderboard
from maskpolicy.results.cell import read_run
from maskpolicy.store.artifacts import Store

TINY = """
model: mini
corpus: world
policies: [none, {name: random, grid: {ratio: [0.15, 0.3]}}]
tasks: [zsre]
grid: {finetune.lr: [1e-3, 1e-4]}
world: {people: 8, general_people: 6}
general: {steps: 2, warmup: 1, batch_size: 4}
intermediate: {steps: 2, warmup: 1, batch_size: 4}
finetune: {steps: 2, warmup: 1, batch_size: 4, max_source: 24}
"""
ROWS = [
    "none finetune.lr=0.001",
    "none finetune.lr=0.0001",
    "random ratio=0.15 finetune.lr=0.001",
    "random ratio=0.15 finetune.lr=0.0001",
    "random ratio=0.3 finetune.lr=0.001",
    "random ratio=0.3 finetune.lr=0.0001",
]


@pytest.fixture(scope="module")
def swept(run_tiny):
    """Run a tiny experiment with sweeps; its folder, with its store and its run."""
    return run_tiny(TINY)


def test_each_row_is_compared_with_the_baseline_of_its_own_budget(swept):
    found = json.loads((swept / "out" / "leaderboard.json").read_text())
    assert [row["policy"] for row in found["rows"]] == ROWS
    assert [row["baseline"] for row in found["rows"]] == ROWS[:2] * 3
    assert found["rows"][2]["trainings"] == {"finetune": {"lr": 0.001}}
    assert f"compared with {ROWS[0]}: {ROWS[2]}, {ROWS[4]}" in found["notes"]
    budget = found["measured"]["settings"]["fine-tuning"]
    assert f"learning rate 0.0001 ({ROWS[1]}, {ROWS[3]}, {ROWS[5]})" in budget


def test_frames_have_a_column_for_each_swept_setting(swept):
    found = mp.load(swept / "out", store=swept / "store")
    for frame in (found.scores(), found.leaderboard()):
        rows = frame.drop_duplicates("policy").set_index("policy")
        assert rows["finetune.lr"].tolist() == [1e-3, 1e-4] * 3
        assert rows["ratio"].isna().tolist() == [True, True, False, False, False, False]
        assert rows["ratio"].tolist()[2:] == [0.15, 0.15, 0.3, 0.3]


def test_the_csv_and_the_page_say_what_differs(swept):
    with (swept / "out" / "leaderboard.csv").open() as file:
        rows = {row["policy"]: row["finetune"] for row in csv.DictReader(file)}
    assert "0.0001" in rows[ROWS[3]]
    assert "0.0001" not in rows[ROWS[2]]
    page = (swept / "out" / "leaderboard.html").read_text()
    assert "finetune.lr: 0.0001" in page


def planned(folder, *overrides):
    """Return the names of the stages that are not in the store."""
    store = Store(folder / "store")
    made = stages.build(load_experiment(folder / "tiny.yaml", overrides), store.hash_file)
    found = planning.plan(made.targets, store, targets=made.targets)
    return {each.stage.name for each in found if each.state != "done"}


def cells(*names):
    return {f"{kind} {name}" for name in names for kind in ("finetune", "evaluate")}


def test_only_what_is_new_is_computed(swept):
    assert planned(swept) == set()
    rows = "policies=[none, {name: random, grid: {ratio: [0.15, 0.3, 0.5]}}]"
    new = [f"random ratio=0.5 finetune.lr={lr}, zsre, seed 0" for lr in (0.001, 0.0001)]
    made = {name for name in planned(swept, rows) if not name.startswith("intermediate")}
    assert made == cells(*new)
    assert len(planned(swept, rows)) == len(cells(*new)) + 1  # both share the intermediate stage

    found = planned(swept, "grid.finetune.lr=[1e-3, 1e-4, 1e-2]")
    assert found == cells(
        "none finetune.lr=0.01, zsre, seed 0",
        *(f"random ratio={ratio} finetune.lr=0.01, zsre, seed 0" for ratio in (0.15, 0.3)),
    )
    found = planned(swept, "policies.1.grid.ratio=[0.15, 0.3]", "seeds=[0, 1]")
    assert found == cells(*(f"{row}, zsre, seed 1" for row in ROWS))
    found = planned(swept, "tasks=[zsre, wow]")
    data = {f"{kind} wow" for kind in ("train-examples", "test-examples", "audit", "majority")}
    assert found == cells(*(f"{row}, wow, seed 0" for row in ROWS)) | data


def test_a_row_without_a_sweep_is_in_the_store(swept):
    rows = "policies=[none, {name: random, ratio: 0.3}]"
    assert planned(swept, rows, "grid={}", "finetune.lr=1e-4") == set()


def test_a_run_without_the_sweep_is_joined_to_the_row_with_its_settings(swept, call):
    rows = ("policies=[none, {name: random, ratio: 0.3}]", "grid={}", "finetune.lr=1e-4")
    words = ("--store", swept / "store", "--out", swept / "plain")
    assert call("run", swept / "tiny.yaml", *rows, *words)[0] == 0
    runs = [read_run(swept / name) for name in ("out", "plain")]
    board = build_leaderboard(runs)
    assert [row.label for row in board.rows] == ROWS
    assert f"{ROWS[5]}: called random ratio=0.3 in plain" in board.notes


def test_a_run_with_another_value_is_refused_unless_its_rows_name_it(swept, call, refused):
    rows = "policies=[none, {name: random, ratio: 0.3}]"
    words = ("--store", swept / "store", "--out", swept / "other")
    assert call("run", swept / "tiny.yaml", rows, "grid={}", "finetune.lr=1e-2", *words)[0] == 0
    says = refused("leaderboard", swept / "out", swept / "other")
    assert "differ in finetune.lr: 0.001 -> 0.01" in says
    assert call("run", swept / "tiny.yaml", rows, "grid.finetune.lr=[1e-2]", *words)[0] == 0
    board = build_leaderboard([read_run(swept / name) for name in ("out", "other")])
    assert len(board.rows) == len(ROWS) + 2
