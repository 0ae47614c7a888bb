"""Which stages of a small run a change of a task's files computes again."""

from __future__ import annotations

import json

import pytest

from maskpolicy.data.world import make, write
from maskpolicy.experiment.parse import load_experiment
from maskpolicy.pipeline import stages
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.store.artifacts import Store

YAML = """
model: mini
corpus: world
policies: [none]
tasks: [zsre]
keep_models: [finetune]
world: {people: 8, general_people: 6}
general: {steps: 1, batch_size: 2}
finetune: {steps: 2, batch_size: 2}
"""


@pytest.fixture
def compute(tmp_path):
    """Return a function that runs the experiment, and returns the kinds of stages it computes."""
    path, data, store = tmp_path / "it.yaml", tmp_path / "world", Store(tmp_path / "store")
    path.write_text(YAML)
    write(make({"people": 8, "general_people": 6}), data)

    def compute(*overrides):
        built = stages.build(load_experiment(path, [f"data={data / 'tasks'}", *overrides]))
        outcomes = execute(built.targets, store, targets=built.targets).values()
        assert [outcome.error for outcome in outcomes if outcome.error] == []
        return {outcome.stage.kind for outcome in outcomes if outcome.here}

    return compute


def change(folder, name):
    """Change the question of the first row of a file."""
    (path,) = folder.rglob(f"structured_zeroshot-{name}*")
    first, *others = path.read_text().splitlines()
    row = json.loads(first)
    row["input"] = f"{row['input']} now"
    path.write_text("\n".join([json.dumps(row), *others]) + "\n")


def test_only_what_rests_on_a_changed_file_is_computed_again(compute, tmp_path):
    assert {"general", "finetune", "evaluate"} <= compute()
    change(tmp_path / "world", "dev")  # which serves as test
    about = {"audit", "majority"}
    assert compute() == {"test-examples", "evaluate", *about}
    change(tmp_path / "world", "train")
    assert compute() == {"train-examples", "finetune", "evaluate", *about}
    assert compute("finetune.eval_every=2", "finetune.patience=3", "general.patience=1") == set()
    assert compute("finetune.eval_every=1") == {"finetune", "evaluate"}
