"""The policies mixture and ul2: their blocks, UL2's denoisers, and an experiment with members."""

import json
from collections import Counter

import numpy as np
import pytest
import small
from maskpolicy.policies.mixture import UL2

from maskpolicy.app import cards
from maskpolicy.core.errors import ConfigError
from maskpolicy.core.types import Denoising
from maskpolicy.experiment.definition import resolved_policy
from maskpolicy.experiment.policy_blocks import policy_block
from maskpolicy.masking.selection import Masker

TWO = ["mass", {"name": "random", "target": "full", "ratio": 0.3}]
MEMBERS = [
    "salient-span",
    {"name": "keywords", "target": "full"},
    {"name": "mixture", "members": ["mine"]},
]


def test_a_row_holds_the_blocks_of_its_members_complete():
    row = policy_block({"name": "mixture", "members": TWO}, "", {"join": "none"})
    mass, random = row.fields["members"]
    assert (mass["name"], mass["ratio"], mass["corruption"]) == ("mass", 0.5, "token")
    assert (random["target"], random["ratio"]) == ("full", 0.3)
    assert {mass["join"], random["join"]} == {"none"}
    assert "label" not in mass
    assert "target" not in resolved_policy(row)


def test_an_encoder_takes_members_at_their_positions_only():
    row = policy_block({"name": "mixture", "members": ["mass", "span"]}, "it", {}, "encoder")
    assert {each["corruption"] for each in row.fields["members"]} == {"token"}
    members = ["mass", {"name": "span", "mask_exclusion": 0.5}]
    row = policy_block({"name": "mixture", "members": members}, "it", {}, "encoder")
    assert row.denoising.mask_exclusion == 0.5  # the model's, which serves both
    with pytest.raises(ConfigError, match=r"it.members\[0\].target: full is not for model.kind"):
        policy_block({"name": "mixture", "members": [TWO[1]]}, "it", {}, "encoder")


def test_ul2_draws_its_denoisers_alike_and_masks_exact_counts():
    passage = small.ids(range(200))
    masker = Masker.of(UL2(), Denoising())
    found = masker.select([[passage]] * 7, [0] * 1400, 0, range(1400))
    kinds = Counter((len(s), int((s[:, 1] - s[:, 0]).sum())) for s in found.spans)
    suffix = [s.tolist() for s in found.spans if s.tolist() == [[150, 200]]]
    expected = {(10, 30), (4, 30), (33, 100), (12, 100), (1, 30), (2, 100), (1, 50)}
    # a rolled span that passes the end is two
    assert set(kinds) == expected | {(n + 1, t) for n, t in expected if t != 50}
    assert len(suffix) == kinds[1, 50]
    drawn = [kinds[n, t] + (kinds[n + 1, t] if t != 50 else 0) for n, t in sorted(expected)]
    assert drawn == pytest.approx([200] * 7, abs=60)
    at_the_end = [s[-1, 1] == 200 for s in found.spans if (s[:, 1] - s[:, 0]).sum() == 30]
    assert np.mean(at_the_end) < 0.3  # without rolling all of them
    assert {each.target for each in found.denoisings} == {"spans"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The trainings of rows with members that annotate, are learned, and that a user wrote."""
    folder = tmp_path_factory.mktemp("made")
    small.saved(folder / "bart")
    (folder / "mine.py").write_text(small.POLICY.format(name="mine"))
    experiment = small.without_tasks(
        folder,
        "salient-span",
        {"name": "mixture", "label": "mixed", "members": MEMBERS},
        **{"plugins": ["mine.py"], "corpus": {"name": "world", "words": 40}, "fit": {"steps": 0}},
        **{"checkpoint_steps": [2], "world": {"people": 12, "general_people": 6}},
        intermediate={"steps": 4, "batch_size": 8, "precision": "fp32"},
    )
    found, store = small.computed(experiment, folder / "store")
    return *found.values(), store


def test_a_member_is_annotated_and_fitted_like_a_row(made):
    salient, mixed, store = made
    assert mixed.inputs["annotate-00"].key == salient.inputs["annotate"].key
    assert mixed.inputs["annotate-01"].inputs["fit"].kind == "fit"
    assert "annotate-02" not in mixed.inputs
    work = json.loads((store.path(mixed.key) / "work.json").read_text())
    assert work["passages"] == 32 and work["spans"] > 32


def test_the_key_holds_the_code_of_a_members_file(made):
    salient, mixed, _ = made
    params = mixed.record()["params"]
    assert [*params["member_code"]] == ["mine"] and [*params["member_code"]["mine"]] == ["mine.py"]
    assert "member_code" not in salient.record()["params"]


def test_a_card_has_a_line_for_each_member_and_no_objective_of_the_row(made):
    salient, mixed, _ = made
    found = cards._policy_settings(mixed.params)
    assert [*found] == ["weights", "member 1", "member 2", "member 3"]
    assert found["member 2"].startswith("name keywords, ratio 0.75, keywords 5, ")
    assert "target full" in found["member 2"]
    assert cards._policy_settings(salient.params)["target"] == "spans"
