from __future__ import annotations

import json

import pytest

from maskpolicy import stages
from maskpolicy.config.experiment import Experiment, resolved
from maskpolicy.config.parse import load_experiment
from maskpolicy.errors import ConfigError
from maskpolicy.graph.nodes import Stage, topological
from maskpolicy.results.cell_config import cell_config

QUICK = "model: mini\ncorpus: world\npolicies: [none, random]\ntasks: [triviaqa]\n"
LEARNED = "{name: supervised, train_on: [zsre]}"
MIXTURE = "general.policy={name: mixture, members: [original, salient-span]}"


@pytest.fixture
def load(tmp_path):
    def load(*keys: str) -> Experiment:
        (tmp_path / "mine.yaml").write_text(QUICK)
        return load_experiment(tmp_path / "mine.yaml", keys)

    return load


@pytest.fixture
def general(load):
    """Return the general stage of an experiment."""

    def general(*keys: str) -> Stage:
        made = stages.build(load(*keys), lambda path: "0" * 64)
        return made.pretrained["none", 0]

    return general


def test_the_default_policy_keeps_the_key_of_the_stage_however_it_is_written(load, general):
    for text in ("original", "{name: original, ratio: 0.15}"):
        assert load(f"general.policy={text}").general_policy is None
        assert general(f"general.policy={text}").key == general().key
    assert "policy" not in resolved(load())["general"]


def test_each_member_keeps_its_objective(general):
    made = general(MIXTURE)
    members = made.keyed["fields"]["members"]
    assert [(each["name"], each["target"]) for each in members] == [
        ("original", "full"),
        ("salient-span", "spans"),
    ]
    assert made.key != general().key and made.kind == "general"


def test_keys_of_the_objective_at_the_top_are_for_the_rows_alone(general):
    keys = ("general.policy=random", "target=full")
    assert general(*keys).keyed["how"] == general(keys[0]).keyed["how"]


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


def test_an_encoder_takes_a_policy_too(general):
    encoder = ("model={kind: encoder, name: mini}", "tasks=[cola]")
    made = general(*encoder, "general.policy={name: span, mask_exclusion: 1.0}")
    assert made.keyed["how"]["mask_exclusion"] == 1.0


def test_the_experiment_and_its_results_state_the_policy(load, tmp_path):
    experiment = load(MIXTURE)
    path = tmp_path / "again.yaml"
    path.write_text(json.dumps(resolved(experiment)))
    assert load_experiment(path).general_policy == experiment.general_policy
    config = cell_config(experiment, experiment.policies[0], experiment.tasks[0], 0)
    assert config["general"]["policy"]["name"] == "mixture"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (("general.policy=none",), "general.policy: none masks nothing: set "),
        (("general.policy={name: random, label: it}",), "policy.label: the general stage is no"),
        (("general.policy={name: random, grid: {ratio: [1]}}",), "policy.grid: is for the rows"),
        (
            (f"general.policy={LEARNED}",),
            "supervised is learned with the general model",
        ),
        (
            (f"general.policy={{name: mixture, members: [{LEARNED}]}}",),
            "members[0]: supervised is",
        ),
        (("general.policy=entropy-aware",), "entropy-aware asks the model in training"),
        (
            ("general.policy={name: difference-masking}",),
            "difference-masking compares a corpus",
        ),
        (("general.policy=random", "general.steps=0"), "general.policy: the stage has no steps"),
        (("general.policy=random", "model=facebook/bart-base"), "only a model built from scratch"),
        (("general.polcy=random",), "unknown key 'polcy': did you"),
        (("grid.general.policy=[random, span]",), "all rows start from the same general models"),
    ],
)
def test_what_cannot_work_is_refused(load, keys, message):
    with pytest.raises(ConfigError) as caught:
        load(*keys)
    assert message in str(caught.value) and "\n" not in str(caught.value)
