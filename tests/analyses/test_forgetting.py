"""What a general stage on several objectives teaches, and how its loss is measured."""

from __future__ import annotations

import folders
import pytest

from maskpolicy.analyses import intermediate_stages
from maskpolicy.analyses.builtin.knowledge import Forgetting
from maskpolicy.leaderboard.results.cell import read_run
from maskpolicy.pipeline.store.artifacts import Store

MINE = """
from dataclasses import dataclass
from maskpolicy import policy


@policy("first-words", target="spans")
@dataclass(frozen=True)
class FirstWords:
    def select(self, passage, rng):
        return passage.words[:2]
"""
EXPERIMENT = """
model: mini
corpus: world
policies: [random]
baseline: random
tasks: [zsre]
plugins: [mine.py]
world: {people: 8, general_people: 8}
general:
  steps: 4
  batch_size: 8
  warmup: 1
  policy: {name: mixture, members: [original, salient-span, pmi, first-words]}
intermediate: {steps: 4, batch_size: 4, warmup: 1}
finetune: {steps: 2, batch_size: 4, warmup: 1}
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a run whose general stage mixes policies: run/ and store/."""
    folder = tmp_path_factory.mktemp("general")
    (folder / "mine.py").write_text(MINE)
    return folders.run_experiment(folder, EXPERIMENT)


@pytest.mark.slow
def test_each_target_form_of_a_mixture_has_its_own_loss(analyse, home):
    found = analyse("forgetting", "passages=32")
    rows = {row["target"]: row for row in found["rows"]}
    assert [*rows] == ["full", "spans"]
    assert len(found["plots"]) == 2
    for row in rows.values():
        assert row["difference"] == pytest.approx(row["after"] - row["before"])
        assert row["low"] is None or row["low"] <= row["difference"] <= row["high"]
    # three policies of the mixture have spans targets, and each masks every passage in turn
    store = Store(home / "store")
    run = read_run(home / "run")
    stage = next(iter(intermediate_stages([run], store)[0]))
    params = [params for _, params, _, _ in Forgetting()._objectives(stage, store)]
    assert [each.policy for each in params] == ["original", "salient-span", "pmi", "first-words"]
    assert [*(params[3].code or {})] == ["mine.py"] and params[0].code is None


@pytest.mark.slow
def test_a_board_names_the_policies_of_the_general_stage(home):
    run = read_run(home / "run")
    assert run.results[0].config["general"]["policy"]["name"] == "mixture"
    board = (home / "run" / "leaderboard.md").read_text()
    assert "policy mixture of original and salient-span and pmi and first-words" in board
