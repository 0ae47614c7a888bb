"""The paired test of a whole leaderboard, by hand, and which differences a plan would find."""

import gc
import json
import tracemalloc
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student
from statsmodels.regression.mixed_linear_model import MixedLM
from statsmodels.stats.multitest import multipletests

from benchmarks.simulation import EASES, SIZES, Design, draw, rates
from maskpolicy.leaderboard import power, stats
from maskpolicy.leaderboard.comparisons import ONE_GROUP, WHOLE
from maskpolicy.leaderboard.power import Parts, StoredDifference
from maskpolicy.leaderboard.stats import Difference
from maskpolicy.pipeline import stages
from maskpolicy.pipeline.store.artifacts import Store

BOARD = Design(rows=7, tasks=3, sizes=(3,) * 30)


def one(differences: np.ndarray, groups: np.ndarray, name: str = "row") -> Difference:
    """Return the pair of a row with such differences and a baseline that is always at 0.5."""
    other = np.full(differences.shape, 0.5)
    return stats.pair(other + differences, other, groups, (name, "baseline"))


@pytest.mark.parametrize(
    "design",
    [
        replace(BOARD, noise=0.4),
        replace(BOARD, seeds=5, noise=0.0, rows=1),
        replace(BOARD, louder="one task", common=1.0),
        replace(BOARD, louder="baseline", common=1.0),
        Design(5, 3, 3, SIZES["8, 2 to 60"], noise=0.05, taste=0.4),
        Design(3, 1, 20, SIZES["100 x 1"], noise=0.0, ease=EASES["0.5%"]),
    ],
)
def test_a_board_without_differences_seldom_carries_a_mark(design):
    """`python -m benchmarks.simulation size` simulates all kinds of boards."""
    assert rates(design, 300)["ours"][0] <= 0.06


def test_one_more_right_answer_in_each_seed_is_not_marked():
    mine, other = np.zeros((2, 3, 100))
    for seed in range(3):
        mine[seed, [5 * seed, 5 * seed + 1]] = 1
        other[seed, 5 * seed + 2] = 1
    found = stats.pair(mine, other, np.arange(100), ("row", "baseline"))
    np.testing.assert_allclose(found.of_seed, 0.01)
    verdict = stats.assess_family([found])[0]
    np.testing.assert_allclose(verdict.error, np.sqrt(found.chance / 3 + found.interaction))
    assert verdict.p > 0.1


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_numbers_that_differ_by_rounding_alone_are_equal(unit):
    values = unit * np.array([[0.4 - 0.3, 0.3 - 0.2, 0.1], [0.1, 0.1, 0.2]])
    assert len(set(values[0])) == 3
    assert list(stats.are_equal(values)) == [True, False]
    assert [verdict.p == 1 for verdict in stats.replicated(values)] == [True, False]


def test_a_hand_worked_pair():
    """Seeds' means are 1 and 3 tenths, groups' 1, 2 and 3: all seeds like the same groups."""
    found = one(np.array([[0.0, 0.1, 0.2], [0.2, 0.3, 0.4]]), np.arange(3))
    assert found.mean == pytest.approx(0.2)
    assert found.runs == pytest.approx(0.02)
    assert found.chance == pytest.approx(0)
    assert found.interaction == pytest.approx(0.02 / 9 / (2 / 3))
    assert (found.seeds, found.groups) == (2, 3)
    assert found.group_freedom == pytest.approx(2)


def test_without_more_between_groups_than_chance_the_seeds_are_all_that_counts():
    table = np.array([[0.1, -0.1, 0.1, -0.1], [0.0, 0.4, 0.0, 0.4], [0.2, 0.0, 0.2, 0.0]])
    found = one(table, np.arange(4))
    assert found.interaction == 0
    judged = stats.assess_family([found])[0]
    assert judged.error == pytest.approx(table.mean(1).std(ddof=1) / np.sqrt(3))
    assert judged.freedom == 2


def test_noise_of_the_family_counts_twice_and_never_makes_less_of_a_pair():
    """The quiet row counts as noisier than it looks; the loud one keeps its noise."""
    quiet, loud, middle = (np.outer([-1, 0, 1], np.full(9, size)) for size in (0.001, 0.2, 0.02))
    rows = {"quiet": quiet + 0.1, "loud": loud, "middle": middle}
    family = [one(table, np.arange(9), name) for name, table in rows.items()]
    noise = stats.run_noise(family)
    first, second, _ = stats.assess_family(family)
    pooled = (0.001**2 + 2 * float(noise * family[0].slope)) / 3
    assert first.error == pytest.approx(np.sqrt(pooled / 3))
    assert second.error == pytest.approx(0.2 / np.sqrt(3))
    assert first.freedom == second.freedom == 6


@pytest.mark.parametrize(("rows", "freedom"), [(1, 2), (2, 4), (3, 6), (9, 6)])
def test_degrees_of_freedom_grow_with_rows_and_not_with_tasks(rows, freedom):
    rng = np.random.default_rng(0)
    family = [
        one(rng.normal(0, 0.1, (3, 20)), np.arange(20), f"row {row}")
        for row in range(rows)
        for _ in range(4)
    ]
    assert {each.freedom for each in stats.assess_family(family)} == {freedom}


@pytest.mark.parametrize(("value", "p"), [(0.0, 1.0), (0.5, 0.0)])
def test_where_nothing_varies_there_is_no_doubt(value, p):
    found = one(np.full((3, 4), value), np.arange(4))
    assert stats.assess_family([found])[0].p == p


def test_a_batch_of_boards_is_judged_as_each_of_them():
    rng = np.random.default_rng(0)
    tables, groups = rng.normal(0.1, 0.1, (2, 5, 3, 8)), np.repeat(np.arange(4), 2)
    family = [one(table, groups, f"row {row}") for row, table in enumerate(tables)]
    whole = stats.assess_family(family)
    for board in range(5):
        alone = [one(table[board], groups, f"row {row}") for row, table in enumerate(tables)]
        for many, single in zip(whole, stats.assess_family(alone), strict=True):
            assert many.p_holm[board] == pytest.approx(single.p_holm)


@pytest.mark.parametrize(("freedom", "tests"), [(2, 1), (2, 21), (6, 21), (14, 81)])
def test_a_detectable_difference_is_found_four_times_in_five(freedom, tests):
    shift = stats.detectable(freedom, tests)
    rng = np.random.default_rng(0)
    drawn = (rng.normal(size=40_000) + shift) / np.sqrt(rng.chisquare(freedom, 40_000) / freedom)
    p = 2 * student.sf(np.abs(drawn), freedom)
    assert (p < stats.LEVEL / tests).mean() == pytest.approx(stats.POWER, abs=0.01)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holms_adjustment_is_that_of_statsmodels(values):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "collect", lambda: 0)  # statsmodels does so at each call
        _, adjusted, *_ = multipletests(values, method="holm")
    np.testing.assert_allclose(stats.holm(values), adjusted)
    assert stats.holm([]).shape == (0,)


@pytest.mark.filterwarnings("ignore::statsmodels.tools.sm_exceptions.ConvergenceWarning")
def test_the_error_of_a_balanced_pair_is_that_of_a_mixed_model():
    """Seeds and groups are crossed random effects, fitted by REML; one row and its baseline."""
    rng = np.random.default_rng(0)
    seeds, groups = 5, 12
    table = rng.normal(0, 0.1, (seeds, 1)) + rng.normal(0, 0.08, groups)
    table = 0.05 + table + rng.normal(0, 0.05, (seeds, groups))
    judged = stats.assess_family([one(table, np.arange(groups))])[0]
    seed, group = np.indices(table.shape).reshape(2, -1)
    frame = pd.DataFrame({"score": table.ravel(), "seed": seed, "group": group, "all": 1})
    effects = {"seed": "0 + C(seed)", "group": "0 + C(group)"}
    model = MixedLM.from_formula("score ~ 1", groups="all", vc_formula=effects, data=frame)
    fitted = model.fit(reml=True)
    assert table.mean() == pytest.approx(fitted.params["Intercept"])
    assert judged.error == pytest.approx(fitted.bse["Intercept"], rel=1e-3)


def test_a_weighted_sum_of_two_rows_is_their_difference():
    rng = np.random.default_rng(3)
    mine, other = rng.random((2, 4, 30))
    groups = np.repeat(np.arange(10), 3)
    pair = stats.pair(mine, other, groups, ("a", "b"))
    slope = stats.weighted([(0.5, mine), (-0.5, other)], groups, ("a", "b"))
    np.testing.assert_allclose(slope.of_seed, pair.of_seed / 2)
    for variance in ("chance", "interaction", "slope"):
        np.testing.assert_allclose(getattr(slope, variance), getattr(pair, variance) / 4)


@pytest.mark.parametrize(("rows", "tasks", "is_small"), [(1, 1, True), (6, 4, True), (7, 3, False)])
def test_small_families_may_count_as_having_runs_that_fail(rows, tasks, is_small):
    rng = np.random.default_rng(3)
    groups, names = np.repeat(np.arange(20), 3), [str(row) for row in range(rows)]
    base = (rng.random((5, 60)) < 0.3).astype(float)
    better = [
        stats.pair((rng.random((5, 60)) < 0.6).astype(float), base, groups, (name, ""))
        for name in names
        for _ in range(tasks)
    ]
    usual = np.stack([each.p for each in stats.assess_family(better)])
    failing = np.stack([each.p for each in stats.assess_family(better, least=stats.FAILING)])
    assert (failing > usual).all() == is_small
    assert (failing == usual).all() == (not is_small)


def test_a_mean_over_tasks_has_the_noise_of_all():
    rng = np.random.default_rng(4)
    groups = np.repeat(np.arange(10), 3)
    draws = rng.random((2, 2, 4, 30))
    one, other = (stats.pair(mine, base, groups, ("a", "base")) for mine, base in draws)
    mean, apart = (stats.average([one, other], apart=is_apart) for is_apart in (False, True))
    np.testing.assert_allclose(mean.of_seed, (one.of_seed + other.of_seed) / 2)
    np.testing.assert_allclose(mean.chance, (one.chance + other.chance) / 4)
    both = np.sqrt(one.interaction) + np.sqrt(other.interaction)  # perhaps the same subjects
    np.testing.assert_allclose(mean.interaction, both**2 / 4)
    np.testing.assert_allclose(apart.interaction, (one.interaction + other.interaction) / 4)
    assert mean.groups == 20
    np.testing.assert_allclose(mean.slope, (np.sqrt(one.slope) + np.sqrt(other.slope)) ** 2 / 4)


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


def test_what_plan_assumes_suffices_for_equally_hard_questions():
    """Right answers to 100 of them are drawn with one chance; runs are equal, as is taste."""
    parts = replace(power.defaults(0.0, list(map(str, range(100)))), interaction=0.0)
    shift = power.finds(parts, 8, 1, 1)
    rng = np.random.default_rng(0)
    other, mine = (rng.random((400, 8, 100)) < share for share in (0.3, 0.3 + shift / 100))
    pair = stats.pair(mine.astype(float), other.astype(float), np.arange(100), ("a", "b"))
    (verdict,) = stats.assess_family([pair])
    assert 0.7 < (verdict.p_holm < stats.LEVEL).mean() < 0.9


def test_examples_are_counted_or_assumed_within_a_limit_where_nothing_was_run():
    counted = power.defaults(power.NOISE**2, [f"page {i // 2}" for i in range(40)])
    assert (counted.examples, counted.source) == (40, "defaults")
    assert counted.group_freedom == pytest.approx(19)
    few = power.defaults(power.NOISE**2, None, limit=60)
    assert (few.examples, few.assumed, few.group_freedom) == (None, 60, pytest.approx(59))
    many = power.defaults(power.NOISE**2, None, limit=5000)
    assert many.assumed == power.EXAMPLES
    assert power.finds(few, 3, 2, 6) > power.finds(many, 3, 2, 6)
    found = [power.Power("zsre", few, 3, 12.3456, None)]
    assert power.to_rows(found)[0]["test examples"] == "60?"
    most = power.to_rows([replace(found[0], finds=100 + over) for over in (0, 1)])
    assert [row["3 seeds find"] for row in most] == ["±100.0 points", "none"]
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
            "fault": None,
        }
    ]


ENCODER = "model={kind: encoder, name: mini, head: own}"


def test_half_of_pairs_are_assumed_to_be_right(load, tmp_path):
    tasks = "tasks=[{name: blimp, data: .}, {name: squad, data: world}]"
    keys = (ENCODER, tasks, "seeds=[0, 1, 2]", "intermediate_seeds=3")
    (tmp_path / "blimp").mkdir()
    (tmp_path / "blimp" / "island.jsonl").write_text("")
    made = load(*keys)
    found, _ = power.plan(made, stages.build(made), Store(tmp_path / "store"))
    assert [each.parts.share for each in found] == [0.5, 0.3]
    assert found[0].finds > found[1].finds
    *_, fault, last = power.lines(found, made)
    assert last.endswith("30% or 50% right answers, 300 test examples")
    assert f"blimp cannot be read: {tmp_path / 'blimp'}: no usable row" in fault
    rows = [
        {"sentence_good": f"a {n}", "sentence_bad": f"b {n}", "UID": f"u{n % 2}"} for n in range(19)
    ]
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    (tmp_path / "blimp" / "island.jsonl").write_text(text)
    made = load(*keys)
    local, _ = power.plan(made, stages.build(made), Store(tmp_path / "store"))
    assert [each.parts.examples for each in local] == [19, None]


@pytest.mark.parametrize(("metrics", "whole"), [("", True), (", metrics: [accuracy]", False)])
def test_a_plan_asks_the_metric_that_ranks_whether_it_can_be_tested(load, store, metrics, whole):
    made = load(ENCODER, f"tasks=[{{name: cola, data: world{metrics}}}]")
    assert power.plan(made, stages.build(made), store)[1] == ({"cola": WHOLE} if whole else {})


def test_a_task_whose_examples_share_one_group_is_named_and_counts_as_no_test(
    load, store, tmp_path
):
    finds = []
    for groups in ("ab", "aa"):
        lines = [f"who {n},me,{group}\n" for n, group in enumerate(groups)]
        for split in ("train", "test"):
            text = "".join(["question,answer,page\n", *lines])
            (tmp_path / f"{split}.csv").write_text(text)
        tasks = f"tasks=[zsre, {{name: table, topic: page, data: '{tmp_path}'}}]"
        made = load(tasks, "seeds=[0, 1, 2]", "intermediate_seeds=3")
        found, untested = power.plan(made, stages.build(made), store)
        finds.append([each.finds for each in found])
        assert untested == ({"table": ONE_GROUP} if groups == "aa" else {})
    assert len(finds[1]) == 1 and finds[1] < finds[0][:1]


def test_seeds_that_share_some_general_models_will_not_be_tested(load):
    many = ["seeds=[0,1,2,3]", "intermediate_seeds=4"]
    found = [power.Power("triviaqa", PARTS, 4, 5.0, 9)]
    for models, shared in ((1, False), (2, True), (4, False)):
        made = load(*many, f"general_seeds={models}")
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


def test_a_plan_uses_the_noise_of_stored_runs():
    rng = np.random.default_rng(0)
    mine, other = ((rng.random((3, 60)) < 0.5).astype(float) for _ in range(2))
    known = stored(mine, other)
    noise = float(stats.run_noise([known.pair]))
    found = power.stored_parts([known], noise)
    assert found.runs == pytest.approx(noise * float(known.pair.slope) + float(known.pair.chance))
    assert (found.examples, found.source) == (60, "runs in the store")


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_noise_does_not_vanish_at_floor_and_ceiling(share):
    """A plan uses the noise at 5% or 95%, not the noise of all or no right answers."""
    known = [seen(share, share), seen(share, share)]
    assert all(each.at_edge == 2 for each in known)
    found = power.stored_parts(known, power.NOISE**2)
    assert found.source == power.CLAMPED
    assert power.finds(found, 3, 2, 6) > 5
    table = [power.Power("zsre", found, 3, power.finds(found, 3, 2, 6), None)]
    assert "scores counted as 5 to 95" in power.to_rows(table)[0]["noise from"]


def test_a_plan_from_few_runs_gives_a_range():
    known = [seen(0.5, 0.6, loose) for loose in (2, 6)]
    find = partial(power.finds, rows=2, tests=6)
    few = power.stored_parts(known, 0.04)
    low, high = power.between(few, 3, find) or (0, 0)
    assert low < find(few, 3) < high
    more = power.between(replace(few, freedom=20), 3, find) or (0, 0)
    assert low < more[0] < more[1] < high
    row = power.to_rows([power.Power("zsre", few, 3, find(few, 3), None, (low, high))])[0]
    assert row["3 seeds find"].endswith(f" points ({low:.1f} to {high:.1f})")
    assert power.between(PARTS, 3, find) is None
    assert power.between(replace(few, runs=100.0), 3, find) == (100, 100)


@pytest.mark.parametrize("base", [0.0, 1.0])
@pytest.mark.parametrize("loose", [2, 6])
def test_a_plan_is_not_far_more_hopeful_than_the_leaderboard(base, loose):
    """Of a baseline at an edge, and of a task whose runs differ more than those of all tasks."""
    known = [seen(base, base, loose), seen(base, base, loose)]
    found = power.stored_parts(known, 0.01**2)
    calm = [seen(0.4, 0.5).pair, seen(0.5, 0.4).pair]
    for verdict in stats.assess_family([*calm, *(each.pair for each in known)])[2:]:
        on_board = 100 * float(verdict.error) * stats.detectable(verdict.freedom, 4)
        assert power.finds(found, 3, 2, 4) > on_board / 2


def test_the_contrasts_of_hundreds_of_rows_need_no_matrix_of_all_pairs():
    def rank(names):
        numbers = {name: n for n, name in enumerate({name for rows in names for name in rows})}
        signs = np.zeros((len(names), len(numbers)))
        for line, rows in enumerate(names):
            signs[line, [numbers[name] for name in rows]] = 1, -1
        return np.linalg.matrix_rank(signs)

    for names in ("ab", "ab ac", "ab cd", "ab bc ca", "aa ab", "aa bb cd", "ab cd bd ee", "aa"):
        pairs = [(each[0], each[1]) for each in names.split()]
        assert stats.contrasts(pairs) == rank(pairs)
    every = [*combinations(map(str, range(300)), 2)]
    tracemalloc.start()
    assert stats.contrasts(every) == 299
    assert tracemalloc.get_traced_memory()[1] < 40e6  # the matrix has 108 MB
    tracemalloc.stop()


@pytest.mark.parametrize("gain", [0.3, 0.6, 1.2])
def test_the_table_of_power_has_the_differences_that_are_drawn(gain):
    page = Path(__file__).parents[2] / "docs" / "statistics.md"
    design = Design(rows=1, tasks=1, gain=gain)
    (answers,) = draw(np.random.default_rng(0), design, 2000)
    base, better = 100 * answers.mean((0, 2, 3), dtype=float)
    assert base == pytest.approx(42, abs=1)
    assert f"| 0.2 | {better - base:.0f} points |" in page.read_text(encoding="utf-8")
