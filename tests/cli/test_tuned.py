"""Rows that choose values on dev: what is computed, what the run says of it, what is new later."""

from __future__ import annotations

import csv
import json
from collections import Counter

import pytest

import maskpolicy as mp
from maskpolicy import stages
from maskpolicy.config.parse import load_experiment
from maskpolicy.graph import picking, planning
from maskpolicy.graph.nodes import topological
from maskpolicy.leaderboard.build import build_leaderboard
from maskpolicy.results.cell import read_result, read_run
from maskpolicy.store.artifacts import Store

TINY = """
model: mini
corpus: world
policies: [none, random]
tasks: [zsre, wow]
tune: {intermediate.lr: [1e-3, 1e-4, 1e-5], on: dev}
world: {people: 8, general_people: 6}
general: {steps: 2, warmup: 1, batch_size: 4}
intermediate: {steps: 2, warmup: 1, batch_size: 4}
finetune: {steps: 2, warmup: 1, batch_size: 4, max_source: 24}
"""
RATES = (1e-3, 1e-4, 1e-5)
BY_TASK = ("policies=[none]", "tune={finetune.lr: [1e-3, 1e-2]}")


@pytest.fixture(scope="module")
def tuned(run_tiny):
    """Run a tiny experiment with a tuned row; its folder, with its store and its run."""
    return run_tiny(TINY)


def graph(folder, *overrides):
    store = Store(folder / "store")
    experiment = load_experiment(folder / "tiny.yaml", overrides)
    return stages.build(experiment, store.hash_file), store


def tuning(folder, cell="random--zsre--0", out="out"):
    return read_result(folder / out / "results" / f"{cell}.json").tuning


def dev_scores(folder, task):
    """Return the score of each candidate on the dev examples of a task, read from the store."""
    made, store = graph(folder)
    found = {each.label: each for each in topological(made.stages) if each.kind == "evaluate"}
    scores = []
    for rate in RATES:
        stage = found[f"random intermediate.lr={json.dumps(rate)}, {task}, seed 0, dev"]
        scores.append(json.loads(store.file(stage.key, "result.json").read_text())["score"])
    return scores


def test_the_best_mean_on_dev_is_chosen_for_all_tasks(tuned):
    found = tuning(tuned)
    by_task = [dev_scores(tuned, task) for task in ("zsre", "wow")]
    means = [sum(each) / 2 for each in zip(*by_task, strict=True)]
    assert found["scores"] == pytest.approx(means)
    assert found["chosen"] == means.index(max(means))
    assert found["tried"] == [{"intermediate.lr": rate} for rate in RATES]
    assert (found["by"], found["tasks"], found["seeds"]) == ("row", ["zsre", "wow"], [0])
    assert tuning(tuned, "random--wow--0") == found
    assert tuning(tuned, "none--wow--0") is None


def test_only_the_chosen_candidate_is_evaluated_on_test(tuned):
    made, store = graph(tuned)
    for (row, _, _), cell in made.cells.items():
        options = picking.options(cell)
        there = [store.has(option.key) for option in options.values()]
        assert sum(there) == (row == "random")
    left = [s.name for s in topological(made.stages) if s.transient and store.has(s.key)]
    assert left == []


def test_the_result_has_the_settings_and_stages_of_the_chosen_candidate(tuned):
    result = read_result(tuned / "out" / "results" / "random--zsre--0.json")
    (rate,) = result.chosen.values()
    assert result.config["intermediate"]["lr"] == rate
    assert result.config["tune"] == {"intermediate.lr": list(RATES), "on": "dev"}
    trainings = [name for name in result.stages if name.startswith(("intermediate ", "finetune "))]
    assert len(trainings) == 2
    assert all(name.split(" ", 1)[1].startswith(result.trained_as) for name in trainings)


def test_a_cell_has_the_key_of_the_cell_with_the_chosen_value(tuned):
    made, _ = graph(tuned)
    cell = made.cells["random", "zsre", 0]
    for index, rate in enumerate(RATES):
        plain, _ = graph(tuned, "tune={}", f"intermediate.lr={rate}")
        option = cell.inputs[f"{picking.OPTION}{index:03d}"]
        assert option.key == plain.cells["random", "zsre", 0].key


def test_every_form_says_what_was_chosen_and_what_it_cost(tuned):
    found = tuning(tuned)
    cost = found["cost"]
    assert cost["intermediate"]["trainings"] == cost["intermediate"]["steps"] / 2 == len(RATES)
    assert cost["finetune"] == {"trainings": 6, "steps": 12}
    assert cost["evaluate"] == {"evaluations": 6}
    tokens = cost["intermediate"]["source_tokens"] + cost["intermediate"]["target_tokens"]
    (rate,) = found["tried"][found["chosen"]].values()
    chosen = f"intermediate.lr={json.dumps(rate)} (mean scores: 0.001: "
    spent = f"3 intermediate trainings of 6 steps in all, {tokens:,} tokens and 6 fine-tunings"
    folder = tuned / "out"
    for name in ("leaderboard.md", "leaderboard.csv", "leaderboard.html"):
        text = (folder / name).read_text()
        assert chosen in text, name
        assert spent in text, name
    with (folder / "leaderboard.csv").open() as file:
        rows = {row["policy"]: row for row in csv.DictReader(file)}
    assert rows["none"]["tuned"] == rows["none"]["tuning cost"] == ""
    document = json.loads((folder / "leaderboard.json").read_text())
    assert document["rows"][1]["tuning"]["zsre"] == found
    (record,) = json.loads((folder / "run.json").read_text())["tuned"]
    assert record == {"row": "random", "values": {"intermediate.lr": rate}, **found}


def test_frames_and_cards_have_what_was_chosen(tuned, call):
    (rate,) = json.loads((tuned / "out" / "run.json").read_text())["tuned"][0]["values"].values()
    frame = mp.load(tuned / "out", store=tuned / "store").scores()
    assert set(frame[frame.policy == "random"]["intermediate.lr"]) == {rate}
    assert frame[frame.policy == "none"]["intermediate.lr"].isna().all()
    words = ("export", tuned / "out", "random", "--store", tuned / "store")
    code, _, err = call(*words, "--out", tuned / "model")
    assert code == 0, err
    card = (tuned / "model" / "README.md").read_text()
    assert f"* intermediate.lr={json.dumps(rate)} (mean scores: " in card


def planned(folder, *overrides):
    """Return by kind the number of stages that a plan would compute in any case."""
    made, store = graph(folder, *overrides)
    found = planning.plan(made.targets, store, targets=made.targets)
    sure = [each for each in found if each.state != "done" and "only if" not in each.why]
    return Counter(each.stage.kind for each in sure)


def test_more_seeds_tasks_and_values_compute_only_what_is_new(tuned):
    assert not planned(tuned)
    one = {"finetune": 1, "evaluate": 1}  # a training, and its cell or its score on dev
    assert planned(tuned, "policies=[none, random, {name: random, ratio: 0.3}]") == {
        "intermediate": 3,
        "finetune": 6,
        "evaluate": 6,  # on dev; then two on test, of the chosen one
        "choose": 1,
        "take": 2,
    }
    found = planned(tuned, "seeds=[0, 1]")
    new = 2 * (1 + len(RATES))  # of `none`, and of each candidate, on both tasks
    assert found == {**{kind: new * n for kind, n in one.items()}, "choose": 1, "take": 4}
    found = planned(tuned, "tune.intermediate.lr=[1e-3, 1e-4, 1e-5, 1e-2]")
    assert found == {"intermediate": 1, "finetune": 2, "evaluate": 2, "choose": 1, "take": 2}
    found = planned(tuned, "tasks=[zsre, wow, triviaqa]")
    data = {"train-examples": 1, "test-examples": 1, "audit": 1, "majority": 1}
    assert found == {**{kind: 4 * n for kind, n in one.items()}, **data, "choose": 1, "take": 3}


def test_a_row_whose_fine_tuning_is_tuned_chooses_for_each_task(tuned, call):
    words = ("--store", tuned / "store", "--out", tuned / "by-task")
    assert call("run", tuned / "tiny.yaml", *BY_TASK, *words)[0] == 0
    found = [tuning(tuned, f"none--{task}--0", "by-task") for task in ("zsre", "wow")]
    assert [(each["by"], each["tasks"]) for each in found] == [
        ("task", ["zsre"]),
        ("task", ["wow"]),
    ]
    assert all("intermediate" not in each["cost"] for each in found)
    board = build_leaderboard([read_run(tuned / "by-task")])
    assert [row.label for row in board.rows] == ["none"]
    assert set(board.rows[0].tuning) == {"zsre", "wow"}


def test_runs_are_joined_by_what_was_to_be_chosen_and_what_was(tuned, call):
    board = build_leaderboard([read_run(tuned / "out"), read_run(tuned / "out")])
    assert [row.label for row in board.rows] == ["none", "random"]
    rows = "policies=[none, {name: random, tune: {intermediate.lr: [1e-3, 1e-4]}}]"
    words = ("--store", tuned / "store", "--out", tuned / "fewer")
    assert call("run", tuned / "tiny.yaml", rows, "tune={}", *words)[0] == 0
    board = build_leaderboard([read_run(tuned / "out"), read_run(tuned / "fewer")])
    assert [row.label for row in board.rows] == ["none", "random", "random intermediate.lr=tuned"]
    assert any(note.startswith("rows were not tuned alike") for note in board.notes)


def test_checkpoints_are_those_of_the_chosen_candidate(tuned):
    made, _ = graph(tuned, "checkpoint_steps=[1]")
    early = made.early["random", "zsre", 0, 1]
    assert early.inputs[picking.CHOICE].key == made.cells["random", "zsre", 0].inputs["choice"].key
    options = picking.options(early)
    assert {option.inputs["model"].inputs["model"].params.until for option in options.values()} == {
        1
    }


@pytest.mark.slow
def test_two_jobs_give_the_same_bytes(tuned, call):
    words = ("--store", tuned / "store-2", "--out", tuned / "out-2", "--jobs", 2)
    assert call("run", tuned / "tiny.yaml", *words)[0] == 0
    for path in sorted((tuned / "out" / "results").glob("*.json")):
        assert (tuned / "out-2" / "results" / path.name).read_bytes() == path.read_bytes()
