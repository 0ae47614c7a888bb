"""Experiments with sweeps and tuned rows: run, planned with more, and joined."""

from __future__ import annotations

import csv
import json
from collections import Counter

import pytest
import small

import maskpolicy as mp
from maskpolicy.experiment.parse import load_experiment
from maskpolicy.leaderboard.build import build_leaderboard
from maskpolicy.leaderboard.results.cell import read_result, read_run
from maskpolicy.pipeline import stages
from maskpolicy.pipeline.graph import nodes, planning
from maskpolicy.pipeline.graph.nodes import topological
from maskpolicy.pipeline.store.artifacts import Store

RATES = (1e-3, 1e-4, 1e-5)
FINETUNE = {"steps": 2, "warmup": 1, "batch_size": 4, "max_source": 24}
TUNE = {"intermediate.lr": [*RATES], "on": "dev"}
TINY = small.experiment(tasks=["zsre", "wow"], tune=TUNE, finetune=FINETUNE)
CELL = ("random", "zsre", 0)


@pytest.fixture(scope="module")
def tuned(run_tiny):
    """Run a tiny experiment with a tuned row; its folder, with its store and its run."""
    return run_tiny(TINY)


def graph(folder, *overrides):
    store = Store(folder / "store")
    experiment = load_experiment(folder / "tiny.yaml", overrides)
    return stages.build(experiment, store.hash_file), store


def result(folder, cell="random--zsre--0", out="out"):
    return read_result(folder / out / "results" / f"{cell}.json")


def dev_scores(folder, task):
    """Return the score of each candidate on the dev examples of a task, read from the store."""
    whole, store = graph(folder)
    by_label = {each.label: each for each in topological(whole.stages) if each.kind == "evaluate"}
    labels = [f"random intermediate.lr={json.dumps(r)}, {task}, seed 0, dev" for r in RATES]
    files = [store.file(by_label[label].key, "result.json") for label in labels]
    return [json.loads(path.read_text())["score"] for path in files]


def test_the_best_mean_on_dev_is_chosen_for_all_tasks(tuned):
    found = result(tuned).tuning
    by_task = [dev_scores(tuned, task) for task in ("zsre", "wow")]
    means = [sum(each) / 2 for each in zip(*by_task, strict=True)]
    assert found["scores"] == pytest.approx(means)
    assert found["chosen"] == means.index(max(means))
    assert found["tried"] == [{"intermediate.lr": rate} for rate in RATES]
    assert (found["by"], found["tasks"], found["seeds"]) == ("row", ["zsre", "wow"], [0])
    assert result(tuned, "random--wow--0").tuning == found
    assert result(tuned, "none--wow--0").tuning is None


def test_only_the_chosen_candidate_is_evaluated_on_test(tuned):
    whole, store = graph(tuned)
    for (row, _, _), cell in whole.cells.items():
        there = [store.has(option.key) for option in nodes.options(cell).values()]
        assert sum(there) == (row == "random")
    assert not [s for s in topological(whole.stages) if s.transient and store.has(s.key)]
    chosen = result(tuned)
    (rate,) = chosen.chosen.values()
    assert chosen.config["intermediate"]["lr"] == rate
    assert chosen.config["tune"] == {"intermediate.lr": list(RATES), "on": "dev"}
    trainings = [name for name in chosen.stages if name.startswith(("intermediate ", "finetune "))]
    assert len(trainings) == 2
    assert all(name.split(" ", 1)[1].startswith(chosen.trained_as) for name in trainings)


def test_a_cell_has_the_key_of_the_cell_with_the_chosen_value(tuned):
    whole, _ = graph(tuned, "checkpoint_steps=[1]")
    cell, early = whole.cells[CELL], whole.early[(*CELL, 1)]
    for index, rate in enumerate(RATES):
        plain, _ = graph(tuned, "tune={}", f"intermediate.lr={rate}")
        assert cell.inputs[f"{nodes.OPTION}{index:03d}"].key == plain.cells[CELL].key
    assert early.inputs[nodes.CHOICE].key == cell.inputs["choice"].key
    trained = [o.inputs["model"].inputs["model"] for o in nodes.options(early).values()]
    assert {training.params.until for training in trained} == {1}


def test_every_form_says_what_was_chosen_and_what_it_cost(tuned, call):
    folder, found = tuned / "out", result(tuned).tuning
    cost = found["cost"]
    assert cost["intermediate"]["trainings"] == cost["intermediate"]["steps"] / 2 == len(RATES)
    assert cost["finetune"] == {"trainings": 6, "steps": 12}
    assert cost["evaluate"] == {"evaluations": 6}
    tokens = cost["intermediate"]["source_tokens"] + cost["intermediate"]["target_tokens"]
    (rate,) = found["tried"][found["chosen"]].values()
    chosen = f"intermediate.lr={json.dumps(rate)} (mean scores: 0.001: "
    spent = f"3 intermediate trainings of 6 steps in all, {tokens:,} tokens and 6 fine-tunings"
    for name in ("leaderboard.md", "leaderboard.csv", "leaderboard.html"):
        text = (folder / name).read_text()
        assert chosen in text and spent in text, name
    with (folder / "leaderboard.csv").open() as file:
        rows = {row["policy"]: row for row in csv.DictReader(file)}
    assert rows["none"]["tuned"] == rows["none"]["tuning cost"] == ""
    document = json.loads((folder / "leaderboard.json").read_text())
    assert document["rows"][1]["tuning"]["zsre"] == found
    (record,) = json.loads((folder / "run.json").read_text())["tuned"]
    assert record == {"row": "random", "values": {"intermediate.lr": rate}, **found}

    frame = mp.load(folder, store=tuned / "store").scores()
    assert set(frame[frame.policy == "random"]["intermediate.lr"]) == {rate}
    assert frame[frame.policy == "none"]["intermediate.lr"].isna().all()
    words = ("export", folder, "random", "--store", tuned / "store", "--out", tuned / "model")
    code, _, err = call(*words)
    assert code == 0, err
    assert f"* {chosen}" in (tuned / "model" / "README.md").read_text()


NEW = 2 * (1 + len(RATES))  # trainings of `none`, and of each candidate, on both tasks


@pytest.mark.parametrize(
    ("key", "computed"),
    [
        ("seeds=[0]", {}),
        (
            "policies=[none, random, {name: random, ratio: 0.3}]",
            # evaluated on dev; then two on test, of the chosen one
            {"intermediate": 3, "finetune": 6, "evaluate": 6, "choose": 1, "take": 2},
        ),
        ("seeds=[0, 1]", {"finetune": NEW, "evaluate": NEW, "choose": 1, "take": 4}),
        (
            "tune.intermediate.lr=[1e-3, 1e-4, 1e-5, 1e-2]",
            {"intermediate": 1, "finetune": 2, "evaluate": 2, "choose": 1, "take": 2},
        ),
        (
            "tasks=[zsre, wow, triviaqa]",
            {"train-examples": 1, "test-examples": 1, "audit": 1, "majority": 1}
            | {"finetune": 4, "evaluate": 4, "choose": 1, "take": 3},
        ),
    ],
)
def test_more_seeds_tasks_and_values_compute_only_what_is_new(tuned, key, computed):
    whole, store = graph(tuned, key)
    planned = planning.plan(whole.targets, store, targets=whole.targets)
    sure = [each for each in planned if each.state != "done" and "only if" not in each.why]
    assert Counter(each.stage.kind for each in sure) == computed


def test_a_row_whose_fine_tuning_is_tuned_chooses_for_each_task(tuned, call):
    words = ("--store", tuned / "store", "--out", tuned / "by-task")
    keys = ("policies=[none]", "tune={finetune.lr: [1e-3, 1e-2]}")
    assert call("run", tuned / "tiny.yaml", *keys, *words)[0] == 0
    for task in ("zsre", "wow"):
        found = result(tuned, f"none--{task}--0", "by-task").tuning
        assert (found["by"], found["tasks"]) == ("task", [task])
        assert "intermediate" not in found["cost"]
    board = build_leaderboard([read_run(tuned / "by-task")])
    assert [row.label for row in board.rows] == ["none"]
    assert set(board.rows[0].tuning) == {"zsre", "wow"}


SWEEP = {"name": "random", "grid": {"ratio": [0.15, 0.3]}}
SWEPT = small.experiment(
    policies=["none", SWEEP], grid={"finetune.lr": [1e-3, 1e-4]}, finetune=FINETUNE
)
ROWS = [
    f"{row} finetune.lr={lr}"
    for row in ("none", "random ratio=0.15", "random ratio=0.3")
    for lr in ("0.001", "0.0001")
]
ONE = "policies=[none, {name: random, ratio: 0.3}]"


@pytest.fixture(scope="module")
def swept(run_tiny):
    """Run a tiny experiment with sweeps; its folder, with its store and its run."""
    return run_tiny(SWEPT)


def test_each_row_is_compared_with_the_baseline_of_its_own_budget(swept):
    board = json.loads((swept / "out" / "leaderboard.json").read_text())
    assert [row["policy"] for row in board["rows"]] == ROWS
    assert [row["baseline"] for row in board["rows"]] == ROWS[:2] * 3
    assert board["rows"][2]["trainings"] == {"finetune": {"lr": 0.001}}
    assert f"compared with {ROWS[0]}: {ROWS[2]}, {ROWS[4]}" in board["notes"]
    budget = board["measured"]["settings"]["fine-tuning"]
    assert f"learning rate 0.0001 ({ROWS[1]}, {ROWS[3]}, {ROWS[5]})" in budget


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
