"""A generator for each seed, epoch, passage and purpose."""

from __future__ import annotations

from maskpolicy.core.seeding import generator


def test_the_generator_is_keyed_by_seed_epoch_passage_and_purpose():
    keys = [(0, 0, "a", ""), (1, 0, "a", ""), (0, 1, "a", ""), (0, 0, "b", ""), (0, 0, "a", "x")]
    assert len({generator(*key).random() for key in keys}) == len(keys)
    assert generator(1, 2, "a").random() == generator(1, 2, "a").random()


def test_a_passage_may_have_any_name():
    assert 0 <= generator(0, 0, "\ud800 \x00 é").random() < 1
