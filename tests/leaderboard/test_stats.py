"""The paired test of a whole leaderboard, by hand and on simulated boards."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student
from statsmodels.regression.mixed_linear_model import MixedLM
from statsmodels.stats.multitest import multipletests

from benchmarks.simulation import EASES, SIZES, Design, rates
from maskpolicy.leaderboard import stats
from maskpolicy.leaderboard.stats import Difference

BOARD = Design(rows=7, tasks=3, sizes=(3,) * 30)


def one(differences: np.ndarray, groups: np.ndarray, name: str = "row") -> Difference:
    """Return the pair of a row with such differences and a baseline that is always at 0.5."""
    other = np.full(differences.shape, 0.5)
    return stats.pair(other + differences, other, groups, (name, "baseline"))


def p_of(differences: np.ndarray, groups: np.ndarray) -> float:
    return float(stats.assess_family([one(differences, groups)])[0].p)


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


def test_three_seeds_find_what_the_seeds_own_noise_alone_would_miss():
    design = replace(BOARD, noise=0.05, gain=1.2)
    found = rates(design, 100, ("ours", "bounded", "sign flips"))
    assert found["ours"][1] >= 0.5
    assert found["bounded"][1] <= 0.2
    assert found["sign flips"][1] == 0  # of three seeds there are eight ways to flip


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


def test_the_interval_and_p_are_of_one_test():
    differences = np.array([[0.3, 0.1, 0.4], [0.5, 0.1, 0.4], [0.4, 0.4, 0.0]])
    found = one(differences, np.arange(3))
    judged = stats.assess_family([found])[0]
    assert judged.p == pytest.approx(2 * student.sf(found.mean / judged.error, judged.freedom))
    low, high = stats.interval(float(found.mean), float(judged.error), judged.freedom)
    half = student.isf(0.025, judged.freedom) * judged.error
    assert (low, high) == (pytest.approx(found.mean - half), pytest.approx(found.mean + half))


def test_noise_of_the_family_counts_twice_and_never_makes_less_of_a_pair():
    """The quiet row is taken for noisier than it looks; the loud one is not taken for less."""
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
    assert p_of(np.full((3, 4), value), np.arange(4)) == p


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
    _, adjusted, *_ = multipletests(values, method="holm")
    np.testing.assert_allclose(stats.holm(values), adjusted)


def test_holms_adjustment_of_no_tests_is_empty():
    assert stats.holm([]).shape == (0,)


@pytest.mark.filterwarnings("ignore::statsmodels.tools.sm_exceptions.ConvergenceWarning")
@pytest.mark.parametrize("draw", range(3))
def test_the_error_of_a_balanced_pair_is_that_of_a_mixed_model(draw):
    """Seeds and groups are crossed random effects, fitted by REML; one row and its baseline."""
    rng = np.random.default_rng(draw)
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
    np.testing.assert_allclose(slope.chance, pair.chance / 4)
    np.testing.assert_allclose(slope.interaction, pair.interaction / 4)
    np.testing.assert_allclose(slope.slope, pair.slope / 4)


@pytest.mark.parametrize(("rows", "tasks", "is_small"), [(1, 1, True), (6, 4, True), (7, 3, False)])
def test_small_families_may_be_taken_to_have_runs_that_fail(rows, tasks, is_small):
    rng = np.random.default_rng(3)
    groups, names = np.repeat(np.arange(20), 3), [str(row) for row in range(rows)]
    base = rng.random((5, 60)) < 0.3
    better = [
        stats.pair(
            (rng.random((5, 60)) < 0.6).astype(float), base.astype(float), groups, (name, "")
        )
        for name in names
        for _ in range(tasks)
    ]
    usual = np.stack([each.p for each in stats.assess_family(better)])
    failing = np.stack([each.p for each in stats.assess_family(better, least=stats.FAILING)])
    assert (failing > usual).all() == is_small
    assert (failing == usual).all() == (not is_small)


def test_a_difference_of_differences_has_the_noise_of_both():
    rng = np.random.default_rng(4)
    groups = np.repeat(np.arange(10), 3)
    (first, base), (second, its_base) = rng.random((2, 2, 4, 30))
    one = stats.pair(first, base, groups, ("a", "base"))
    other = stats.pair(second, its_base, groups, ("b", "base"))
    less = stats.combined([(1, one), (-1, other)])
    np.testing.assert_allclose(less.of_seed, one.of_seed - other.of_seed)
    np.testing.assert_allclose(less.chance, one.chance + other.chance)
    both = np.sqrt(one.interaction) + np.sqrt(other.interaction)  # perhaps the same subjects
    np.testing.assert_allclose(less.interaction, both**2)
    assert less.groups == 20
    np.testing.assert_allclose(less.slope, (np.sqrt(one.slope) + np.sqrt(other.slope)) ** 2)
