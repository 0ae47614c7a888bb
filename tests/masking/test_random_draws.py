"""Ranges are drawn by share, by score or by weight, and keep their order."""

from __future__ import annotations

import numpy as np
import pytest
import small
from hypothesis import given
from hypothesis import strategies as st

from maskpolicy.masking.random_draws import draw, draw_highest, draw_weighted
from maskpolicy.types import Spans, as_spans


@given(st.integers(0, 40), st.floats(0, 1), st.integers(0, 9))
def test_drawing_takes_the_floor_or_one_more_and_keeps_the_order(count, ratio, seed):
    units = small.ids(range(count)).pieces
    drawn = draw(units, ratio, np.random.default_rng(seed))
    assert int(ratio * count) <= len(drawn) <= min(count, int(ratio * count) + 1)
    assert drawn.shape[1] == 2
    assert (np.diff(drawn[:, 0]) > 0).all()


def units(count: int) -> Spans:
    return as_spans([(place, place + 1) for place in range(count)])


def test_the_highest_scores_are_drawn_and_equal_ones_by_lot():
    rng, scores = np.random.default_rng(0), np.asarray([1, 5, 2, 5, 5, 0])
    assert draw_highest(units(6), scores, 0.5, rng)[:, 0].tolist() == [1, 3, 4]
    drawn = [draw_highest(units(6), scores, 2 / 6, rng)[:, 0] for _ in range(600)]
    shares = np.bincount(np.concatenate(drawn), minlength=6) / 600
    assert shares == pytest.approx([0, 2 / 3, 0, 2 / 3, 2 / 3, 0], abs=0.07)
    assert draw_highest(units(0), scores[:0], 0.5, rng).shape == (0, 2)


def test_weights_are_chances_one_draw_at_a_time():
    rng, weights = np.random.default_rng(0), np.asarray([6.0, 3.0, 1.0, 0.0])
    drawn = [draw_weighted(units(4), weights, 0.5, rng)[:, 0] for _ in range(3000)]
    assert {len(each) for each in drawn} == {2}
    shares = np.bincount(np.concatenate(drawn), minlength=4) / 3000
    # by hand, of the pairs: 0 is in all but those of 1 and 2, and so on
    without = [3 / 10 * 1 / 7 + 1 / 10 * 3 / 9, 6 / 10 * 1 / 4 + 1 / 10 * 6 / 9]
    without += [6 / 10 * 3 / 4 + 3 / 10 * 6 / 7, 1.0]
    assert shares == pytest.approx(1 - np.asarray(without), abs=0.03)
    whole = draw_weighted(units(4), weights, 1.0, rng)
    assert whole[:, 0].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("drawing", [draw_highest, draw_weighted])
def test_all_ways_of_drawing_take_the_same_number(drawing):
    weights = np.asarray([0.5, 3.0, 1.0, 2.0, 0.1, 9.0, 4.0])
    for seed in range(20):
        sizes = {
            len(draw(units(7), 0.4, np.random.default_rng(seed))),
            len(drawing(units(7), weights, 0.4, np.random.default_rng(seed))),
        }
        assert sizes <= {2, 3}
    none = drawing(units(7), weights, 0.0, np.random.default_rng(0))
    assert none.shape == (0, 2)


def test_drawing_is_right_on_average():
    rng = np.random.default_rng(0)
    counts = [len(draw(small.ids(range(10)).pieces, 0.15, rng)) for _ in range(2000)]
    assert np.mean(counts) == pytest.approx(1.5, abs=0.05)
