"""Schedules and learned policies in rows, and the policy of the general stage."""

import math
from dataclasses import dataclass, field
from typing import Any

import pytest
from refusals import refused

from maskpolicy.core.distribution import Distribution
from maskpolicy.core.errors import ConfigError
from maskpolicy.core.schema import Rate, Schedule
from maskpolicy.experiment import learned_policies
from maskpolicy.experiment.definition import resolved
from maskpolicy.experiment.parse import load_experiment
from maskpolicy.experiment.policy_blocks import instance_block, policy_block
from maskpolicy.pipeline import stages
from maskpolicy.pipeline.graph.nodes import topological
from maskpolicy.pipeline.stages import policy_inputs
from maskpolicy.plugins import discovery
from tests.experiment.conftest import plugin


@pytest.mark.parametrize("done", [0.0, 0.25, 0.5, 0.75, 0.999])
def test_the_published_schedules_are_these_formulas(done):
    p = 0.15
    ankner = Schedule(0.3, 0.15)
    assert ankner.at(done) == pytest.approx(0.3 - 0.15 * done)
    linear, cosine = Schedule(2 * p, 0.0), Schedule(2 * p, 0.0, "cosine")
    assert linear.at(done) == pytest.approx(2 * p * (1 - done))
    assert cosine.at(done) == pytest.approx(p * (1 + math.cos(math.pi * done)))


def test_a_field_that_annotate_reads_cannot_follow_a_schedule(tmp_path):
    (tmp_path / "once.py").write_text(plugin("once", "ratio: Rate = 0.5"))
    discovery.load_file(tmp_path / "once.py")
    given = {"name": "once", "ratio": {"start": 0.1, "end": 0.2}}
    with pytest.raises(ConfigError, match=r"policies\[0\].ratio: is read before the training"):
        policy_block(given, "policies[0]", {})


@dataclass(frozen=True)
class Inner:
    ratio: Rate = 0.5


@dataclass(frozen=True)
class Nested:
    inner: Inner = field(default_factory=Inner)
    ratios: tuple[Any, ...] = (Schedule(0.1, 0.2), 0.5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("inner", Inner(Schedule(0.1, 0.2))),
        ("ratios", (0.5, Distribution("uniform"))),
        ("ratios", ({"a": Schedule(0.1, 0.2)},)),
        ("ratios", ([Distribution("uniform")],)),
    ],
)
def test_a_nested_schedule_that_no_training_sets_is_refused(name, value):
    assert instance_block(Nested(), {}, "it: ", "").name == "Nested"
    says = f"^it: Nested.{name}: is nested, so it cannot follow a schedule"
    refused(instance_block, Nested(**{name: value}), {}, "it: ", "", match=says)


def test_the_default_policy_keeps_the_key_of_the_stage_however_it_is_written(load):
    general = stages.build(load()).pretrained["none", 0]
    for text in ("original", "{name: original, ratio: 0.15}"):
        made = load(f"general.policy={text}")
        assert made.general_policy is None
        assert stages.build(made).pretrained["none", 0].key == general.key
    assert "policy" not in resolved(load())["general"]


def test_columns_and_statistics_come_from_the_general_corpus(load):
    keys = ("general.policy={name: mixture, members: [pmi, salient-span, random]}",)
    made = stages.build(load(*keys), lambda path: "0" * 64)
    stage = made.pretrained["none", 0]
    corpus = stage.inputs["corpus"]
    assert corpus.label == "general"
    below = [each for each in topological([stage]) if each.kind in ("annotate", "count")]
    assert {each.kind for each in below} == {"annotate", "count"}
    assert all(each.inputs["corpus"].key == corpus.key for each in below)
    assert all("general stage" in each.label for each in below)


QUICK = "model: mini\ncorpus: world\npolicies: [none, {}]\ntasks: [triviaqa, {}]\n"
FIT = "fit = lambda self, data, spec, out, tools: {}"
FITTED = ("train_on: tuple[str, ...]", "init: Any = None", FIT)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("learned")
    (folder / "starts_from.py").write_text(plugin("starts-from", *FITTED))
    (folder / "lies_here").mkdir()
    return folder


@pytest.fixture
def load_rows(folder):
    """Return a function from a row, and a column, to the experiment that has them."""

    def load_rows(row, column="zsre", *overrides):
        path = folder / "it.yaml"
        path.write_text(QUICK.format(row, column) + "plugins: [starts_from.py]\n")
        return load_experiment(path, overrides)

    return load_rows


def test_a_task_is_a_column_by_label_or_name_or_lies_where_the_experiments_data_does(load_rows):
    column = "{name: zsre, label: mine, data: hub, context: true}"
    row = "{name: supervised, train_on: [mine, zsre, wow]}"
    made = load_rows(row, column, "data=lies_here")
    mine, zsre, wow = learned_policies.tasks(made.policies[1], made.tasks, made.data)
    assert (mine.label, mine.name, mine.data, mine.context) == ("mine", "zsre", "hub", False)
    assert (zsre.label, zsre.data) == ("zsre", "hub")
    assert wow.name == "wow"
    assert wow.data.endswith("/lies_here")


def test_a_row_learns_from_its_tasks_and_those_of_its_start(load_rows):
    row = "{name: starts-from, train_on: [zsre, wow], init: supervised}"
    start = learned_policies.start(load_rows(row).policies[1])
    assert (start.name, start.fields["train_on"]) == ("supervised", ["zsre", "wow"])
    assert learned_policies.start(start) is None
    row = "{name: starts-from, train_on: [wow], init: {name: supervised, train_on: [zsre, wow]}}"
    experiment = load_rows(row)
    found = learned_policies.trained_on(experiment, experiment.policies[1])
    assert [task.label for task in found] == ["wow", "zsre"]
    said = refused(load_rows, "{name: starts-from, train_on: [zsre], init: 3}")
    assert "init: must be the name or the block" in said


@pytest.mark.parametrize(("name", "lines"), [("annotates", ()), ("learns", FITTED)])
def test_a_field_without_a_default_is_read_by_all_stages_of_its_policy(folder, name, lines):
    only = "only_select: ClassVar = ('ratio', 'share')"
    text = plugin(name, "ratio: Rate", *lines[:1], "share: Rate = 0.5", *lines[1:], only)
    (folder / f"{name}.py").write_text(text.replace("Any\n", "Any, ClassVar\n", 1))
    discovery.load_file(folder / f"{name}.py")
    given = {"name": name, "ratio": 0.2, "share": 0.1}
    block = policy_block({**given, **({"train_on": []} if lines else {})}, "it", {})
    read = policy_inputs.reader(block).instance()
    assert (read.ratio, read.share) == (0.2, 0.5)


def test_a_class_that_types_train_on_as_text_is_told_the_type(folder, load_rows):
    path = folder / "of_text.py"
    path.write_text(plugin("of-text", "train_on: str = 'wow'", *FITTED[1:]))
    discovery.load_file(path)
    assert "train_on: must be a list of tasks (tuple[str, ...] in" in refused(load_rows, "of-text")
