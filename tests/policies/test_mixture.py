"""The policies mixture and ul2: their blocks, UL2's denoisers, and an experiment with members."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest
import small
import torch
from maskpolicy.policies.mixture import UL2

from maskpolicy import stages
from maskpolicy.config import sweeps
from maskpolicy.config.budgets import Training
from maskpolicy.config.experiment import PolicyBlock, resolved, resolved_policy
from maskpolicy.config.parse import load_experiment
from maskpolicy.config.policy_blocks import policy_block
from maskpolicy.config.row_blocks import row_blocks
from maskpolicy.errors import ConfigError
from maskpolicy.graph.execution import execute
from maskpolicy.masking.members import Masker
from maskpolicy.plugins.discovery import instance
from maskpolicy.publishing import cards
from maskpolicy.store.artifacts import Store
from maskpolicy.training.batching import IGNORE
from maskpolicy.training.specials import Specials
from maskpolicy.training.steps import MaskedSteps
from maskpolicy.types import Denoising

TWO = ["mass", {"name": "random", "target": "full", "ratio": 0.3}]
EXPERIMENT = """
model: {model}
corpus: {{name: world, words: 40}}
data: world
policies:
  - none
  - salient-span
  - name: mixture
    label: mixed
    members: [salient-span, {{name: keywords, target: full}}, {{name: mixture, members: [mine]}}]
tasks: [zsre]
plugins: [mine.py]
checkpoint_steps: [2]
world: {{people: 12, general_people: 6}}
fit: {{steps: 0}}
intermediate: {{steps: 4, batch_size: 8, precision: fp32}}
finetune: {{steps: 1, precision: fp32}}
"""
MINE = """
from dataclasses import dataclass
from maskpolicy import policy

@policy("mine")
@dataclass(frozen=True)
class Mine:
    \"\"\"Mask the first word.\"\"\"

    def select(self, passage, rng):
        return passage.words[:1]
"""


def labelled(items: list[Any]) -> tuple[PolicyBlock, ...]:
    rows = sweeps.rows(items, "policies")
    return row_blocks(rows, "policies", {}, "", {}, lambda own, place: {})


def block(**fields: Any):
    return policy_block({"name": "mixture", **fields}, "policies[0]", {})


def test_a_row_holds_the_blocks_of_its_members_complete():
    row = policy_block({"name": "mixture", "members": TWO}, "", {"join": "none"})
    mass, random = row.fields["members"]
    assert (mass["name"], mass["ratio"], mass["corruption"]) == ("mass", 0.5, "token")
    assert (random["target"], random["ratio"]) == ("full", 0.3)
    assert {mass["join"], random["join"]} == {"none"}
    assert "label" not in mass
    assert "target" not in resolved_policy(row)


def test_a_resolved_row_is_the_same_row():
    for name in ("mixture", "ul2"):
        given = {"name": name, "members": [*TWO, {"name": "mixture", "members": TWO}]}
        row = policy_block(given, "", {"corruption": "token"})
        assert policy_block(resolved_policy(row), "", {}) == row


def test_labels_name_the_members_and_what_is_not_their_default():
    rows = ["ul2", {"name": "mixture", "members": TWO}]
    rows += [{"name": "mixture", "members": TWO, "weights": [1, 2]}]
    assert [row.label for row in labelled(rows)] == [
        "ul2",
        "mixture members=mass+random ratio=0.3 target=full",
        "mixture members=mass+random ratio=0.3 target=full weights=[1.0, 2.0]",
    ]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "policies[0].members: missing"),
        ({"members": []}, "policies[0].members: is empty: name at least one policy"),
        ({"members": "mass"}, "policies[0].members: must be a list"),
        ({"members": ["mas"]}, "policies[0].members[0]: unknown policy 'mas': did you mean 'mass'"),
        ({"members": ["none"]}, "policies[0].members[0].name: none masks nothing: leave it out"),
        ({"members": [{"name": "mass", "label": "x"}]}, "policies[0].members[0].label: a member"),
        ({"members": [{"ratio": 1}]}, "policies[0].members[0].name: missing"),
        (
            {"members": ["span", {"name": "mass", "ratio": 2}]},
            "policies[0].members[1].ratio: must be >= 0 and <= 1, not 2",
        ),
        (
            {"members": TWO, "target": "full"},
            "policies[0].target: mixture draws policies: set it in the blocks of its members",
        ),
        (
            {"members": TWO, "weights": [1]},
            "policies[0].weights: are 1 for 2 members: give one each",
        ),
        (
            {"members": TWO, "weights": [0, 0]},
            "policies[0].weights: add up to 0 at the first step: give a member a weight above 0",
        ),
        (
            {"members": TWO, "weights": [0, {"start": 0, "end": 1}]},
            "policies[0].weights: add up to 0 at the first step",
        ),
        (
            {"members": TWO, "weights": [1, -1]},
            "policies[0].weights[1]: must be >= 0, not -1",
        ),
    ],
)
def test_a_mixture_that_cannot_be_drawn_is_refused_at_its_place(fields, says):
    with pytest.raises(ConfigError) as caught:
        block(**fields)
    assert str(caught.value).startswith(says)


def test_an_encoder_takes_members_at_their_positions_only():
    row = policy_block({"name": "mixture", "members": ["mass", "span"]}, "it", {}, "encoder")
    assert {each["corruption"] for each in row.fields["members"]} == {"token"}
    members = ["mass", {"name": "span", "mask_exclusion": 0.5}]
    row = policy_block({"name": "mixture", "members": members}, "it", {}, "encoder")
    assert row.denoising.mask_exclusion == 0.5  # the model's, which serves both
    with pytest.raises(ConfigError, match=r"it.members\[0\].target: full is not for model.kind"):
        policy_block({"name": "mixture", "members": [TWO[1]]}, "it", {}, "encoder")


def test_ul2_has_two_regular_four_extreme_and_one_sequential_denoiser():
    members = [*UL2().members]
    spans = [(each["mean"], each["ratio"]) for each in members[:-1]]
    assert spans == [(3, 0.15), (8, 0.15), (3, 0.5), (8, 0.5), (64, 0.15), (64, 0.5)]
    assert members[-1] == {"name": "prefix-lm", "ratio": 0.25}


def test_ul2_draws_its_denoisers_alike_and_masks_exact_counts():
    passage = small.ids(range(200))
    masker = Masker.of(UL2(), Denoising())
    found = masker.select([[passage]] * 7, [0] * 1400, 0, range(1400))
    kinds = Counter((len(s), int((s[:, 1] - s[:, 0]).sum())) for s in found.spans)
    suffix = [s.tolist() for s in found.spans if s.tolist() == [[150, 200]]]
    expected = {(10, 30), (4, 30), (33, 100), (12, 100), (1, 30), (2, 100), (1, 50)}
    assert set(kinds) == expected
    assert len(suffix) == kinds[1, 50]
    assert [*kinds.values()] == pytest.approx([200] * 7, abs=60)
    assert {each.target for each in found.denoisings} == {"spans"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """An experiment with members that annotate, are learned, and that a user wrote; its store."""
    folder = tmp_path_factory.mktemp("made")
    small.bart().save_pretrained(folder / "bart")
    small.tokenizer().save_pretrained(folder / "bart")
    (folder / "mine.py").write_text(MINE)
    path = folder / "it.yaml"
    path.write_text(EXPERIMENT.format(model=folder / "bart"))
    experiment = load_experiment(path)
    graph, store = stages.build(experiment), Store(folder / "store")
    wanted = [*graph.pretrained.values()][1:]
    wanted += wanted[-1].byproducts.values()
    outcomes = execute(wanted, store)
    assert [outcome.error for outcome in outcomes.values() if outcome.error] == []
    return experiment, graph, store


def test_a_member_is_annotated_and_fitted_like_a_row(made):
    _, graph, store = made
    salient, mixed = graph.pretrained["salient-span", 0], graph.pretrained["mixed", 0]
    assert mixed.inputs["annotate-00"].key == salient.inputs["annotate"].key
    assert mixed.inputs["annotate-01"].inputs["fit"].kind == "fit"
    assert "annotate-02" not in mixed.inputs
    work = json.loads((store.path(mixed.key) / "work.json").read_text())
    assert work["passages"] == 32 and work["spans"] > 32


def test_the_key_holds_the_code_of_a_members_file(made):
    _, graph, _ = made
    params = graph.pretrained["mixed", 0].record()["params"]
    assert [*params["member_code"]] == ["mine"] and [*params["member_code"]["mine"]] == ["mine.py"]
    assert "member_code" not in graph.pretrained["salient-span", 0].record()["params"]


def test_an_early_model_is_a_by_product_with_members_too(made):
    _, graph, store = made
    mixed = graph.pretrained["mixed", 0]
    assert [store.has(each.key) for each in mixed.byproducts.values()] == [True]


def test_the_experiment_is_the_same_when_it_is_read_again(made, tmp_path):
    experiment, _, _ = made
    path = tmp_path / "it.yaml"
    path.write_text(json.dumps(resolved(experiment)))
    assert load_experiment(path).policies == experiment.policies


def test_members_are_kept_as_they_are_by_python(made):
    experiment, _, _ = made
    policy: Any = instance("policy", "mixture", experiment.policies[2].fields)
    leaves = Masker.of(policy, Denoising()).leaves
    names = [type(leaf.policy).__name__ for leaf in leaves]
    assert names == ["SalientSpan", "Keywords", "Mine"]
    assert np.array_equal([leaf.denoising.target == "full" for leaf in leaves], [0, 1, 0])


def test_a_card_has_a_line_for_each_member_and_no_objective_of_the_row(made):
    _, graph, _ = made
    params: Any = graph.pretrained["mixed", 0].params
    found = cards._policy_settings(params)
    assert [*found] == ["weights", "member 1", "member 2", "member 3"]
    assert found["member 2"].startswith("name keywords, ratio 0.75, keywords 5, ")
    assert "target full" in found["member 2"]
    params = graph.pretrained["salient-span", 0].params
    assert cards._policy_settings(params)["target"] == "spans"


def test_an_encoder_predicts_the_tokens_that_its_members_mask():
    given = ["mass", {"name": "span", "mask_exclusion": 1.0}, {"name": "random", "ratio": 0.0}]
    row = policy_block({"name": "mixture", "members": given}, "it", {}, "encoder")
    policy: Any = instance("policy", "mixture", row.fields)
    special = Specials.of_encoder(small.tokenizer())
    spec = Training(steps=9, batch_size=9, micro_tokens=9999)
    passages = small.passages()
    steps = MaskedSteps(passages, policy, row.denoising, special, spec, Specials.at_positions)
    excluded = 0
    for number in range(9):
        for batch in steps(number).batches:
            masks = batch.source == special.mask
            assert torch.equal(batch.labels != IGNORE, masks)
            excluded += 0 if batch.excluded is None else int(batch.excluded.sum())
            for source, labels in zip(batch.source, batch.labels, strict=True):
                whole = torch.where(labels == IGNORE, source, labels)
                text = whole[whole != special.pad][1:-1].tolist()
                assert text in [each.tokens.tolist() for each in passages]
    assert excluded > 0
