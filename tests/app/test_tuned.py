"""Experiments with tuned rows: run, and planned with more."""

import csv
import json
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import folders
import pytest
import small

import maskpolicy as mp
from maskpolicy.experiment.parse import load_experiment
from maskpolicy.leaderboard import description
from maskpolicy.leaderboard.build import build_leaderboard
from maskpolicy.leaderboard.results import collecting
from maskpolicy.leaderboard.results.cell import read_result, read_run
from maskpolicy.pipeline import stages
from maskpolicy.pipeline.graph import nodes, planning
from maskpolicy.pipeline.graph.nodes import topological
from maskpolicy.pipeline.stages import evaluation, tuned_rows
from maskpolicy.pipeline.stages.params import ChooseParams, TakeParams
from maskpolicy.pipeline.store.artifacts import Store

RATES = (1e-3, 1e-4, 1e-5)
FINETUNE = {"steps": 2, "warmup": 1, "batch_size": 4, "max_source": 24}
TUNE = {"intermediate.lr": [*RATES], "on": "dev"}
TINY = small.experiment(tasks=["zsre", "wow"], tune=TUNE, finetune=FINETUNE)
CELL = ("random", "zsre", 0)


@pytest.fixture(scope="module")
def tuned(run_tiny):
    """Run a tiny experiment with a tuned row; its folder, with its store and its run."""
    return run_tiny(TINY, {"pairs.csv": "good,bad\nAda was born.,Ada were born.\n"})


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


def test_the_first_of_equal_best_means_over_tasks_and_seeds_is_chosen(tmp_path):
    """The models of these tests are too small to differ on dev."""
    scores, inputs = [0.1, 0.2, 0.9, 0.1, 0.4, 0.6], {}
    for number, score in enumerate(scores):
        name = tuned_rows.score_name(*divmod(number, 2), 0)  # candidate, task and seed
        inputs[name] = tmp_path / name
        inputs[name].mkdir()
        (inputs[name] / evaluation.RESULT).write_text(json.dumps({"score": score}))
    params = ChooseParams(candidates=3, tasks=2, seeds=1)
    tuned_rows.choose(params, inputs, tmp_path, SimpleNamespace())
    found = json.loads((tmp_path / nodes.FILE).read_text())
    assert (found["candidate"], found["input"]) == (1, f"{nodes.OPTION}001")
    assert found["scores"] == pytest.approx([0.15, 0.5, 0.5])


def test_the_cell_of_the_chosen_candidate_is_copied(tmp_path):
    inputs = {name: tmp_path / name for name in ("choice", "option-000", "option-001")}
    for name, folder in inputs.items():
        folder.mkdir()
        for file in (evaluation.RESULT, evaluation.PREDICTIONS, "MANIFEST.json"):
            (folder / file).write_text(name)
    (inputs["choice"] / nodes.FILE).write_text(json.dumps({"input": "option-001"}))
    (tmp_path / "out").mkdir()
    tuned_rows.take(TakeParams(), inputs, tmp_path / "out", SimpleNamespace())
    found = {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}
    assert found == dict.fromkeys((evaluation.RESULT, evaluation.PREDICTIONS), "option-001")


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


def test_a_part_keeps_what_was_chosen_when_the_store_is_gone(tuned, tmp_path):
    again = folders.collect_without_store(tuned, "out", tmp_path)
    assert result(tuned).tuning
    assert folders.contents(again / "results") == folders.contents(tuned / "out" / "results")


def test_every_form_says_what_was_chosen_and_what_it_cost(tuned, done):
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
    done(*words)
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


def test_models_of_a_finished_tuned_row_can_be_kept_later(tuned):
    whole, store = graph(tuned, "keep_models=[finetune]")
    planned = planning.plan(whole.targets, store, targets=whole.targets)
    lacking = [each.stage.name for each in planned if each.state != "done"]
    rows = ["none", *(f"random intermediate.lr={json.dumps(rate)}" for rate in RATES)]
    names = {f"finetune {row}, {task}, seed 0" for row in rows for task in ("zsre", "wow")}
    assert {*lacking} == names


def test_a_row_whose_fine_tuning_is_tuned_chooses_for_each_task(tuned, done):
    words = ("--store", tuned / "store", "--out", tuned / "by-task")
    keys = ("policies=[none]", "tune={finetune.lr: [1e-3, 1e-2]}")
    done("run", tuned / "tiny.yaml", *keys, *words)
    for task in ("zsre", "wow"):
        found = result(tuned, f"none--{task}--0", "by-task").tuning
        assert (found["by"], found["tasks"]) == ("task", [task])
        assert "intermediate" not in found["cost"]
    board = build_leaderboard([read_run(tuned / "by-task")])
    assert [row.label for row in board.rows] == ["none"]
    assert set(board.rows[0].tuning) == {"zsre", "wow"}


@pytest.mark.parametrize("key", ["intermediate.lr", "finetune.lr"])
def test_pairs_are_answered_by_the_candidate_that_other_tasks_choose(tuned, done, key):
    tasks = f"tasks=[zsre, {{name: pairs, data: {tuned}}}]"
    words = ("--store", tuned / "store", "--out", tuned / key)
    done("run", tuned / "tiny.yaml", tasks, f"tune={{{key}: [1e-3, 1e-4]}}", *words)
    found = result(tuned, "random--pairs--0", key)
    assert found.metrics.score in (0, 1) and not found.is_fine_tuned
    assert (found.tuning["by"], found.tuning["tasks"]) == ("row", ["zsre"])
    assert found.tuning["scores"] == result(tuned, out=key).tuning["scores"]
    assert ("intermediate" in found.tuning["cost"]) == key.startswith("intermediate")


def test_a_row_without_dev_examples_to_choose_by_is_one_line(tuned, refused):
    tasks = f"tasks=[{{name: pairs, data: {tuned}}}]"
    said = refused("plan", tuned / "tiny.yaml", tasks, "--store", tuned / "store")
    assert "tasks: none has dev examples for row random to choose by: add one that" in said


def test_a_row_with_a_classifier_has_one_model_for_all_tasks(tmp_path):
    learned = {"name": "typhoon", "label": "it", "train_on": ["cola"]}
    keys = {"policies": ["none", learned], "tasks": ["cola", "squad"]}
    keys |= {"model": {"kind": "encoder", "name": "mini"}, "tune": {"finetune.lr": [1e-3, 1e-4]}}
    (tmp_path / "tiny.yaml").write_text(small.experiment(**keys, world={"kinds": ["people"]}))
    whole, store = graph(tmp_path)
    experiment = load_experiment(tmp_path / "tiny.yaml")
    cells = {task: whole.cells["it", task, 0] for task in ("cola", "squad")}
    (choice,) = {cell.inputs[nodes.CHOICE] for cell in cells.values()}
    made = {"candidate": 1, "input": f"{nodes.OPTION}001", "scores": [0.1, 0.2]}
    with store.write(choice.key, {}) as folder:
        (folder / nodes.FILE).write_text(json.dumps(made))
    for block, cell in zip(experiment.tasks, cells.values(), strict=True):
        _, _, about = collecting._chosen(experiment, experiment.policies[1], block, cell, store)
        trained = {kind: known.get("trainings") for kind, known in about["cost"].items()}
        assert (about["by"], about["tasks"]) == ("row", ["cola", "squad"])
        assert [trained[kind] for kind in ("finetune-classifier", "fit", "intermediate")] == [2] * 3
        told = description.cost(SimpleNamespace(tuning=about))
        assert "2 fine-tunings of classifiers of 4 steps in all" in told


def test_the_cost_has_the_steps_that_were_taken_and_the_tokens_of_feedback(tuned, tmp_path):
    whole, store = graph(tuned)
    choice = whole.cells[CELL].inputs["choice"]
    known = Store(tmp_path)
    for one in topological([choice]):
        with known.write(one.key, {"facts": {"steps": 1}}) as folder:  # early, by `patience`
            (folder / "work.json").write_text('{"source_tokens": 5, "feedback_tokens": 7}')
    cost = collecting._cost(choice, ("intermediate", "finetune"), known)
    assert cost["finetune"]["steps"] == 6  # of 2 steps each
    assert cost["intermediate"]["feedback_tokens"] == 3 * 7
    about = replace(result(tuned), tuning={**result(tuned).tuning, "cost": cost})
    assert ", 36 tokens" in description.cost(about)
    trained = [one for one in topological([choice]) if one.kind == "finetune"]
    assert {store.recall(one.key)["record"]["facts"]["steps"] for one in trained} == {2}
