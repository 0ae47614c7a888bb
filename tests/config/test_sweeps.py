"""grid and zip: the rows they make, their labels, and what is refused."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from maskpolicy.config.experiment import Experiment, resolved
from maskpolicy.config.parse import load_experiment
from maskpolicy.config.sweeps import RowKeys
from maskpolicy.errors import ConfigError
from maskpolicy.plugins.registry import ROW_KEYS

DOCS = Path(__file__).parents[2] / "docs" / "sweeps.md"
EXAMPLES = re.findall(r"```yaml\n(.*?)```.*?```text\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL)
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


def test_the_page_has_examples():
    assert len(EXAMPLES) >= 4


def test_a_grid_is_every_combination_of_fields_objective_and_budgets(load):
    grid = "{ratio: [0.1, 0.3], target: [full], intermediate.lr: [1e-4, 1e-2]}"
    rows = load(f"[none, {{name: random, grid: {grid}}}]").policies[1:]
    found = [(row.fields["ratio"], row.denoising.target, row.trainings) for row in rows]
    assert found == [
        (ratio, "full", {"intermediate": {"lr": lr}}) for ratio in (0.1, 0.3) for lr in (1e-4, 1e-2)
    ]


def test_a_nested_block_stands_for_keys_with_dots(load):
    dotted = load("[none, random]", "grid: {intermediate.lr: [1e-4, 1e-3]}")
    assert load("[none, random]", "grid: {intermediate: {lr: [1e-4, 1e-3]}}") == dotted


def test_a_grid_reaches_into_the_blocks_of_a_field(load):
    given = "{name: meta-learned, train_on: [triviaqa], grid: {outer.steps: [5, 10]}}"
    rows = load(f"[none, {given}]").policies[1:]
    assert [row.fields["outer"]["steps"] for row in rows] == [5, 10]
    assert [row.label for row in rows] == [
        f"meta-learned train_on=triviaqa outer.steps={steps}" for steps in (5, 10)
    ]


def test_a_value_may_be_a_schedule_or_a_list(load):
    rows = load("[none, {name: random, grid: {ratio: [0.2, {start: 0.3, end: 0.1}]}}]")
    assert labels(rows)[1:] == [
        "random ratio=0.2",
        "random ratio.start=0.3 ratio.end=0.1 ratio.shape=linear",
    ]
    rows = load("[none, {name: mixture, grid: {members: [[mass], [mass, span]]}}]")
    assert labels(rows)[1:] == ["mixture members=mass", "mixture members=mass+span"]


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


def test_a_zip_at_the_top_pairs_only_the_keys_that_a_row_has(load):
    zipped = "zip: {intermediate.lr: [1e-4, 1e-3, 1e-2], finetune.lr: [1e-4, 1e-4, 1e-3]}"
    found = load("[none, random]", zipped)
    assert labels(found)[:2] == ["none finetune.lr=0.0001", "none finetune.lr=0.001"]
    assert len(labels(found)[2:]) == 3


def test_the_objective_at_the_top_reaches_the_members_of_a_mixture(load):
    found = load("[none, {name: mixture, members: [mass, span]}]", "grid: {target: [full, spans]}")
    targets = [{each["target"] for each in row.fields["members"]} for row in found.policies[1:]]
    assert targets == [{"full"}, {"spans"}]


def test_the_warm_up_of_a_row_fits_its_own_steps(load):
    found = load("[none, random]", "grid: {intermediate.steps: [50, 2000]}")
    warmups = [found.budget("intermediate", row).warmup for row in found.policies[1:]]
    assert warmups == [5, found.intermediate.warmup]
    assert labels(found)[1] == "random intermediate.steps=50"


def test_an_old_name_of_a_key_is_its_new_name(load):
    found = load("[none, {name: random, intermediate: {passages: 7}}]")
    assert found.policies[1].trainings == {"intermediate": {"batch_size": 7}}
    assert labels(found)[1] == "random intermediate.batch_size=7"


@pytest.mark.parametrize(
    ("policies", "more"),
    [
        ("[none, {name: random, grid: {ratio: [0.1, 0.3], finetune.lr: [1e-4]}}]", ""),
        ("[none, random, {name: span, label: mine}]", "grid: {finetune.steps: [7, 200]}"),
        ("[none, {name: random, intermediate: {betas: [0.8, 0.9], dropout: null}}]", ""),
    ],
)
def test_a_resolved_experiment_loads_to_the_same_one(load, tmp_path, policies, more):
    found = load(policies, more)
    config = resolved(found)
    assert not {"grid", "zip"} & config.keys()
    (tmp_path / "it.yaml").write_text(yaml.safe_dump(config), "utf-8")
    assert load_experiment(tmp_path / "it.yaml") == found


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


REFUSED = [
    ("{ratio: []}", r"policies\[1\]\.grid\.ratio: is empty"),
    ("{ratio: 0.1}", r"grid\.ratio: must be a list of values, .*: write \[0\.1\]$"),
    ("[ratio]", r"policies\[1\]\.grid: must be a block of keys"),
    ("{ratoi: [0.1]}", r"grid\.ratoi: unknown key 'ratoi': did you mean 'ratio'"),
    ("{name: [span]}", r"grid\.name: .*write a block for each policy"),
    ("{ratio: [0.1, 2]}", r"policies\[1\]\.grid\.ratio\[1\]: must be >= 0 and <= 1"),
    ("{ratio: [0.1, x]}", r"policies\[1\]\.grid\.ratio\[1\]: must be a number"),
    ("{ratio: [0.1, 0.1]}", r"policies\[1\]: its sweep makes 2 rows of the label"),
    ("{intermediate.lrr: [0.1]}", r"grid\.intermediate\.lrr: .*did you mean 'lr'"),
    ("{intermediat.lr: [0.1]}", r"grid\.intermediat\.lr: .*did you mean 'intermediate.lr'"),
    ("{general.lr: [0.1]}", r"grid\.general\.lr: all rows start from the same general models"),
    ("{fit.lr: [0.1]}", r"policies\[1\]\.grid\.fit\.lr: random is not a learned"),
    ("{finetune.seed: [1, 2]}", r"grid\.finetune\.seed: changes no result"),
    (f"{{intermediate.seed: {list(range(1001))}}}", r"policies\[1\]: makes 1,001 rows"),
    ("{target: [full], corruption: [token]}, target: full", r"grid\.target: is in the row's block"),
    ("{ratio: [0.1]}, zip: {ratio: [0.1]}", r"zip\.ratio: is in grid too"),
    ("{}, zip: {ratio: [0.1], target: [full, spans]}", r"zip: needs lists of one length"),
    ("{ratio: [0.1, 0.3]}, label: mine", r"policies\[1\]\.label: 2 rows of its sweep"),
    ("{shallow_decoder: [false, true]}", r"is for model\.kind.* \(in the row of shallow_decoder"),
]


@pytest.mark.parametrize(("grid", "says"), REFUSED)
def test_what_a_grid_cannot_do_is_refused_in_one_line(load, grid, says):
    with pytest.raises(ConfigError, match=says) as caught:
        load(f"[none, {{name: random, grid: {grid}}}]")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("policies", "more", "says"),
    [
        ("[none, random]", "grid: {model: [mini]}", r"grid\.model: is one setting for all rows"),
        ("[none, random]", "grid: {ratio: [0.1]}", r"grid\.ratio: is a field of random"),
        ("[none]", "grid: {intermediate.lr: [0.1]}", r"grid\.intermediate\.lr: no row takes it"),
        ("[none, random]", "zip: {fit.lr: [0.1]}", r"zip\.fit\.lr: no row takes it"),
        ("[none, random]", f"grid: {{finetune.eps: {[i + 1 for i in range(501)]}}}", "1,002 rows"),
        ("[{name: none, grid: {target: [full]}}]", "", r"grid\.target: unknown key"),
        ("[{name: none, intermediate: {lr: 0.1}}]", "", "none has no stage"),
        ("[random, {name: random, grid: {ratio: [0.15]}}]", "baseline: random", "same settings"),
        (
            "[none, {name: random, grid: {ratio: [0.2]}}, {name: random, ratio: 0.2}]",
            "",
            r"policies\[2\]: has the label 'random ratio=0.2', as policies\[1\] has: drop one",
        ),
        ("[none, {name: mixture, members: [{name: span, grid: {p: [0.1]}}]}]", "", "leave it out"),
    ],
)
def test_what_a_file_with_sweeps_cannot_hold_is_refused(load, policies, more, says):
    with pytest.raises(ConfigError, match=says) as caught:
        load(policies, more)
    assert "\n" not in str(caught.value)


TUNE = "tune: {intermediate.lr: [1e-4, 1e-3], on: dev}"


SAME_NAME = f"[{{name: mass, label: S intermediate.lr=0.001}}, {{name: span, label: S, {TUNE}}}]"


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


def test_a_sweep_and_a_choice_may_stand_together(load):
    found = load("[none, {name: random, grid: {ratio: [0.1, 0.3]}}]", TUNE)
    assert [len(row.candidates) for row in found.policies] == [0, 2, 2]


def test_the_order_of_the_keys_changes_no_candidate(load):
    keys = ["intermediate.lr: [1e-4, 1e-3]", "finetune.lr: [1e-3, 1e-4]"]
    one, other = (load("[none, random]", f"tune: {{{', '.join(k)}}}") for k in (keys, keys[::-1]))
    assert one == other


@pytest.mark.parametrize(
    ("policies", "more"),
    [
        ("[none, random, {name: span, label: S}]", TUNE),
        ("[none, {name: random, tune: {ratio: [0.1, 0.3], finetune.lr: [0.1]}}]", ""),
        ("[none, {name: regex, tune: {pattern: [a, b]}}]", "grid: {intermediate.steps: [9, 50]}"),
        ("[none, random]", "tune: {intermediate.steps: [9, 50]}\nintermediate: {warmup: 3}"),
    ],
)
def test_a_resolved_experiment_chooses_from_the_same_rows(load, tmp_path, policies, more):
    found = load(policies, more)
    (tmp_path / "it.yaml").write_text(yaml.safe_dump(resolved(found)), "utf-8")
    assert load_experiment(tmp_path / "it.yaml") == found


@pytest.mark.parametrize(
    ("policies", "more", "says"),
    [
        ("[none, random]", "tune: {intermediate.lr: [0.1], on: test}", r"tune\.on: must be dev"),
        ("[none, random]", "tune: {on: dev}", r"tune: names no key"),
        ("[none, random]", "tune: {intermediate.lr: []}", r"tune\.intermediate\.lr: is empty"),
        ("[none, random]", "tune: {intermediate.lr: 0.1}", "must be a list of values"),
        ("[none, random]", "tune: [intermediate.lr]", r"tune: must be a block of keys"),
        ("[none, random]", "tune: {intermediate.lrr: [1]}", "did you mean 'lr'"),
        ("[none, random]", "tune: {ratio: [0.1]}", r"random, tune: {ratio: \[\.\.\]}}$"),
        ("[none]", TUNE, r"tune\.intermediate\.lr: no row takes it"),
        ("[none, random]", f"{TUNE}\ngrid: {{intermediate.lr: [0.1]}}", "is in grid or zip too"),
        ("[none, {name: random, tune: {label: [a]}}]", "", "cannot be tuned"),
        ("[none, {name: random, tune: {ratio: [0.1, 0.1]}}]", "", "a value is given twice"),
        ("[none, {name: random, ratio: 0.1, tune: {ratio: [0.2]}}]", "", "in the row's block too"),
        ("[none, {name: random, tune: {ratio: [2]}}]", "", r"tune\.ratio\[0\]: must be >= 0"),
        ("[none, random]", "tune: {intermediate.steps: [9, 50]}", "set the warm-up too"),
        (f"[none, {{name: random, tune: {{ratio: {[i / 1e4 for i in range(1001)]}}}}}]", "", "1,0"),
        (f"[none, random, {{name: random, {TUNE}}}]", TUNE, "have the same settings"),
        (SAME_NAME, "baseline: S", "the name of another one's candidate"),
    ],
)
def test_what_cannot_be_tuned_is_refused_in_one_line(load, policies, more, says):
    with pytest.raises(ConfigError, match=says) as caught:
        load(policies, more)
    assert "\n" not in str(caught.value)


def test_a_refused_grid_is_one_line_and_exit_code_2(tmp_path, refused):
    path = tmp_path / "it.yaml"
    path.write_text(f"{HEAD}policies: [none, {{name: random, grid: {{ratio: []}}}}]\n", "utf-8")
    assert "grid.ratio: is empty" in refused("plan", path, "--store", tmp_path / "store")


def test_the_reserved_keys_of_a_row_are_those_that_are_documented():
    assert {field.name for field in fields(RowKeys)} == set(ROW_KEYS)
