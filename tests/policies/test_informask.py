"""InforMask: mutual information by hand on 20 lines, the best of several masks, and the rates."""

from __future__ import annotations

from dataclasses import replace
from math import log

import numpy as np
import pytest
import small
from maskpolicy.policies.informask import (
    InforMask,
    InforMaskRates,
    best_mask,
    information,
    neighbours,
)

from maskpolicy.data.corpus.sums import statistics_of
from maskpolicy.masking.selection import select
from maskpolicy.plugins.statistics import Statistics

LINES = (
    *[[1, 2, 3]] * 8,  # 1 and 2 are always together
    *[[1, 2, 4]] * 4,
    *[[3, 4]] * 3,
    *[[5, 5]] * 2,
    *[[4]] * 2,
    [],
)
PASSAGES = [small.ids(line, name=str(place)) for place, line in enumerate(LINES)]


def test_counts_are_those_of_twenty_lines():
    assert len(LINES) == 20
    found = dict(Statistics.of(InforMask(window=2).count(PASSAGES)).items())
    tokens = {1: 12, 2: 12, 3: 11, 4: 9, 5: 4, "tokens": 48}
    pairs = {(1, 2): 12, (2, 3): 8, (1, 3): 8, (2, 4): 4, (1, 4): 4, (3, 4): 3, (5, 5): 2}
    assert found == {**tokens, **pairs, "pairs": 41}
    near = dict(Statistics.of(InforMask(window=1).count(PASSAGES)).items())
    assert (1, 3) not in near and near["pairs"] == 12 * 2 + 3 + 2


def test_information_is_that_of_two_tokens_in_any_order():
    known = Statistics.of(InforMask(window=2).count(PASSAGES))
    pairs = np.asarray([[1, 2], [3, 4], [5, 5], [1, 5], [6, 7]])
    together = log(12 / 41 / (2 * 12 / 48 * 12 / 48))
    rare = log(3 / 41 / (2 * 11 / 48 * 9 / 48))
    twice = log(2 / 41 / (4 / 48) ** 2)
    assert information(pairs, known) == pytest.approx([together, rare, twice, 0, 0])


def test_a_table_has_the_information_of_each_token_with_those_behind_it():
    known = Statistics.of(InforMask(window=2).count(PASSAGES))
    pairs = [information(np.asarray([pair]), known)[0] for pair in ([1, 2], [1, 3], [2, 3])]
    tables = list(neighbours([PASSAGES[0], PASSAGES[-1], PASSAGES[18]], known, 2))
    assert tables[0] == pytest.approx(np.asarray([pairs[:2], [pairs[2], 0], [0, 0]]))
    assert [table.shape for table in tables[1:]] == [(0, 2), (1, 2)]


def relevance(table, mask) -> float:
    """The sum over pairs of a masked and an unmasked token, pair by pair."""
    return sum(
        float(table[i, j - i - 1])
        for i in range(len(mask))
        for j in range(i + 1, min(len(mask), i + 1 + table.shape[1]))
        if mask[i] != mask[j]
    )


def test_the_most_informative_of_all_drawn_masks_is_used():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(9, 4)).astype(np.float32)
    drawn = np.random.default_rng(7).random((50, 9)).argsort(axis=1).argsort(axis=1) < 3
    chosen = best_mask(table, 3, 50, np.random.default_rng(7))
    values = [relevance(table, mask) for mask in drawn]
    assert chosen.sum() == 3
    assert relevance(table, chosen) == pytest.approx(max(values))
    assert max(values) > np.mean(values)
    assert best_mask(table[:0], 0, 3, rng).tolist() == []
    assert best_mask(table[:1], 1, 3, rng).tolist() == [True]


def test_one_mask_is_a_random_mask_of_an_exact_size():
    passage = replace(small.ids(range(40)), columns={"pmi": np.zeros((40, 3), np.float32)})
    hidden = np.zeros(40)
    for epoch in range(500):
        spans = select(InforMask(ratio=0.25, masks=1), [passage], 0, [epoch])[0]
        assert len(spans) == 10
        hidden[spans[:, 0]] += 1
    assert hidden / 500 == pytest.approx(np.full(40, 0.25), abs=0.08)


def test_tokens_that_tell_each_other_are_masked_and_independent_ones_are_not():
    numbers = [(i % 7, i // 7 % 7, i // 49) for i in range(343)]
    lines = [[10 + x, 20 + x, 30 + y, 40 + z] for x, y, z in numbers]
    passages = [small.ids(line, name=str(i)) for i, line in enumerate(lines)]
    policy = InforMask(ratio=0.25, window=3)
    known = statistics_of(policy, passages)
    columns = policy.annotate(passages, None, known)["pmi"]
    marked = [replace(p, columns={"pmi": c}) for p, c in zip(passages, columns, strict=True)]
    spans = select(policy, marked, 0, [0] * len(marked))
    assert {found[0, 0] for found in spans} == {0, 1}


def test_rates_are_the_share_of_a_tokens_occurrences_in_the_best_masks():
    policy = InforMaskRates(ratio=0.5, window=2)
    known = statistics_of(policy, PASSAGES)
    pairs = Statistics.of(policy.count(PASSAGES, None))
    seen, masked = dict.fromkeys(range(1, 6), 0), dict.fromkeys(range(1, 6), 0)
    counted = policy.count(PASSAGES, pairs)
    for (name, token), number in counted.items():
        (masked if name == "masked" else seen)[token] += number
    assert seen == {1: 12, 2: 12, 3: 11, 4: 9, 5: 4}
    assert dict(known.items()) == {t: n / seen[t] for t, n in masked.items() if n}
    assert sum(masked.values()) == pytest.approx(24, abs=6)
    rates = policy.annotate(PASSAGES[:1], None, known)["rates"][0]
    assert rates == pytest.approx([known[1], known[2], known[3]])


def test_each_token_is_masked_at_its_rate():
    rates = np.asarray([0.0, 1.0, 0.3], np.float32)
    passage = replace(small.ids([1, 2, 3]), columns={"rates": rates})
    hidden = np.zeros(3)
    for epoch in range(1000):
        hidden[select(InforMaskRates(), [passage], 0, [epoch])[0][:, 0]] += 1
    assert hidden[:2].tolist() == [0, 1000]
    assert hidden[2] / 1000 == pytest.approx(0.3, abs=0.05)


def test_the_counts_do_not_depend_on_batches():
    policy = InforMaskRates(ratio=0.5, window=2)
    pairs = Statistics.of(policy.count(PASSAGES, None))
    whole = policy.count(PASSAGES, pairs)
    assert policy.count(PASSAGES[:7], pairs) + policy.count(PASSAGES[7:], pairs) == whole
    assert policy.count(PASSAGES[-1:], None) == {"tokens": 0, "pairs": 0}
