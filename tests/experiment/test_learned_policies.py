"""Learned policies in experiment files: their tasks, their start, what is refused."""

from __future__ import annotations

import pytest
from refusals import refused

from maskpolicy.experiment import learned_policies
from maskpolicy.experiment.parse import load_experiment

QUICK = "model: mini\ncorpus: world\npolicies: [none, {}]\ntasks: [triviaqa, {}]\n"
PLUGIN = """
from dataclasses import dataclass
from typing import Any, ClassVar

from maskpolicy.plugins.registry import policy


@policy("starts-from")
@dataclass(frozen=True)
class StartsFrom:
    train_on: tuple[str, ...]
    init: Any = None
    shown: int = 1
    only_select: ClassVar = ("shown",)

    def fit(self, data, spec, out, tools):
        return {}

    def annotate(self, passages, fitted):
        return {}

    def select(self, passage, rng):
        return passage.pieces[:0]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("learned")
    (folder / "starts_from.py").write_text(PLUGIN)
    (folder / "lies_here").mkdir()
    return folder


@pytest.fixture
def load(folder):
    """Return a function from a row, and a column, to the experiment that has them."""

    def load(row, column="zsre", *overrides):
        path = folder / "it.yaml"
        path.write_text(QUICK.format(row, column) + "plugins: [starts_from.py]\n")
        return load_experiment(path, overrides)

    return load


def tasks(experiment):
    return learned_policies.tasks(experiment.policies[1], experiment.tasks, experiment.data)


def test_a_task_is_a_column_by_label_or_name_or_lies_where_the_experiments_data_does(load):
    column = "{name: zsre, label: mine, data: hub, context: true}"
    row = "{name: supervised, train_on: [mine, zsre, wow]}"
    mine, zsre, wow = tasks(load(row, column, "data=lies_here"))
    assert (mine.label, mine.name, mine.data, mine.context) == ("mine", "zsre", "hub", False)
    assert (zsre.label, zsre.data) == ("zsre", "hub")
    assert wow.name == "wow"
    assert wow.data.endswith("/lies_here")


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (
            "{name: starts-from, train_on: [zsre], init: random}",
            "init: random is not a learned policy",
        ),
        ("{name: starts-from, train_on: [zsre], init: 3}", "init: must be the name or the block"),
        ("{name: starts-from, train_on: [zsre], init: supervise}", "did you mean 'supervised'?"),
        (
            "{name: starts-from, train_on: [zsre], init: {name: supervised, train_on: [wo]}}",
            "policies[1].init.train_on[0]",
        ),
    ],
)
def test_what_cannot_be_learned_is_refused_with_its_place(load, row, says):
    assert says in refused(load, row)


def test_a_start_that_is_a_name_learns_from_the_same_tasks(load):
    row = "{name: starts-from, train_on: [zsre, wow], init: supervised}"
    start = learned_policies.start(load(row).policies[1])
    assert (start.name, start.fields["train_on"]) == ("supervised", ["zsre", "wow"])
    assert learned_policies.start(load("{name: supervised, train_on: [zsre]}").policies[1]) is None


def test_a_row_rests_on_its_tasks_and_on_those_of_its_start(load):
    row = "{name: starts-from, train_on: [wow], init: {name: supervised, train_on: [zsre, wow]}}"
    experiment = load(row)
    found = learned_policies.trained_on(experiment, experiment.policies[1])
    assert [task.label for task in found] == ["wow", "zsre"]


def test_what_only_select_reads_is_in_no_fit(load):
    block = load("{name: starts-from, train_on: [wow], shown: 3}").policies[1]
    assert learned_policies.fitted_fields(block) == {"train_on": ["wow"], "init": None}
