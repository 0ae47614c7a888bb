"""Which differences a planned experiment would find."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy.stats import t as student

from maskpolicy.experiment.parse import load_experiment
from maskpolicy.leaderboard import power, stats
from maskpolicy.leaderboard.power import Parts, StoredDifference
from maskpolicy.pipeline import stages
from maskpolicy.pipeline.store.artifacts import Store

PARTS = Parts(runs=0.03**2, interaction=0.0, group_freedom=300.0, examples=300, source="defaults")


@pytest.mark.parametrize(("seeds", "rows", "tests"), [(3, 1, 3), (3, 8, 24), (5, 2, 6), (8, 7, 21)])
def test_the_difference_is_found_in_four_of_five_experiments(seeds, rows, tests):
    """Runs are drawn, and tested as `assess_family` does where all rows have the same noise."""
    shift = power.finds(PARTS, seeds, rows, tests) / 100
    drawn = np.random.default_rng(0).normal(shift, 0.03, (20_000, seeds))
    weight = min(stats.SHARED, rows - 1)
    own = drawn.var(-1, ddof=1)
    error = np.sqrt(np.maximum(own, (own + weight * 0.03**2) / (1 + weight)) / seeds)
    freedom = stats.freedom(seeds, rows, PARTS.group_freedom)
    p = 2 * student.sf(np.abs(drawn.mean(-1)) / error, freedom)
    assert (p < stats.LEVEL / tests).mean() == pytest.approx(stats.POWER, abs=0.015)


def test_more_seeds_rows_and_examples_find_less():
    assert (
        power.finds(PARTS, 8, 7, 21) < power.finds(PARTS, 5, 7, 21) < power.finds(PARTS, 3, 7, 21)
    )
    assert power.finds(PARTS, 3, 3, 3) < power.finds(PARTS, 3, 1, 3)  # noise is pooled
    assert power.finds(PARTS, 3, 7, 21) < power.finds(PARTS, 3, 7, 63)
    few = replace(PARTS, interaction=0.01**2, group_freedom=5)
    assert power.finds(few, 50, 7, 21) > 100 * few.interaction**0.5


def test_defaults_are_named_where_nothing_was_run(tmp_path):
    split = tmp_path / "test.jsonl"
    split.write_text("".join(f'{{"group": "page {i // 2}"}}\n' for i in range(40)))
    found = power._parts([], power.NOISE**2, split, False)
    assert (found.examples, found.source) == (40, "defaults")
    assert found.group_freedom == pytest.approx(19)
    unknown = power._parts([], power.NOISE**2, None, False)
    assert unknown.examples is None
    assert unknown.group_freedom == pytest.approx(power.EXAMPLES - 1)


def test_a_limit_bounds_the_examples_that_are_assumed():
    few = power._parts([], power.NOISE**2, None, False, limit=60)
    assert (few.examples, few.assumed, few.group_freedom) == (None, 60, pytest.approx(59))
    many = power._parts([], power.NOISE**2, None, False, limit=5000)
    assert many.assumed == power.EXAMPLES
    assert power.finds(few, 3, 2, 6) > power.finds(many, 3, 2, 6)
    found = [power.Power("zsre", few, 3, 12.3456, None)]
    assert power.to_rows(found)[0]["test examples"] == "60?"
    assert power.to_json(found) == [
        {
            "task": "zsre",
            "test_examples": None,
            "assumed_examples": 60,
            "seeds": 3,
            "finds_points": 12.346,
            "finds_between": None,
            "wanted_points": power.WANTED,
            "seeds_for_wanted": None,
            "noise_from": "defaults",
        }
    ]


def test_half_of_pairs_are_assumed_to_be_right(tmp_path):
    path = tmp_path / "it.yaml"
    path.write_text(
        "model: {kind: encoder, name: mini, head: own}\ncorpus: world\npolicies: [none, random]\n"
        "tasks: [{name: blimp, data: .}, {name: squad, data: world}]\n"
        "seeds: [0, 1, 2]\nintermediate_seeds: 3\n"
    )
    (tmp_path / "blimp").mkdir()
    (tmp_path / "blimp" / "island.jsonl").write_text("")
    made = load_experiment(path)
    found = power.plan(made, stages.build(made), Store(tmp_path / "store"))
    assert [each.parts.share for each in found] == [0.5, 0.3]
    assert found[0].finds > found[1].finds
    assert power.lines(found, made)[-1].endswith("30% or 50% right answers, 300 test examples")


def test_seeds_that_share_some_general_models_will_not_be_tested(tmp_path):
    path = tmp_path / "it.yaml"
    path.write_text("model: mini\ncorpus: world\npolicies: [none, random]\ntasks: [triviaqa]\n")
    many = ["seeds=[0,1,2,3]", "intermediate_seeds=4"]
    found = [power.Power("triviaqa", PARTS, 4, 5.0, 9)]
    for models, shared in ((1, False), (2, True), (4, False)):
        made = load_experiment(path, [*many, f"general_seeds={models}"])
        said = " ".join(power.lines(found, made))
        assert (f"some of 4 seeds share one of {models} general models" in said) == shared


def seen(mine: float, other: float, loose: int = 0) -> StoredDifference:
    """Three seeds of 60 answers, two in a group; in `loose` of them the rows' seeds differ."""
    scores = [np.tile(np.arange(60) < round(60 * share), (3, 1)) for share in (mine, other)]
    scores[0][1, :loose] ^= True
    made = [each.astype(float) for each in scores]
    return stored(made[0], made[1])


def stored(mine: stats.Floats, other: stats.Floats) -> StoredDifference:
    pair = stats.pair(mine, other, np.repeat(np.arange(30), 2), ("a", "b"))
    return StoredDifference(pair, (float(mine.mean()), float(other.mean())))


def test_noise_of_runs_that_are_there_is_taken():
    rng = np.random.default_rng(0)
    mine, other = ((rng.random((3, 60)) < 0.5).astype(float) for _ in range(2))
    known = stored(mine, other)
    noise = float(stats.run_noise([known.pair]))
    found = power._parts([known], noise, None, True)
    assert found.runs == pytest.approx(noise * float(known.pair.slope) + float(known.pair.chance))
    assert (found.examples, found.source) == (60, "runs in the store")


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_noise_does_not_vanish_at_floor_and_ceiling(share):
    """The noise of a share of 5% or 95% is taken, not that of all or no answers right."""
    known = [seen(share, share), seen(share, share)]
    assert not any(each.shows_noise for each in known)
    found = power._parts(known, power.NOISE**2, None, False)
    assert found.source == power.CLAMPED
    assert power.finds(found, 3, 2, 6) > 5
    table = [power.Power("zsre", found, 3, power.finds(found, 3, 2, 6), None)]
    assert "scores taken as 5 to 95" in power.to_rows(table)[0]["noise from"]


def test_a_plan_from_few_runs_gives_a_range():
    known = [seen(0.5, 0.6, loose) for loose in (2, 6)]
    find = partial(power.finds, rows=2, tests=6)
    few = power._parts(known, 0.04, None, True)
    low, high = power.between(few, 3, find) or (0, 0)
    assert low < find(few, 3) < high
    more = power.between(replace(few, freedom=20), 3, find) or (0, 0)
    assert low < more[0] < more[1] < high
    row = power.to_rows([power.Power("zsre", few, 3, find(few, 3), None, (low, high))])[0]
    assert row["3 seeds find"].endswith(f" points ({low:.1f} to {high:.1f})")
    assert power.between(PARTS, 3, find) is None


@pytest.mark.parametrize("base", [0.0, 1.0])
@pytest.mark.parametrize("loose", [2, 6])
def test_a_plan_is_not_far_more_hopeful_than_the_leaderboard(base, loose):
    """Of a baseline at an edge, and of a task whose runs differ more than those of all tasks."""
    known = [seen(base, base, loose), seen(base, base, loose)]
    found = power._parts(known, 0.01**2, None, True)
    calm = [seen(0.4, 0.5).pair, seen(0.5, 0.4).pair]
    for verdict in stats.assess_family([*calm, *(each.pair for each in known)])[2:]:
        on_board = 100 * float(verdict.error) * stats.detectable(verdict.freedom, 4)
        assert power.finds(found, 3, 2, 4) > on_board / 2
