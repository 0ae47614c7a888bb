"""grid and zip: the rows they make, their labels, and what is refused."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from maskpolicy.core.errors import ConfigError
from maskpolicy.experiment.definition import Experiment
from maskpolicy.experiment.parse import load_experiment
from maskpolicy.experiment.sweeps import RowKeys
from maskpolicy.plugins.registry import ROW_KEYS

DOCS = Path(__file__).parents[2] / "docs" / "experiments.md"
SHOWN = DOCS.read_text("utf-8").partition("## Sweeps and tuning")[2]
EXAMPLES = re.findall(r"```yaml\n(.*?)```.*?```text\n(.*?)```", SHOWN, re.DOTALL)
HEAD = "model: mini\ncorpus: world\ntasks: [triviaqa]\n"


@pytest.fixture
def load(tmp_path):
    def load(policies: str, *more: str) -> Experiment:
        path = tmp_path / "it.yaml"
        path.write_text(f"{HEAD}policies: {policies}\n" + "\n".join(more), "utf-8")
        return load_experiment(path)

    return load


def labels(experiment: Experiment) -> list[str]:
    return [block.label for block in experiment.policies]


@pytest.mark.parametrize(("text", "rows"), EXAMPLES)
def test_the_examples_of_the_page_have_the_rows_that_it_shows(tmp_path, text, rows):
    (tmp_path / "it.yaml").write_text(text, "utf-8")
    assert labels(load_experiment(tmp_path / "it.yaml")) == rows.splitlines()


def test_a_grid_is_every_combination_of_fields_objective_and_budgets(load):
    grid = "{ratio: [0.1, 0.3], target: [full], intermediate.lr: [1e-4, 1e-2]}"
    rows = load(f"[none, {{name: random, grid: {grid}}}]").policies[1:]
    found = [(row.fields["ratio"], row.denoising.target, row.trainings) for row in rows]
    assert found == [
        (ratio, "full", {"intermediate": {"lr": lr}}) for ratio in (0.1, 0.3) for lr in (1e-4, 1e-2)
    ]


def test_a_value_on_the_command_line_is_added_to_the_grid(tmp_path):
    path = tmp_path / "it.yaml"
    path.write_text(f"{HEAD}policies: [none, random]\n", "utf-8")
    found = load_experiment(
        path, ["policies.1.grid.ratio=[0.1, 0.2]", "grid.intermediate.lr=[1e-3]"]
    )
    assert labels(found)[1:] == [
        f"random ratio={ratio} intermediate.lr=0.001" for ratio in (0.1, 0.2)
    ]


def test_a_row_that_cannot_have_a_key_of_the_top_stays_one_row(load):
    learned = "{name: supervised, train_on: [triviaqa]}"
    found = load(f"[none, random, {learned}]", "grid: {fit.lr: [1e-4, 1e-3], target: [full]}")
    assert labels(found) == [
        "none",
        "random target=full",
        "supervised train_on=triviaqa target=full fit.lr=0.0001",
        "supervised train_on=triviaqa target=full fit.lr=0.001",
    ]


def test_the_objective_at_the_top_reaches_the_members_of_a_mixture(load):
    found = load("[none, {name: mixture, members: [mass, span]}]", "grid: {target: [full, spans]}")
    targets = [{each["target"] for each in row.fields["members"]} for row in found.policies[1:]]
    assert targets == [{"full"}, {"spans"}]


def test_checkpoints_are_those_of_the_longest_row(load):
    steps = "grid: {intermediate.steps: [10, 100]}"
    assert load("[none, random]", steps, "checkpoint_steps: [50]").checkpoint_steps == (50,)
    with pytest.raises(ConfigError, match=r"checkpoint_steps\[0\]: 100 must be smaller"):
        load("[none, random]", steps, "checkpoint_steps: [100]")


def test_the_baseline_may_be_several_rows_that_differ_in_trainings(load):
    assert load("[none, random]", "grid: {finetune.lr: [1e-4, 1e-3]}").baseline == "none"
    labelled = "[none, {name: random, label: MLM}]"
    more = ("baseline: MLM", "grid: {finetune.lr: [1e-4, 1e-3]}")
    assert load(labelled, *more).baseline == "MLM"
    with pytest.raises(ConfigError, match=r"unknown row 'random'.*; name the row that"):
        load("[none, {name: random, grid: {ratio: [0.1, 0.2]}}]", "baseline: random")


TUNE = "tune: {intermediate.lr: [1e-4, 1e-3], on: dev}"


def tried(experiment: Experiment) -> dict[str, list[str]]:
    return {row.label: [each.label for each in row.candidates] for row in experiment.policies}


def test_all_rows_with_an_intermediate_stage_choose_from_the_same_values(load):
    rows = "[none, random, {name: span, label: S}, {name: mass, intermediate: {lr: 0.1}}]"
    assert tried(load(rows, TUNE)) == {
        "none": [],
        "random": ["random intermediate.lr=0.0001", "random intermediate.lr=0.001"],
        "S": ["S intermediate.lr=0.0001", "S intermediate.lr=0.001"],
        "mass intermediate.lr=0.1": [],
    }
    assert tried(load("[none]", "tune: {finetune.lr: [1e-4]}")) == {
        "none": ["none finetune.lr=0.0001"]
    }


def test_a_row_of_its_own_may_choose_any_of_its_settings(load):
    tune = "{ratio: [0.1, 0.3], target: [full], on: dev}"
    found = load(f"[none, random, {{name: random, tune: {tune}}}]")
    assert tried(found)["random ratio=tuned target=tuned"] == [
        "random ratio=0.1 target=full",
        "random ratio=0.3 target=full",
    ]
    few, many = found.policies[2].candidates
    assert [few.fields["ratio"], many.fields["ratio"]] == [0.1, 0.3]
    assert few.denoising.target == "full"
    assert found.policies[2].tune == {"ratio": [0.1, 0.3], "target": ["full"], "on": "dev"}


def test_the_order_of_the_keys_changes_no_candidate(load):
    keys = ["intermediate.lr: [1e-4, 1e-3]", "finetune.lr: [1e-3, 1e-4]"]
    one, other = (load("[none, random]", f"tune: {{{', '.join(k)}}}") for k in (keys, keys[::-1]))
    assert one == other


def test_the_reserved_keys_of_a_row_are_those_that_are_documented():
    assert {field.name for field in fields(RowKeys)} == set(ROW_KEYS)
