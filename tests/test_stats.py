"""The paired test, by hand and by simulation: does it see a difference where there is none?"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student
from simulation import rates

from maskpolicy import stats

SPREADS = (0.0, 1.0, 2.0, 3.0, 4.0)  # points between intermediate runs of one policy


@cache
def simulated(seeds: int) -> dict[str, list[float]]:
    """Return the false positives of each method, in percent, for each spread between runs."""
    rng = np.random.default_rng(seeds)
    found = [rates(rng, seeds=seeds, spread=spread) for spread in SPREADS]
    return {method: [each[method] for each in found] for method in found[0]}


@pytest.mark.parametrize("seeds", [5, 8])
def test_equal_policies_differ_in_five_percent_of_experiments(seeds):
    assert all(4 <= rate <= 6 for rate in simulated(seeds)["crossed"]), simulated(seeds)


def test_three_seeds_are_not_too_few():
    assert max(simulated(3)["crossed"]) <= 7.5, simulated(3)


@pytest.mark.parametrize("seeds", [3, 5, 8])
@pytest.mark.parametrize("method", ["unpaired", "permuted"])
def test_a_test_that_forgets_the_runs_sees_differences_that_are_not_there(method, seeds):
    found = simulated(seeds)[method]
    assert found[-1] >= 15, found


def test_few_groups_are_not_taken_for_many():
    rng = np.random.default_rng(1)
    found = rates(rng, seeds=5, spread=1.0, sizes=(20,) * 8, taste=0.1)
    assert 2.5 <= found["crossed"] <= 7
    assert found["many groups"] > found["crossed"] + 1


def test_groups_of_unequal_size_count_as_one_each():
    rng = np.random.default_rng(1)
    found = rates(rng, seeds=5, spread=1.0, sizes=(1,) * 8 + (5,) * 8 + (40,) * 4, taste=0.1)
    assert 2.5 <= found["crossed"] <= 6
    assert found["by size"] > 7


def test_a_hand_worked_table():
    """Seeds' means are 1 and 3, groups' 1, 2 and 3: MS_seed 6, MS_group 2, MS_rest 0."""
    found = stats.crossed(np.array([[0.0, 1.0, 2.0], [2.0, 3.0, 4.0]]))
    assert found.mean == 2
    assert found.error == pytest.approx(np.sqrt((6 + 2) / 6))
    assert found.freedom == pytest.approx((6 + 2) ** 2 / (6**2 / 1 + 2**2 / 2))


def test_without_more_between_groups_than_chance_the_seeds_are_all_that_counts():
    table = np.array([[1.0, -1.0, 1.0, -1.0], [0.0, 4.0, 0.0, 4.0], [2.0, 0.0, 2.0, 0.0]])
    found = stats.crossed(table)
    seeds = table.mean(1)
    assert found.error == pytest.approx(seeds.std(ddof=1) / np.sqrt(3))
    assert found.freedom == pytest.approx(2)


def test_an_estimate_and_its_interval():
    differences = np.array([[3.0, 1.0, 4.0, 0.0], [5.0, 1.0, 4.0, 2.0], [4.0, 4.0, 9.0, 3.0]])
    groups = np.array([0, 0, 1, 2])
    found = stats.estimate(differences, groups)
    table = np.array([[2.0, 4.0, 0.0], [3.0, 4.0, 2.0], [4.0, 9.0, 3.0]])
    by_hand = stats.crossed(table)
    assert (found.difference, found.seeds, found.groups) == (pytest.approx(table.mean()), 3, 3)
    half = student.isf(0.025, by_hand.freedom) * by_hand.error
    assert (found.low, found.high) == pytest.approx((table.mean() - half, table.mean() + half))
    assert found.p == pytest.approx(2 * student.sf(table.mean() / by_hand.error, by_hand.freedom))


@pytest.mark.parametrize(("value", "p"), [(0.0, 1.0), (1.0, 0.0)])
def test_where_nothing_varies_there_is_no_doubt(value, p):
    found = stats.estimate(np.full((3, 4), value), np.arange(4))
    assert (found.p, found.low, found.high) == (p, value, value)


@given(st.randoms(), st.integers(2, 5), st.integers(2, 6))
def test_the_other_way_round_the_difference_has_the_other_sign(random, seeds, groups):
    table = np.array(
        [[random.choice((-1.0, 0.0, 1.0)) for _ in range(groups)] for _ in range(seeds)]
    )
    there, back = (stats.estimate(sign * table, np.arange(groups)) for sign in (1, -1))
    assert there.p == pytest.approx(back.p)
    assert (there.low, there.high) == pytest.approx((-back.high, -back.low))
    assert there.low <= there.difference <= there.high


def test_the_order_of_seeds_and_examples_is_of_no_importance():
    rng = np.random.default_rng(0)
    table, groups = rng.normal(size=(4, 9)), np.array([0, 0, 1, 1, 1, 2, 3, 3, 4])
    order = rng.permutation(9)
    one = stats.estimate(table, groups)
    other = stats.estimate(table[::-1, order], groups[order])
    assert one.p == pytest.approx(other.p)


def test_holm_by_hand():
    assert stats.holm([0.01, 0.04, 0.03, 0.5]) == pytest.approx([0.04, 0.09, 0.09, 0.5])
    assert stats.holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_keeps_order_and_never_lowers(values):
    adjusted = stats.holm(values)
    assert all(0 <= p <= q <= 1 for p, q in zip(values, adjusted, strict=True))
    ranked = [q for _, q in sorted(zip(values, adjusted, strict=True))]
    assert ranked == sorted(ranked)
