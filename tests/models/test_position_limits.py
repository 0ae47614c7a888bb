"""Lengths are limited by a model's positions."""

from __future__ import annotations

import small

from maskpolicy.config.budgets import Training
from maskpolicy.models.position_limits import bounded


def test_lengths_are_bounded_by_the_positions_of_the_model():
    model = small.bart(max_position_embeddings=48)
    assert bounded(Training(), model).max_source == 48
    assert bounded(Training(), model).max_target == 48
    assert bounded(Training(max_source=9), model).max_source == 9
