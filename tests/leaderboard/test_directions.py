"""Verdicts on claimed directions, and the adjustment of hypotheses of which one at most is true."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from maskpolicy.leaderboard import stats
from maskpolicy.leaderboard.directions import (
    REFUTED,
    SHOWN,
    UNDECIDED,
    ClaimedDifference,
    DirectionalClaim,
    holm_of_exclusive,
    judge,
)


def estimate(difference, error=1.0, freedom=20.0, least=5.0):
    return ClaimedDifference(np.asarray(difference), np.asarray(error), freedom, least)


def alone(*differences, counts="all", is_whole=True):
    return judge([DirectionalClaim(differences, counts, is_whole)])[0]


@pytest.mark.parametrize(
    ("difference", "error", "word"),
    [
        (20.0, 1.0, SHOWN),
        (2.0, 1.0, SHOWN),  # below the smallest effect, and yet in the claimed direction
        (1.5, 1.0, REFUTED),
        (-1.0, 1.0, REFUTED),
        (-20.0, 1.0, REFUTED),
        (2.0, 2.0, UNDECIDED),
    ],
)
def test_a_verdict_follows_from_difference_and_smallest_effect(difference, error, word):
    assert alone(estimate(difference, error)).word == word


def test_a_wide_interval_decides_nothing_whatever_its_centre():
    for difference in (-5.0, 0.0, 5.0, 9.0):
        assert alone(estimate(difference, 10.0, 8)).word == UNDECIDED


def test_more_claims_make_each_verdict_harder():
    one = DirectionalClaim([estimate(2.0, freedom=30, least=3.0)])
    noise = DirectionalClaim([estimate(2.0, 2.0, 30)])
    assert judge([one])[0].word == SHOWN
    assert judge([one, noise, noise, noise])[0].word == UNDECIDED


def test_a_claim_about_all_rests_on_the_least_certain_difference_whatever_their_number():
    strong, weak, none = estimate(20.0), estimate(2.0), estimate(1.0, 2.0)
    assert alone(weak).p == alone(*[strong] * 9, weak).p == stats.one_sided(2.0, 1.0, 20)
    assert alone(*[strong] * 9, weak).word == SHOWN
    assert alone(strong, none).word == UNDECIDED
    assert alone(strong, estimate(-20.0)).word == REFUTED


def test_a_claim_about_any_rests_on_the_most_certain_difference_times_their_number():
    strong, none, less = estimate(20.0), estimate(3.0, 2.0), estimate(-20.0)
    assert alone(less, none, strong, counts="any").word == SHOWN
    assert alone(less, less, counts="any").word == REFUTED
    assert alone(less, none, counts="any").word == UNDECIDED
    two = alone(estimate(2.0), less, counts="any")
    assert two.p == 2 * stats.one_sided(2.0, 1.0, 20)
    weak = estimate(2.0, least=3.0)
    assert alone(weak).word == SHOWN
    assert alone(weak, weak, weak, counts="any").word == UNDECIDED


def test_what_was_not_measured_may_differ():
    strong, less = estimate(20.0), estimate(-20.0)
    assert alone(strong, is_whole=False).word == UNDECIDED
    assert alone(less, is_whole=False).word == REFUTED
    assert alone(strong, counts="any", is_whole=False).word == SHOWN
    assert alone(less, counts="any", is_whole=False).word == UNDECIDED


def test_no_claims_have_no_verdicts():
    assert judge([]) == []


def shaffer(pairs: list[tuple[float, float]], level: float) -> set[tuple[int, int]]:
    """Reject hypotheses one by one, as the procedure is defined."""
    left = {(i, k): p for i, both in enumerate(pairs) for k, p in enumerate(both)}
    rejected: set[tuple[int, int]] = set()
    while left:
        true = sum(any((i, k) not in rejected for k in (0, 1)) for i in range(len(pairs)))
        place = min(left, key=lambda place: left[place])
        if left.pop(place) > level / true:
            break
        rejected.add(place)
    return rejected


def test_the_adjusted_p_are_those_of_the_stepwise_procedure():
    rng = np.random.default_rng(0)
    for number in range(1, 6):
        for _ in range(60):
            both = rng.random((number, 2)) ** 6
            one, other = holm_of_exclusive(both[:, 0], both[:, 1])
            for level in (0.01, 0.05, 0.3):
                wanted = shaffer([tuple(each) for each in both], level)
                found = {
                    (i, k) for i, k in product(range(number), (0, 1)) if (one, other)[k][i] <= level
                }
                assert found == wanted


def test_without_second_hypotheses_it_is_holms_adjustment():
    p = np.array([0.001, 0.04, 0.012, 0.3])
    one, _ = holm_of_exclusive(p, np.zeros(4))
    np.testing.assert_allclose(one, stats.holm(p))


def test_a_batch_is_judged_as_each_family_alone():
    rng = np.random.default_rng(1)
    one, other = rng.random((2, 7, 9)) ** 4
    whole = holm_of_exclusive(one, other)
    for place in range(9):
        alone = holm_of_exclusive(one[:, place], other[:, place])
        for batch, each in zip(whole, alone, strict=True):
            np.testing.assert_allclose(batch[:, place], each)
