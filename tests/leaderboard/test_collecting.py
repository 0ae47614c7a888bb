import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from maskpolicy.core.types import Denoising, Json
from maskpolicy.experiment import definition
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.definition import Experiment
from maskpolicy.experiment.world_settings import Settings
from maskpolicy.leaderboard.results import collecting
from maskpolicy.leaderboard.results.cell import read_run
from maskpolicy.leaderboard.results.collecting import cell_config
from maskpolicy.pipeline.graph.events import Outcome
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.graph.nodes import Stage, StageRun, stage, topological
from maskpolicy.pipeline.stages import Graph, build
from maskpolicy.pipeline.stages.params import IntermediateParams, ReaderParams
from maskpolicy.pipeline.store.artifacts import Store
from tests.experiment.conftest import plugin


@dataclass(frozen=True)
class Cell:
    score: float = 0.0
    fails: bool = False


@stage("collecting-cell")
def cell(params: Cell, inputs: Mapping[str, Path], out: Path, run: StageRun) -> None:
    if params.fails:
        raise ValueError("no such luck")
    metrics = {"metric": "exact_match", "version": 1, "score": params.score, "n": 4}
    (out / "result.json").write_text(json.dumps(metrics))
    rows = [
        {"id": name, "group": name, "prediction": "b", "score": params.score} for name in "abcd"
    ]
    (out / "predictions.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


@pytest.fixture
def experiment(load):
    return load()


@pytest.mark.parametrize("name", ["result.json", "predictions.jsonl"])
def test_a_file_that_was_damaged_since_its_stage_ended_is_not_copied(
    experiment, store, tmp_path, name
):
    stage = Stage("collecting-cell", "a", Cell(0.25))
    outcomes = execute([stage], store)
    path = store.path(stage.key) / name
    path.write_text(path.read_text().replace("0.25", "0.75"))
    graph = Graph((stage,), {("none", "triviaqa", 0): stage}, {})
    (result,) = collecting.collect(experiment, graph, outcomes, store, tmp_path / "out").results
    assert not result.answers.exists()
    if name == "result.json":
        assert result.metrics is None
        assert result.error == "its artifact is not in the store"


@pytest.mark.parametrize("score", [0.25, 0.5])
def test_a_failed_stage_leaves_a_result_of_the_same_key(experiment, store, tmp_path, score):
    first, second = (Stage("collecting-cell", "a", Cell(each)) for each in (0.25, score))
    killed = {second.key: Outcome(second, error="killed")}
    for evaluation, outcomes in ((first, execute([first], store)), (second, killed)):
        graph = Graph((evaluation,), {("none", "triviaqa", 0): evaluation}, {})
        (result,) = collecting.collect(experiment, graph, outcomes, store, tmp_path / "out").results
        store = Store(tmp_path / "removed")
    is_same = score == 0.25
    assert (result.percent, result.error) == ((25, None) if is_same else (None, "killed"))
    assert result.answers.exists() == is_same


def unfinished(experiment: Experiment, kind: str) -> tuple[Graph, dict[str, Outcome], Stage]:
    """Return a graph whose cells all failed, their outcomes, and its one stage of a kind."""
    graph = build(experiment)
    (behind,) = [one for one in topological(graph.stages) if one.kind == kind]
    return graph, {one.key: Outcome(one, error="bad luck") for one in graph.stages}, behind


def test_a_result_says_where_memory_ran_out(experiment, store, tmp_path):
    graph, outcomes, trained = unfinished(experiment, "intermediate")
    how = {"micro_tokens": 512, "step": 7}
    with store.write(trained.key, trained.record() | {"facts": {"shrunk": how}}):
        pass
    run = collecting.collect(experiment, graph, outcomes, store, tmp_path / "out")
    expected = {"none": None, "random": {trained.name: how}}
    for results in (run.results, read_run(tmp_path / "out").results):
        assert {each.policy: each.shrunk for each in results} == expected
    assert "shrunk" not in json.loads((tmp_path / "out/results/none--zsre--0.json").read_text())


def test_a_result_tells_the_weights_of_its_general_model(experiment, tmp_path):
    graph, outcomes, general = unfinished(experiment, "general")
    found = []
    for name, weights, config in (("a", "1", "{}"), ("b", "1", "{ }"), ("c", "2", "{}")):
        store = Store(tmp_path / name)
        with store.write(general.key, general.record()) as folder:
            (folder / "model.safetensors").write_text(weights)
            (folder / "config.json").write_text(config)
        run = collecting.collect(experiment, graph, outcomes, store, tmp_path / f"out-{name}")
        found += [{each.weights for each in run.results}]
        assert {each.weights for each in read_run(tmp_path / f"out-{name}").results} == found[-1]
    assert [len(each) for each in found] == [1, 1, 1]
    assert found[0] == found[1] != found[2]


def test_a_folder_reads_back_as_it_was_collected_without_cells_that_are_gone(
    experiment, store, tmp_path
):
    cells = {
        ("none", "triviaqa", 0): Stage("collecting-cell", "a", Cell(0.25)),
        ("none", "zsre", 0): Stage("collecting-cell", "b", Cell(0.5)),
        ("random", "triviaqa", 0): Stage("collecting-cell", "c", Cell(fails=True)),
        ("random", "zsre", 0): Stage("collecting-cell", "d", Cell(1.0)),
    }
    graph, outcomes = Graph(tuple(cells.values()), cells, {}), execute(cells.values(), store)
    gone = tmp_path / "out" / "results" / "old--zsre--0.json"
    gone.parent.mkdir(parents=True)
    gone.write_text("{}")
    run = collecting.collect(experiment, graph, outcomes, store, tmp_path / "out")
    assert gone.exists() and run.dropped == ("old--zsre--0",)
    again = read_run(tmp_path / "out")
    by_name = {(r.policy, r.task, r.seed): r for r in run.results}
    assert {(r.policy, r.task, r.seed): r for r in again.results} == by_name
    assert replace(again, results=run.results) == run
    answered = {path.stem for path in (tmp_path / "out" / "predictions").iterdir()}
    assert answered == {"none--triviaqa--0", "none--zsre--0", "random--zsre--0"}
    assert by_name["random", "triviaqa", 0].error == "ValueError: no such luck"


def test_a_result_tells_the_code_and_the_pipeline_behind_its_policy():
    def policy(code: Json = None, depends: Json = None, members: Json = None) -> Json:
        about: dict[str, Json] = {"policy": "mine", "fields": {}, "code": code or {}}
        annotate = ReaderParams(**about, depends=depends or {})
        trained = IntermediateParams(**about, member_code=members, how=Denoising(), spec=Training())
        behind = [
            Stage("annotate", "a", annotate),
            Stage("intermediate", "b", trained),
            Stage("world", "", Settings()),
        ]
        found = collecting._code(behind)
        assert set(found["versions"]) == {"annotate", "intermediate"}
        return found["policy"]

    assert policy() is None
    told = [policy({"mine.py": "a"}), policy({"mine.py": "b"}), policy(None, {"version": "3.8"})]
    told += [policy({"draws.py": "a"}, None, {"mine": {"mine.py": digest}}) for digest in "bc"]
    assert len({*told, None}) == 6
    assert told[0] == policy({"mine.py": "a"})


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("replaced_token_detection.weight", [25.0, 50.0]),
        ("replacement", [{"mask": 0.8, "random": 0.1, "keep": 0.1}]),
        ("intermediate.betas", [[0.8, 0.9]]),
    ],
)
def test_the_values_of_any_tuned_key_can_be_written(load, key, values):
    made = load("model={kind: encoder, name: mini}", f"tune={json.dumps({key: values})}")
    row = made.policies[1]
    found = [collecting.tuned_values(each, row.tune) for each in row.candidates]
    assert json.loads(json.dumps(found)) == [{key: value} for value in values]


@pytest.mark.parametrize(
    ("keys", "runs", "models"),
    [
        (["intermediate_seeds=2"], [0, 1, 0, 1], [0, 1, 0, 1]),
        (["intermediate_runs=[3, 4]"], [3, 4, 3, 4], [3, 4, 3, 4]),
        (["intermediate_seeds=4", "general_seeds=2"], [0, 1, 2, 3], [0, 1, 0, 1]),
    ],
)
def test_seeds_take_runs_and_general_models_in_turn(load, keys, runs, models):
    made = load("seeds=[5, 6, 7, 8]", *keys)
    none, random = (
        [cell_config(made, policy, made.tasks[0], seed) for seed in made.seeds]
        for policy in made.policies
    )
    assert [each["intermediate_seed"] for each in random] == runs
    assert [each["general_seed"] for each in random] == models
    assert [each["general_seed"] for each in none] == models
    assert not {"corpus", "intermediate", "fit"} & {*none[0]} and "fit" not in random[0]
    assert random[0]["intermediate"]["steps"] == made.intermediate.steps


def test_the_settings_of_a_cell_do_not_take_longer_with_more_rows(experiment, monkeypatch):
    resolved, seen = definition.resolved_policy, []
    monkeypatch.setattr(
        definition, "resolved_policy", lambda block: seen.append(block) or resolved(block)
    )
    row, task = experiment.policies[1], experiment.tasks[0]
    alone = replace(experiment, policies=(row,), tasks=(task,))
    assert cell_config(experiment, row, task, 0) == cell_config(alone, row, task, 0)
    assert seen == []  # the row itself is read in `collecting`


@pytest.mark.parametrize(
    "keys",
    [
        ["general={corpus: world, steps: 5}"],
        ["contrast_corpus=world", "policies=[none, difference-masking]"],
        ["policies=[none, {name: supervised, train_on: [triviaqa]}]", "data=world"],
    ],
)
def test_a_cell_names_the_world_that_one_of_its_stages_reads(load, tmp_path, keys):
    (tmp_path / "a.txt").write_text("A text.")
    own = ("model=bart", "corpus={files: [a.txt]}", f"tasks=[{{name: table, data: '{tmp_path}'}}]")
    found = []
    for more in ([], keys):
        made = load(*own, *more)
        found.append("world" in cell_config(made, made.policies[1], made.tasks[0], 0))
    assert found == [False, True]


CONCEPTS = "{name: concepts, graph: one.txt}"


@pytest.mark.parametrize(
    "keys",
    [
        [f"general.policy={CONCEPTS}"],
        ["policies=[{name: mixture, label: none, members: [its-own]}]", "plugins=[mine.py]"],
        [
            "policies=[{name: mixture, label: none, members: ["
            f"{CONCEPTS}, {{name: concepts, graph: two.txt}}]}}]"
        ],
    ],
)
def test_what_members_and_the_policy_of_the_general_stage_rest_on_counts(
    load, tmp_path, monkeypatch, keys
):
    monkeypatch.chdir(tmp_path)
    Path("two.txt").write_text("Paris\tFrance\n")
    found = []
    for text in ("London\tEngland\n", "Rome\tItaly\n"):
        Path("one.txt").write_text(text)
        Path("mine.py").write_text(plugin("its-own", f"place = {text!r}"))
        cell = build(load(*keys)).cells["none", "zsre", 0]
        found.append(collecting._code(topological([cell]))["policy"])
    assert None not in found and len({*found}) == 2
