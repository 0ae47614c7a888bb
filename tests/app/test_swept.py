"""An experiment with sweeps: run, planned again with more of everything, and joined."""

from __future__ import annotations

import csv
import json

import pytest

import maskpolicy as mp
from maskpolicy.leaderboard.build import build_leaderboard
from maskpolicy.leaderboard.results.cell import read_run

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
    f"{row} finetune.lr={lr}"
    for row in ("none", "random ratio=0.15", "random ratio=0.3")
    for lr in ("0.001", "0.0001")
]
ONE = "policies=[none, {name: random, ratio: 0.3}]"


@pytest.fixture(scope="module")
def swept(run_tiny):
    """Run a tiny experiment with sweeps; its folder, with its store and its run."""
    return run_tiny(TINY)


def test_each_row_is_compared_with_the_baseline_of_its_own_budget(swept):
    board = json.loads((swept / "out" / "leaderboard.json").read_text())
    assert [row["policy"] for row in board["rows"]] == ROWS
    assert [row["baseline"] for row in board["rows"]] == ROWS[:2] * 3
    assert board["rows"][2]["trainings"] == {"finetune": {"lr": 0.001}}
    assert f"compared with {ROWS[0]}: {ROWS[2]}, {ROWS[4]}" in board["notes"]
    budget = board["measured"]["settings"]["fine-tuning"]
    assert f"learning rate 0.0001 ({ROWS[1]}, {ROWS[3]}, {ROWS[5]})" in budget


def test_frames_csv_and_page_say_what_differs(swept):
    runs = mp.load(swept / "out", store=swept / "store")
    for frame in (runs.scores(), runs.leaderboard()):
        rows = frame.drop_duplicates("policy").set_index("policy")
        assert rows["finetune.lr"].tolist() == [1e-3, 1e-4] * 3
        assert rows["ratio"].isna().tolist() == [True, True, False, False, False, False]
        assert rows["ratio"].tolist()[2:] == [0.15, 0.15, 0.3, 0.3]
    with (swept / "out" / "leaderboard.csv").open() as file:
        cells = {row["policy"]: row["finetune"] for row in csv.DictReader(file)}
    assert "0.0001" in cells[ROWS[3]] and "0.0001" not in cells[ROWS[2]]
    assert "finetune.lr: 0.0001" in (swept / "out" / "leaderboard.html").read_text()


def cells(*names):
    return {f"{kind} {name}" for name in names for kind in ("finetune", "evaluate")}


MORE_LR = [f"{row} finetune.lr=0.01" for row in ("none", "random ratio=0.15", "random ratio=0.3")]
WOW = {f"{kind} wow" for kind in ("train-examples", "test-examples", "audit", "majority")}


@pytest.mark.parametrize(
    ("keys", "computed"),
    [
        ((), set()),
        ((ONE, "grid={}", "finetune.lr=1e-4"), set()),  # a row without a sweep
        (
            ("policies=[none, {name: random, grid: {ratio: [0.15, 0.3, 0.5]}}]",),
            {"intermediate random ratio=0.5 finetune.lr=0.001, run 0"}  # which both share
            | cells(*(f"random ratio=0.5 finetune.lr={x}, zsre, seed 0" for x in (0.001, 0.0001))),
        ),
        (
            ("grid.finetune.lr=[1e-3, 1e-4, 1e-2]",),
            cells(*(f"{row}, zsre, seed 0" for row in MORE_LR)),
        ),
        (("seeds=[0, 1]",), cells(*(f"{row}, zsre, seed 1" for row in ROWS))),
        (("tasks=[zsre, wow]",), cells(*(f"{row}, wow, seed 0" for row in ROWS)) | WOW),
    ],
)
def test_only_what_is_new_is_computed(call, swept, keys, computed):
    words = ("plan", swept / "tiny.yaml", *keys, "--store", swept / "store", "--json")
    stages = json.loads(call(*words)[1])["stages"]
    assert {each["stage"] for each in stages if each["state"] != "done"} == computed


def test_runs_are_joined_by_the_settings_of_their_rows(swept, call, refused):
    def run(name, *keys):
        words = ("run", swept / "tiny.yaml", ONE, *keys, "--store", swept / "store")
        assert call(*words, "--out", swept / name)[0] == 0
        return [swept / "out", swept / name]

    folders = run("plain", "grid={}", "finetune.lr=1e-4")
    board = build_leaderboard([read_run(folder) for folder in folders])
    assert [row.label for row in board.rows] == ROWS
    assert f"{ROWS[5]}: called random ratio=0.3 in plain" in board.notes
    says = refused("leaderboard", *run("other", "grid={}", "finetune.lr=1e-2"))
    assert "differ in finetune.lr: 0.001 -> 0.01" in says
    folders = run("other", "grid.finetune.lr=[1e-2]")  # named by its rows
    board = build_leaderboard([read_run(folder) for folder in folders])
    assert len(board.rows) == len(ROWS) + 2
