"""The policy span-corruption: T5's exact counts, and equal chances for all masks."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from maskpolicy.policies.span_corruption import SpanCorruption, divide

from maskpolicy.core.types import Passage, as_spans


def passage(count: int) -> Passage:
    """Return a passage of so many one-letter words."""
    starts = np.arange(count)
    offsets = as_spans(np.stack([2 * starts, 2 * starts + 1], axis=1))
    each = as_spans(np.stack([starts, starts + 1], axis=1))
    text = " ".join("a" * count)
    return Passage("p", text, starts.astype(np.int32), offsets, each, as_spans([]))


@pytest.mark.parametrize(
    ("tokens", "masked", "spans"),
    [(512, 77, 26), (100, 15, 5), (20, 3, 1), (10, 2, 1), (2, 1, 1), (1, 0, 0), (0, 0, 0)],
)
def test_counts_are_those_of_t5(tokens, masked, spans):
    for seed in range(20):
        found = SpanCorruption().select(passage(tokens), np.random.default_rng(seed))
        assert len(found) == spans
        assert (found[:, 1] - found[:, 0]).sum() == masked


@given(st.integers(2, 300), st.floats(0, 1), st.floats(1, 40), st.integers(0, 9))
def test_an_unmasked_span_comes_first_and_between_two_masked_ones(count, ratio, mean, seed):
    found = SpanCorruption(ratio, mean).select(passage(count), np.random.default_rng(seed))
    edges = [0, *found.flatten().tolist()]
    assert all(a < b for a, b in pairwise(edges))
    assert edges[-1] == count


def test_all_masks_are_equally_likely():
    rng, made = np.random.default_rng(0), passage(8)
    policy = SpanCorruption(0.5, 2.0)  # 4 of 8 tokens in 2 spans: 3 x 3 masks
    seen = Counter(str(policy.select(made, rng).tolist()) for _ in range(9000))
    assert len(seen) == 9
    assert list(seen.values()) == pytest.approx([1000] * 9, abs=130)


def test_a_division_has_parts_of_one_or_more_that_add_up():
    rng = np.random.default_rng(0)
    assert divide(1, 1, rng).tolist() == [1]
    assert divide(3, 3, rng).tolist() == [1, 1, 1]
    seen = {tuple(divide(4, 2, rng).tolist()) for _ in range(99)}
    assert seen == {(1, 3), (2, 2), (3, 1)}
