"""The policy entropy-aware: the most uncertain tokens of a model in training are masked."""

from __future__ import annotations

import numpy as np
import pytest
import small
from maskpolicy.policies.entropy_aware import EntropyAware
from small import current

from maskpolicy.masking.selection import select
from maskpolicy.models.learned import Current
from maskpolicy.plugins.discovery import instance


def masked(policy, passages, seed=0):
    spans = select(policy, passages, seed, [0] * len(passages))
    return [each[:, 0].tolist() for each in spans]


def test_the_tokens_of_highest_entropy_are_masked():
    entropies = np.asarray([0.1, 2.0, 0.3, 1.5, 0.2, 1.4, 0.0, 0.5], np.float32)
    text = small.words("a b c d e f g h", entropies=entropies)
    assert masked(EntropyAware(ratio=0.25), [text]) == [[1, 3]]
    assert masked(EntropyAware(ratio=0.5), [text]) == [[1, 3, 5, 7]]
    assert masked(EntropyAware(ratio=1.0), [text]) == [list(range(8))]


def test_the_entropies_are_those_of_the_model_as_it_is_now():
    policy, passages = EntropyAware(hidden=0.5), small.passages()
    columns = [policy.reannotate(passages, current(seed))["entropies"] for seed in (0, 0, 1)]
    for place, passage in enumerate(passages):
        same, other = columns[1][place], columns[2][place]
        assert np.array_equal(columns[0][place], same)
        assert same.shape == passage.tokens.shape
        assert (same > 0).all()
        assert len(same) < 3 or not np.array_equal(same, other)
    guessed = current().guess(passages, 0.5)
    assert all(map(np.array_equal, guessed.entropies, columns[0]))


def test_before_a_model_has_learnt_anything_tokens_are_drawn_by_lot():
    policy, nobody = instance("policy", "entropy-aware", {"ratio": 0.5}), Current(vocabulary=100)
    text = small.words("a b c d e f g h")
    column = policy.reannotate([text], nobody)["entropies"][0]
    text = small.words(text.text, entropies=column)
    drawn = np.concatenate([masked(policy, [text], seed)[0] for seed in range(400)])
    assert np.bincount(drawn) / 400 == pytest.approx([0.5] * 8, abs=0.1)
