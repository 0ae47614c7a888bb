"""What rows of several runs may differ in: each setting is harmless by a rule, or an error."""

import copy
from dataclasses import make_dataclass, replace
from typing import Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from maskpolicy.core import schema
from maskpolicy.core.errors import ConfigError
from maskpolicy.core.keys import canonical, plain
from maskpolicy.core.types import Json
from maskpolicy.experiment.budgets import TRAININGS, Training
from maskpolicy.experiment.definition import CorpusBlock, ModelBlock, TaskBlock
from maskpolicy.experiment.parse import File
from maskpolicy.experiment.policy_blocks import GeneralKeys
from maskpolicy.experiment.world_settings import Settings
from maskpolicy.leaderboard.board import Board
from maskpolicy.leaderboard.build import build_leaderboard
from maskpolicy.leaderboard.results import compatibility
from maskpolicy.leaderboard.results.cell import Result
from maskpolicy.leaderboard.results.collecting import cell_config
from maskpolicy.pipeline import stages
from maskpolicy.pipeline.graph.nodes import topological
from tests.leaderboard.test_build import result, run

SCHEMAS: dict[str, Any] = {
    **dict.fromkeys(TRAININGS, Training),
    "general": make_dataclass("General", (), bases=(GeneralKeys, Training), frozen=True),
    **dict.fromkeys(("corpus", "contrast_corpus"), CorpusBlock),
    **{"model": ModelBlock, "world": Settings, "task": TaskBlock},
}
NAMES = {"label", "fields"}  # of a column; its fields stand beside the other keys


def whole() -> Json:
    """Return the config of a cell of a learned policy with every key of every schema."""
    found = {
        section: {
            name: plain(field.default) if not field.is_required else f"a {name}"
            for name, field in schema.fields_of(known).items()
            if name not in NAMES
        }
        for section, known in SCHEMAS.items()
    }
    learnt = [{**found["task"], "name": "nq"}]
    policy = {"name": "supervised", "train_on": ["nq"], "target": "spans"}
    runs = {"intermediate_seeds": 1, "intermediate_seed": 0}
    return {**found, "policy": policy, "train_on": learnt, **runs}


def changed(value: Json) -> Json:
    """Return another value of the same kind."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, list):
        return [*value, 1]
    if isinstance(value, dict):
        first = min(value)
        return {**value, first: changed(value[first])}
    return f"{value}, another" if isinstance(value, str) else value + 1


PLACES = sorted(
    f"{section}.{key}" for section, block in whole().items() if section in SCHEMAS for key in block
)


def cell(settings: Json, **more: Any) -> Result:
    made = result("supervised", "zsre", 0, 0.5)
    return replace(made, config=settings, **more)


def joined(one: Result, other: Result) -> Board:
    """Join two runs: `other` is a cell of another policy, so that no row is shared."""
    policy = {**other.config["policy"], "name": "random"}
    other = replace(other, config={**other.config, "policy": policy}, policy="random")
    return build_leaderboard([run(one, baseline="supervised"), run(other, name="b")])


@given(st.sampled_from(PLACES))
def test_a_setting_that_differs_is_harmless_by_a_rule_or_named_in_an_error(place):
    section, _, key = place.partition(".")
    settings = whole()
    settings[section][key] = changed(settings[section][key])
    if place in compatibility.HARMLESS:
        assert len(joined(cell(whole()), cell(settings)).rows) == 2
        return
    before, after = whole()[section][key], settings[section][key]
    while isinstance(before, dict):  # the settings of a nested block are compared one by one
        inner = next(name for name in before if before[name] != after[name])
        place, before, after = f"{place}.{inner}", before[inner], after[inner]
    line = refused(joined, cell(whole()), cell(settings))
    assert f"{place}: {canonical(before)} -> {canonical(after)}" in line


@given(st.sampled_from(sorted(TaskBlock.__dataclass_fields__.keys() - NAMES - {"metrics"})))
def test_what_a_policy_learned_from_is_the_same_task(key):
    settings = whole()
    settings["train_on"][0][key] = changed(settings["train_on"][0][key])
    with pytest.raises(ConfigError, match=rf"train_on\.nq\.{key}"):
        joined(cell(whole()), cell(settings))


def test_every_key_of_a_file_is_compared_or_harmless_by_a_rule():
    keys = set(schema.fields_of(File))
    assert keys <= {*SCHEMAS, *compatibility.HARMLESS}
    assert all(reason for reason in compatibility.HARMLESS.values())


OVERRIDES = [
    *(f"intermediate.{one}" for one in ("steps=9", "lr=0.5", "warmup=3", "seed=7")),
    *(f"finetune.{one}" for one in ("steps=9", "dropout=0.5", "max_grad_norm=0.5", "eval_every=2")),
    *(f"general.{one}" for one in ("steps=9", "betas=[0.5,0.9]", "max_target=9", "seed=5")),
    *("world.seed=3", "world.people=30", "corpus.words=50", "corpus.limit=9", "join=none"),
    *("keep_models=[finetune]", "checkpoint_steps=[3]", "intermediate.checkpoint_every=5"),
    "finetune.seed=3",
]


def test_what_changes_the_key_of_a_cell_stands_in_its_config(load):
    """But a row without an intermediate stage names no corpus: there the tokenizer is compared."""

    def cells(*overrides: str) -> list[tuple[str, Json, list[str]]]:
        made = load(*overrides)
        graph = stages.build(made)
        found = [graph.cells[policy.label, "triviaqa", 0] for policy in made.policies]
        tokenizer = [[s.key for s in topological([c]) if s.kind == "tokenizer"] for c in found]
        settings = [cell_config(made, row, made.tasks[0], 0) for row in made.policies]
        keys = [each.key for each in found]
        return list(zip(keys, settings, tokenizer, strict=True))

    before = cells()
    for override in OVERRIDES:
        for (key, *rest), (old_key, *old) in zip(cells(override), before, strict=True):
            assert key == old_key or rest != old, override


def test_columns_may_have_a_fine_tuning_of_their_own(load):
    tasks = "tasks=[{name: zsre, finetune: {steps: 50}}, triviaqa]"

    def results(*overrides: str) -> list[Result]:
        made = load("finetune.lr=0.1", tasks, *overrides)
        configs = [cell_config(made, made.policies[0], task, 0) for task in made.tasks]
        assert [config["finetune"]["steps"] for config in configs][1] == 120
        return [
            replace(result("none", task.name, 0, 0.5), config=config)
            for task, config in zip(made.tasks, configs, strict=True)
        ]

    for more in ((), ("finetune.eval_every=60", "finetune.patience=0")):  # no effect on zsre
        [row] = build_leaderboard([run(*results(*more))]).rows
        assert {task for task, _ in row.cells} == {"zsre", "triviaqa"}
    other = run(*results("tasks.0.finetune.steps=60"), name="b")
    with pytest.raises(ConfigError, match=r"zsre\.finetune\.steps: 50 -> 60"):
        build_leaderboard([run(*results()), other])


def test_the_same_files_may_lie_elsewhere_and_other_files_not_in_the_same_place():
    moved = whole()
    moved["task"]["data"], moved["corpus"]["files"] = "/elsewhere", ["/elsewhere/a.txt"]
    moved["general"]["corpus"] = {"files": ["/elsewhere/b.txt"]}
    names = ("train-examples zsre", "test-examples zsre", "corpus intermediate", "tokenizer x")
    names += ("corpus general",)
    keys = {name: f"{number}" * 64 for number, name in enumerate(names)}
    one = cell(whole(), stages=keys)
    assert len(joined(one, cell(moved, stages=keys)).rows) == 2
    for name in keys:
        with pytest.raises(ConfigError, match="the same settings, but other files"):
            joined(one, cell(whole(), stages=keys | {name: "d" * 64}))
    del keys["train-examples zsre"], keys["corpus intermediate"]  # pairs; one corpus for both
    one = cell(whole(), stages=keys)
    assert len(joined(one, cell(moved, stages=keys)).rows) == 2
    with pytest.raises(ConfigError, match=r"zsre\.task \(the same settings, but other files"):
        joined(one, cell(whole(), stages=keys | {"test-examples zsre": "d" * 64}))


@pytest.mark.parametrize("corpus", [{"name": "world"}, {"name": "mine", "files": ["a.txt"]}])
def test_a_corpus_of_another_world_differs_by_its_setting(corpus):
    runs = []
    for seed in (0, 1):
        block = {**plain(Settings()), "seed": seed}
        base = result("none", "zsre", 0, 0.5, world=block)
        row = result("random", "zsre", 0, 0.5, world=block, corpus=corpus)
        row = replace(row, stages={"corpus intermediate": f"{seed}" * 64})
        runs.append(run(base, row, name=f"run {seed}"))
    with pytest.raises(ConfigError, match=r"world\.seed: 0 -> 1.*`analyze worlds` compares worlds"):
        build_leaderboard(runs)
    notes = build_leaderboard(runs, mixed=True).notes
    about = [note for note in notes if note.startswith("mixed: ")]
    assert len(about) == 1
    assert "world.seed: 0 -> 1 (none (run 0) and none (run 1), and " in about[0]
    assert ("other files" in about[0]) is (corpus["name"] != "world")


def test_results_of_other_versions_of_the_code_are_not_ranked():
    one = cell(whole(), code={"versions": {"finetune": 1, "fit": 1}, "policy": None})
    other = cell(whole(), code={"versions": {"finetune": 2}, "policy": None})
    with pytest.raises(ConfigError, match="version of finetune: 1 -> 2"):
        joined(one, other)
    assert len(joined(one, cell(whole())).rows) == 2
    with pytest.raises(ConfigError, match=r"zsre\.metric version: 1 -> 2"):
        joined(one, cell(whole(), metrics=replace(one.metrics, version=2)))


def test_one_row_computed_on_two_machines_is_one_row():
    other = copy.deepcopy(whole())
    other["finetune"] |= {"micro_tokens": 32768, "precision": "fp32", "attention": "sdpa"}
    two = [run(cell(whole()), baseline="supervised"), run(cell(other, seed=1), name="b")]
    board = build_leaderboard(two)
    assert [row.label for row in board.rows] == ["supervised"]
    assert set(board.rows[0].cells) == {("zsre", 0), ("zsre", 1)}
    assert any(note.startswith("finetune.precision is auto and fp32") for note in board.notes)


@pytest.mark.parametrize("section", ["world", "task"])
def test_results_on_other_questions_are_never_joined_into_one_row(section):
    other = whole()
    other[section] |= {"seed": 5} if section == "world" else {"data": "hub"}
    runs = [run(cell(whole()), baseline="supervised"), run(cell(other, seed=1), name="b")]
    board = build_leaderboard(runs, mixed=True)
    assert [row.label for row in board.rows] == ["supervised (a)", "supervised (b)"]


ORDER = ("none", "random", "original")
CELLS = [
    result(policy, task, seed, (17 * seed + 5 * len(policy) + len(task)) % 10 / 10)
    for policy in ORDER
    for task in ("zsre", "wow")
    for seed in range(4)
]
ALONE = build_leaderboard([replace(run(*CELLS), policies=ORDER)])


@hypothesis.settings(max_examples=30)
@given(st.lists(st.sampled_from([1, 2, 3]), min_size=24, max_size=24))
def test_a_board_is_the_same_however_its_results_are_spread_over_runs(places):
    first = [one for one, place in zip(CELLS, places, strict=True) if place & 1]
    second = [one for one, place in zip(CELLS, places, strict=True) if place & 2]
    if not (first and second):
        return
    runs = [
        replace(run(*some, name=name), policies=ORDER)
        for some, name in ((first, "a"), (second, "b"))
    ]
    joined = build_leaderboard(runs)
    scores = [{row.label: row.scores for row in board.rows} for board in (ALONE, joined)]
    assert scores[0] == scores[1]
    assert (ALONE.best(), ALONE.notes) == (joined.best(), joined.notes)


@pytest.mark.parametrize("named", [True, False])
def test_settings_of_rows_may_differ_if_their_labels_name_them(named):
    runs = []
    for steps, policy in ((4, "random"), (40, "original")):
        config = whole() | {"trainings": {"intermediate": {"steps": steps, "warmup": steps // 10}}}
        config["policy"] = {**config["policy"], "name": policy}
        config["intermediate"] = {**config["intermediate"], **config["trainings"]["intermediate"]}
        label = f"{policy} intermediate.steps={steps}" if named else f"my {policy}"
        made = replace(cell(config), policy=label)
        runs.append(run(made, baseline=runs[0].baseline if runs else label, name=policy))
    if named:
        assert len(build_leaderboard(runs).rows) == 2
    else:
        assert "intermediate.steps: 4 -> 40" in refused(build_leaderboard, runs)


def test_other_code_of_a_policy_is_another_row():
    one = cell(whole(), code={"versions": {}, "policy": "a"})
    other = cell(whole(), code={"versions": {}, "policy": "b"})
    board = build_leaderboard([run(one, baseline="supervised"), run(other, name="b")])
    assert [row.label for row in board.rows] == ["supervised (a)", "supervised (b)"]
