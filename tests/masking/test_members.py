"""Policies that draw members: who masks a passage, with which spans, and how that is written."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import small
from maskpolicy.policies.mixture import Mixture

from maskpolicy.errors import ConfigError, PluginError
from maskpolicy.masking.denoising import denoising_pair, mixed_pairs
from maskpolicy.masking.members import Masker
from maskpolicy.masking.random_draws import choose
from maskpolicy.masking.selection import select
from maskpolicy.plugins.discovery import instance
from maskpolicy.schema import Schedule
from maskpolicy.types import Denoising

PASSAGES = small.passages()
ITEMS = range(len(PASSAGES))
MASK = 4
RANDOM = {"name": "random", "ratio": 0.5}


@dataclass(frozen=True)
class ByLength:
    """Draw the first member for short passages; `wrong` is drawn in place of it."""

    members: tuple[Any, ...] = (RANDOM, {"name": "original", "ratio": 0.5})
    wrong: Any = 0

    def choose_member(self, passage, rng):
        return int(len(passage.words) > 9) or self.wrong


def masked(policy, seed=0, epochs=None, progress=0.0, items=ITEMS):
    masker = Masker.of(policy, Denoising())
    views = [PASSAGES] * len(masker.leaves)
    epochs = [0] * len(items) if epochs is None else epochs
    return masker.select(views, items, seed, epochs, progress=progress)


def test_the_members_of_a_mixture_keep_their_own_objectives():
    masker = Masker.of(ByLength(), Denoising())
    assert [leaf.denoising.target for leaf in masker.leaves] == ["spans", "full"]
    found = masked(ByLength())
    for passage, denoising in zip(found.passages, found.denoisings, strict=True):
        assert denoising.target == ("full" if len(passage.words) > 9 else "spans")
    assert [passage.id for passage in found.passages] == [passage.id for passage in PASSAGES]


def test_a_member_masks_what_it_masks_alone():
    alone = select(instance("policy", "random", {"ratio": 0.5}), PASSAGES, 3, [1] * len(ITEMS))
    together = masked(ByLength(), seed=3, epochs=[1] * len(ITEMS)).spans
    for one, other in zip(alone, together, strict=True):
        assert np.array_equal(one, other)


def test_what_is_drawn_depends_on_seed_epoch_and_passage_alone():
    policy = Mixture((RANDOM, "mass", "prefix-lm"))
    whole = masked(policy, epochs=[5] * len(ITEMS))
    for item in ITEMS:
        one = masked(policy, epochs=[5], items=[item])
        assert np.array_equal(one.spans[0], whole.spans[item])
        assert one.denoisings[0] == whole.denoisings[item]
    others = [masked(policy, epochs=[epoch] * len(ITEMS)).denoisings for epoch in range(4)]
    assert len({str(each) for each in others}) == 4


def test_each_pair_is_written_with_its_own_objective():
    members = (
        {"name": "random", "ratio": 0.5, "mask_exclusion": 0.5},
        {"name": "poisson"},
        {"name": "mass"},
        {"name": "random", "ratio": 0.0},
    )
    for epoch in range(3):
        epochs = [epoch] * len(ITEMS)
        found = masked(Mixture(members), epochs=epochs)
        assert len(set(found.denoisings)) > 2
        every = found.passages, found.spans, found.denoisings
        pairs = mixed_pairs(*every, MASK, 7, epochs)
        for pair, passage, spans, denoising in zip(pairs, *every, strict=True):
            alone = denoising_pair(passage, spans, denoising, MASK, 7, epoch)
            for name, value in vars(alone).items():
                assert np.array_equal(getattr(pair, name), value)


def test_one_objective_is_written_as_ever_without_marks():
    found = masked(Mixture((RANDOM, "span")))
    every = found.passages, found.spans, found.denoisings
    assert mixed_pairs(*every, MASK, 0, [0] * len(ITEMS)).excluded is None


def drawn(policy, count=600, progress=0.0) -> Counter[str]:
    """Return how often each target was drawn for one passage."""
    masker = Masker.of(policy, Denoising())
    views = [[PASSAGES[0]]] * len(masker.leaves)
    found = masker.select(views, [0] * count, 0, range(count), progress=progress)
    return Counter(each.join + each.target for each in found.denoisings)


def member(join, target="spans"):
    return {**RANDOM, "join": join, "target": target}


def test_members_are_drawn_by_their_weights_which_may_follow_a_schedule():
    members = (member("mask"), member("none"))
    assert drawn(Mixture(members))["maskspans"] == pytest.approx(300, abs=50)
    assert drawn(Mixture(members, (3.0, 1.0)))["maskspans"] == pytest.approx(450, abs=45)
    assert drawn(Mixture(members, (0.0, 1.0)))["maskspans"] == 0
    moving: Any = (1.0, Schedule(0.0, 4.0))
    policy = Mixture(members, moving)
    assert drawn(policy)["maskspans"] == 600
    assert drawn(policy, progress=0.75)["maskspans"] == pytest.approx(150, abs=45)
    assert Masker.of(policy, Denoising()).follows_progress
    assert not Masker.of(Mixture(members), Denoising()).follows_progress


def test_a_mixture_in_a_mixture_draws_on_its_own():
    inner = {"name": "mixture", "members": [member("mask", "full"), member("none", "full")]}
    counts = drawn(Mixture((inner, member("mask"))), count=1200)
    assert counts["maskspans"] == pytest.approx(600, abs=70)
    assert counts["maskfull"] == pytest.approx(300, abs=60)
    assert counts["nonefull"] == pytest.approx(300, abs=60)


def test_a_schedule_of_a_member_is_followed():
    scheduled = {"name": "random", "ratio": {"start": 0.0, "end": 1.0}}
    policy = Mixture((scheduled,))
    assert Masker.of(policy, Denoising()).follows_progress
    for progress in (0.0, 0.5, 0.9):
        whole = masked(policy, progress=progress).spans
        share = sum(int((s[:, 1] - s[:, 0]).sum()) for s in whole)
        assert share / sum(len(p.tokens) for p in PASSAGES) == pytest.approx(progress, abs=0.08)


@pytest.mark.parametrize("wrong", [2, -1, "x", None, 0.5])
def test_a_member_that_is_not_there_is_refused(wrong):
    with pytest.raises(ConfigError, match="choose_member must return a number from 0 to 1, not"):
        masked(ByLength(wrong=wrong or -1))


def test_an_error_of_choose_member_names_the_passage():
    class Broken(ByLength):
        def choose_member(self, passage, rng):
            raise ValueError("no")

    with pytest.raises(PluginError, match="choose_member of passage 'd0"):
        masked(Broken())


def test_choose_takes_weights_of_any_sum_and_refuses_zero():
    rng = np.random.default_rng(0)
    counts = Counter(choose([0.2, 0.0, 0.6], rng) for _ in range(800))
    assert counts[0] == pytest.approx(200, abs=50) and counts[1] == 0
    with pytest.raises(ConfigError, match="weights: add up to 0"):
        choose([0.0, 0.0], rng)
    with pytest.raises(ConfigError, match="weights: add up to 0"):
        choose([], rng)
