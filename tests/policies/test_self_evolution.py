"""The policy self-evolution: masks are drawn among the tokens that are not learnt yet."""

from __future__ import annotations

import numpy as np
import pytest
import small
from maskpolicy.policies.self_evolution import SelfEvolution
from small import current

from maskpolicy.masking.selection import select

LOSSES = np.asarray([0.05, 3.0, 0.1, 0.2, 0.0, 1.0, 0.09, 4.0], np.float32)


def text(losses=LOSSES):
    return small.words("a b c d e f g h", losses=losses)


def masked(policy, passage, seed=0):
    return select(policy, [passage], seed, [0])[0][:, 0].tolist()


def test_only_tokens_above_the_threshold_are_masked_each_as_likely():
    drawn = np.concatenate([masked(SelfEvolution(ratio=0.25), text(), s) for s in range(600)])
    shares = np.bincount(drawn, minlength=8) / 600
    assert shares == pytest.approx([0, 0.5, 0, 0.5, 0, 0.5, 0, 0.5], abs=0.07)


def test_a_passage_that_is_nearly_learnt_has_fewer_masks():
    assert masked(SelfEvolution(ratio=0.9), text()) == [1, 3, 5, 7]
    assert masked(SelfEvolution(ratio=0.9, threshold=2.0), text()) == [1, 7]
    assert masked(SelfEvolution(), text(np.zeros(8, np.float32))) == []


def test_the_losses_are_those_of_the_model_as_it_is_now():
    passages = small.passages()
    found = SelfEvolution(hidden=0.3).reannotate(passages, current(steps=5))["losses"]
    expected = current(steps=5).guess(passages, 0.3).losses
    assert all(map(np.array_equal, found, expected))
    assert min(each.min() for each in found) > 0
