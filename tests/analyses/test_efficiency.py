"""Scores of checkpoints and by slices of examples, and losses before and after a stage."""

import json
import statistics
from dataclasses import replace
from pathlib import Path

import folders
import pytest
import small

from maskpolicy.analyses import intermediate_stages, points
from maskpolicy.analyses.builtin import knowledge
from maskpolicy.analyses.builtin.efficiency import Efficiency, Figure3
from maskpolicy.analyses.builtin.knowledge import Cloze, Forgetting
from maskpolicy.leaderboard.results.cell import Run, read_run
from maskpolicy.pipeline.store.artifacts import Store

ROWS = {"none": 0.1, "random": 0.12, "salient-span": 0.9}


def kept(folder: Path, store: Store, step: int = 500, answered: bool = True) -> Run:
    """Return a run with checkpoints of one step."""
    run = read_run(folders.write(folder, ROWS, ("zsre",), seeds=3))
    return folders.with_checkpoints(run, store, step, answered=answered)


def test_each_step_is_tested_against_the_baseline_as_one_family(tmp_path, store):
    found = Efficiency().analyse([kept(tmp_path / "run", store)], store)
    rows = {(row["policy"], row["steps"]): row for row in found.rows}
    row, before = (rows["salient-span", steps] for steps in (500, 0))
    assert row["difference"] == pytest.approx(row["score"] - before["score"])
    assert row["p (Holm)"] < 0.05
    assert row["detectable"] is None
    assert rows["random", 500]["p (Holm)"] > 0.05
    assert rows["random", 500]["detectable"] > 0
    assert "p (Holm)" not in rows["random", 0]
    assert any("other seeds" in note for note in found.notes)
    json.dumps(list(found.rows))


def test_without_its_answers_in_the_store_a_step_has_no_test(tmp_path, store):
    found = Efficiency().analyse([kept(tmp_path / "run", store, answered=False)], store)
    rows = {(row["policy"], row["steps"]): row for row in found.rows}
    assert "p (Holm)" not in rows["salient-span", 500]
    assert rows["salient-span", 1000]["p (Holm)"] < 0.05
    assert found.partial
    assert any("no predictions" in note for note in found.notes)


def test_points_that_are_missing_for_one_reason_are_one_note(tmp_path, store):
    run = kept(tmp_path / "run", store)
    early = [replace(each, metrics=None, error="it broke") for each in run.early]
    notes = points([replace(run, early=tuple(early))])[1]
    places = [f"run, {row}, step 500, zsre, seeds 0, 1, 2" for row in ROWS]
    assert notes == [f"9 scores are missing: it broke ({'; '.join(places)})"]


def test_step_0_has_a_number_for_each_general_model_and_a_baseline_without_stage_a_note(
    tmp_path, store
):
    run = read_run(folders.write(tmp_path / "run", ROWS, ("zsre",), seeds=4, general_seeds=2))
    found = Figure3().analyse([folders.with_checkpoints(run, store, 500)], store)
    assert {(row["steps"], row["runs"]) for row in found.rows} == {(0, 2), (500, 4), (1000, 4)}
    says = "run: has no differences, because the baseline none has no intermediate stage: set"
    assert [note.rpartition(" baseline: ")[0] for note in found.notes] == [says]
    found = Figure3().analyse([replace(run, baseline="random")], store)
    assert not any("differences" in note for note in found.notes)


def test_bars_of_several_intermediate_runs_have_names_of_their_own(monkeypatch, store):
    row = {"policy": "random", "kind": "people", "right name": 1.0, "wrong name": 0.0}
    rows = [{**row, "stage": stage} for stage in (0, 1)]
    monkeypatch.setattr(knowledge, "rows_of_stages", lambda *_: (rows, []))
    (panel,) = Cloze().analyse([], store).plots
    assert panel.names == ["random, run 0, people", "random, run 1, people"]


CHANGED = {"name": "original", "replacement": {"mask": 0.9, "random": 0.1}}
MIXTURE = {"name": "mixture", "members": [CHANGED, "salient-span", "pmi", "first-words"]}
EXPERIMENT = small.experiment(
    **{"policies": ["random"], "baseline": "random", "plugins": ["mine.py"]},
    general={"steps": 4, "batch_size": 8, "warmup": 1, "policy": MIXTURE},
)
PLUGINS = {"mine.py": small.POLICY.format(name="first-words")}


@pytest.mark.slow
def test_each_target_form_of_a_mixture_has_its_own_loss(analyse, home):
    found = analyse("forgetting", "passages=32")
    rows = {row["target"]: row for row in found["rows"]}
    assert [*rows] == ["full", "spans"]
    assert len(found["plots"]) == 2
    for row in rows.values():
        assert row["difference"] == pytest.approx(row["after"] - row["before"])
        assert row["low"] is None or row["low"] <= row["difference"] <= row["high"]
    # three policies of the mixture have spans targets, and each masks every passage in turn
    store = Store(home / "store")
    run = read_run(home / "run")
    stage = next(iter(intermediate_stages([run], store)[0]))
    params = [params for _, params, _, _ in Forgetting()._objectives(stage, store)]
    assert [each.policy for each in params] == ["original", "salient-span", "pmi", "first-words"]
    assert [*(params[3].code or {})] == ["mine.py"] and params[0].code is None
    assert run.results[0].config["general"]["policy"]["name"] == "mixture"
    board = (home / "run" / "leaderboard.md").read_text()
    assert "policy mixture of original and salient-span and pmi and first-words" in board


SHARES = {"none": 0.3, "random": 0.7}


@pytest.fixture
def run(tmp_path):
    """Return a run whose examples have the slices field and name, and some of them term."""
    folder = folders.write(tmp_path / "run", SHARES, ("zsre", "triviaqa"), seeds=2)
    for row in folders.edited(folder / "predictions", "*zsre*"):
        number = int(row["id"].removeprefix("zsre-"))
        row["slices"] = {"field": f"field {number % 2}", "name": str(number)}
        row["slices"] |= {"term": "island"} if number < 10 else {}
    return folder


def scores(run, policy, seed, wanted):
    path = run / "predictions" / f"{policy}--zsre--{seed}.jsonl"
    rows = enumerate(map(json.loads, path.read_text().splitlines()))
    return [100 * row["score"] for number, row in rows if wanted(number)]


def test_each_slice_has_a_mean_over_its_examples_and_seeds(done, run):
    out, _ = done("analyze", "slices", run, "--store", run / "store", "--json")
    document = json.loads(out)
    found = {(row["slice"], row["value"], row["policy"]): row for row in document["rows"]}
    wanted = {
        ("field", "field 0"): lambda number: number % 2 == 0,
        ("field", "field 1"): lambda number: number % 2,
        ("term", "island"): lambda number: number < 10,
    }
    assert {key[:2] for key in found} == {*wanted}
    for (name, value), holds in wanted.items():
        for policy in SHARES:
            means = [statistics.fmean(scores(run, policy, seed, holds)) for seed in (0, 1)]
            row = found[name, value, policy]
            assert row["score"] == pytest.approx(statistics.fmean(means))
            assert row["std"] == pytest.approx(statistics.stdev(means))
            assert (row["examples"], row["seeds"]) == (30 if name == "field" else 10, 2)
    titles = [plot["title"] for plot in document["plots"]]
    assert titles == ["zsre: score (%) by field", "zsre: score (%) by term"]
    done("analyze", "slices", run, "--store", run / "store")
    assert (run / "analyses" / "slices" / "slices.svg").is_file()


def test_a_metric_that_is_no_mean_over_examples_has_no_slices(refused, run):
    folders.change(run, "*", metrics={"score": 0.1, "mean": 0.5, "parts": {}})
    said = refused("analyze", "slices", run, "--store", run / "store")
    assert "no task has slices and a metric that is a mean over examples" in said


def test_a_tuned_row_begins_at_the_tuned_row_without_a_stage_whatever_both_chose(run):
    found = read_run(run)
    tuned = [
        replace(one, config={**one.config, "tune": {"finetune.lr": [0.1, 0.2]}, "finetune": budget})
        for one in found.results
        for budget in [{**folders.BUDGET, "lr": 0.1 if one.policy == "none" else 0.2}]
    ]
    for results, steps in ((tuned, [0, 1000]), ([*tuned[4:], *found.results[:4]], [1000])):
        made, _ = points([replace(found, results=tuple(results))])
        assert [(one.policy, one.steps) for one in made if one.task == "zsre"] == [
            ("random", each) for each in steps
        ]


def test_a_slice_with_too_many_values_is_named(refused, run):
    for row in folders.edited(run / "predictions"):
        row["slices"] = {"name": row["id"]}
    said = refused("analyze", "slices", run, "--store", run / "store")
    assert "zsre: name has 60 values: a slice with over 40 is left out" in said
