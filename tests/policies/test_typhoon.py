"""The policy typhoon: moving averages of gradients, and chances that meet a budget."""

from __future__ import annotations

import numpy as np
import pytest
import small
from hypothesis import given
from hypothesis import strategies as st
from maskpolicy.policies.typhoon import FILE, Typhoon, chances, update

from maskpolicy.core.errors import ConfigError
from maskpolicy.core.types import Passage

types = st.lists(
    st.tuples(st.one_of(st.just(0.0), st.floats(0.001, 100)), st.integers(0, 50)),
    min_size=1,
    max_size=40,
)


def test_the_average_moves_once_for_each_batch_with_the_type():
    average = np.zeros(6)
    update(average, np.asarray([3, 5, 3]), np.asarray([1.0, 7.0, 3.0]), 0.9)
    assert average.tolist() == [0, 0, 0, 2, 0, 7]  # the mean of a type's first batch
    update(average, np.asarray([3]), np.asarray([4.0]), 0.9)
    assert average.tolist() == pytest.approx([0, 0, 0, 0.9 * 2 + 0.1 * 4, 0, 7])


@pytest.mark.parametrize(
    ("saliency", "counts", "ratio", "wanted"),
    [
        ([4, 2, 1], [1, 1, 2], 0.5, [1, 0.5, 0.25]),  # k = 1/4: 2 of 4 tokens are expected
        ([1, 6], [2, 1], 2 / 3, [0.5, 1]),  # 6 would have 1.5: it has 1, the others share 1
        ([3, 0], [1, 3], 0.5, [1, 0]),  # what has no saliency is never masked
        ([2, 2], [5, 7], 0.25, [0.25, 0.25]),  # equal saliency is random masking
        ([1, 2], [1, 1], 0.0, [0, 0]),
        ([5, 1], [0, 4], 0.5, [1, 0.5]),  # a type that the corpus lacks takes no part in it
    ],
)
def test_chances_by_hand(saliency, counts, ratio, wanted):
    found = chances(np.asarray(saliency, float), np.asarray(counts), ratio)
    assert found.tolist() == pytest.approx(wanted)


@given(types, st.floats(0, 1))
def test_chances_meet_the_budget_where_enough_tokens_count(drawn, ratio):
    saliency, counts = (np.asarray(column, float) for column in zip(*drawn, strict=True))
    found = chances(saliency, counts, ratio)
    assert ((found >= 0) & (found <= 1)).all()
    salient = counts[saliency > 0].sum()
    assert found @ counts == pytest.approx(min(ratio * counts.sum(), salient))
    assert (np.diff(found[np.argsort(saliency, kind="stable")]) >= -1e-12).all()


def test_tokens_are_drawn_with_their_chances():
    words = small.words("w " * 4).words
    column = {"chances": np.asarray([1, 0.5, 0.25, 0], np.float32)}
    passage = Passage("p", "", words[:, 0], words, words, words[:0], column)
    rng = np.random.default_rng(0)
    hidden = np.zeros(4)
    for _ in range(4000):
        hidden[Typhoon(("cola",)).select(passage, rng)[:, 0]] += 1
    assert hidden / 4000 == pytest.approx([1, 0.5, 0.25, 0], abs=0.03)


def test_types_of_tokens_are_counted_and_have_one_chance(tmp_path):
    words = small.words("a b c d").words
    passage = Passage("p", "", np.asarray([2, 0, 2, 1]), words, words, words[:0])
    assert Typhoon(("cola",)).count([passage, passage]) == {2: 4, 0: 2, 1: 2}
    np.save(tmp_path / FILE, np.asarray([0.5, 0.0, 1.0], np.float32))
    found = Typhoon(("cola",)).annotate([passage], tmp_path)["chances"][0]
    assert found.tolist() == [1.0, 0.5, 1.0, 0.0]


def test_without_a_fit_it_is_refused_in_one_line():
    with pytest.raises(ConfigError, match="policy typhoon: is learned and needs a fitted policy"):
        Typhoon(("cola",)).annotate([small.words("a")])
