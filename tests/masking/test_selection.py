"""Spans that policies select and members that they draw: checks, and independence of batches."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas
import pytest
import small
from hypothesis import given
from hypothesis import strategies as st
from maskpolicy.policies.mixture import Mixture
from refusals import refused

from maskpolicy import ConfigError, Passage, as_spans, choose, draw, draw_highest, draw_weighted
from maskpolicy.core.distribution import Distribution
from maskpolicy.core.errors import PluginError
from maskpolicy.core.schema import Schedule
from maskpolicy.core.types import Denoising, Spans
from maskpolicy.masking.selection import Masker, check, loss_weights, select
from maskpolicy.plugins import registry

PASSAGES = small.passages()


@dataclass(frozen=True)
class Fixed:
    """Selects its own field."""

    spans: object

    def select(self, passage: Passage, rng: np.random.Generator) -> Spans:
        return self.spans  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("spans", "says"),
    [
        ([[0, 1]], "not a NumPy array but a list (`as_spans` makes one of it)"),
        (None, "not a NumPy array but a NoneType (return as_spans([]) for no span)"),
        (pandas.DataFrame([[0, 1]]), "not a NumPy array but a DataFrame"),
        (np.ma.array([[0, 1]]), "not a NumPy array but a MaskedArray"),
        (np.zeros(4, np.int32), "not an array of shape (n, 2) but (4,)"),
        (np.zeros((1, 3), np.int32), "not an array of shape (n, 2) but (1, 3)"),
        (np.zeros((1, 2)), "not signed integers but float64"),
        (np.array([[0, 1]], np.uint64), "not signed integers but uint64"),
        (as_spans([[2, 2]]), "empty or reversed"),
        (as_spans([[3, 2]]), "empty or reversed"),
        (as_spans([[-1, 2]]), "leave the passage"),
        (as_spans([[0, 6]]), "leave the passage"),
        (as_spans([[0, 3], [2, 4]]), "overlap or are not sorted"),
        (as_spans([[3, 4], [0, 1]]), "overlap or are not sorted"),
        (as_spans([[0, 1], [0, 1]]), "overlap or are not sorted"),
    ],
)
def test_bad_spans_name_the_policy_and_the_passage(spans, says):
    good, bad = small.ids(range(5), name="good"), small.ids(range(5), name="bad")
    check([as_spans([[4, 5]]), as_spans([])], [good, good], Fixed(None))
    one = as_spans([[0, 1]])
    line = refused(check, [one, spans, one], [good, bad, good], Fixed(None))
    assert "policy Fixed, passage 'bad' of 5 tokens" in line
    assert says in line
    refused(select, Fixed(spans), [bad], 0, [0], match=r"Fixed.*bad")


@registry.policy("fails-or-none")
@dataclass(frozen=True)
class FirstSentence:
    """Divides by zero, or returns invalid spans."""

    fail: bool = True

    def select(self, passage: Passage, rng: np.random.Generator) -> Spans:
        return as_spans([[1 // 0, 1]]) if self.fail else as_spans([[2, 2]])


def test_a_policy_that_fails_is_named_as_registered_with_passage_and_line():
    line = FirstSentence.select.__code__.co_firstlineno + 1
    passage = small.ids(range(5), name="p3")
    assert refused(select, FirstSentence(), [passage], 0, [0], error=PluginError) == (
        "policy fails-or-none: select of passage 'p3' failed: ZeroDivisionError: integer division "
        f"or modulo by zero ({__file__}:{line})"
    )


def units(count: int) -> Spans:
    return small.ids(range(count)).pieces


@given(st.integers(0, 40), st.floats(0, 1), st.integers(0, 9))
def test_drawing_returns_the_floor_or_one_more_in_order(count, ratio, seed):
    drawn = draw(units(count), ratio, np.random.default_rng(seed))
    assert int(ratio * count) <= len(drawn) <= min(count, int(ratio * count) + 1)
    assert drawn.shape[1] == 2
    assert (np.diff(drawn[:, 0]) > 0).all()


def test_the_highest_scores_are_drawn_and_ties_at_random():
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
    assert draw_weighted(units(4), weights, 1.0, rng)[:, 0].tolist() == [0, 1, 2, 3]


ITEMS = range(len(PASSAGES))
RANDOM = {"name": "random", "ratio": 0.5}


@dataclass(frozen=True)
class Chooses:
    """Chooses what it is told."""

    member: Any
    members: tuple[Any, ...] = (RANDOM, RANDOM)

    def choose_member(self, passage, rng):
        return self.member


def masked(policy, epochs=None, items=ITEMS):
    masker = Masker.of(policy, Denoising())
    views = [PASSAGES] * len(masker.leaves)
    epochs = [0] * len(items) if epochs is None else epochs
    return masker.select(views, items, 0, epochs)


def test_what_is_drawn_depends_on_seed_epoch_and_passage_alone():
    policy = Mixture((RANDOM, "mass", "prefix-lm"))
    whole = masked(policy, epochs=[5] * len(ITEMS))
    assert [passage.id for passage in whole.passages] == [passage.id for passage in PASSAGES]
    for item in ITEMS:
        one = masked(policy, epochs=[5], items=[item])
        assert np.array_equal(one.spans[0], whole.spans[item])
        assert one.denoisings[0] == whole.denoisings[item]
    others = [masked(policy, epochs=[epoch] * len(ITEMS)).denoisings for epoch in range(4)]
    assert len({str(each) for each in others}) == 4


def drawn(policy, progress=0.0) -> Counter[str]:
    """Return how often each target was drawn for one passage in 600 epochs."""
    masker = Masker.of(policy, Denoising())
    views = [[PASSAGES[0]]] * len(masker.leaves)
    found = masker.select(views, [0] * 600, 0, range(600), progress=progress)
    return Counter(each.join + each.target for each in found.denoisings)


def member(join):
    return {**RANDOM, "join": join, "target": "spans"}


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
    inner = {"name": "mixture", "members": ["random"], "weights": [{"start": 1, "end": 0}]}
    nested = Mixture((inner, "random"))
    assert Masker.of(nested, Denoising()).follows_progress


@dataclass(frozen=True)
class Shared:
    """Chooses the second member with this probability."""

    share: Any
    members: tuple[Any, ...]

    def choose_member(self, passage, rng):
        return int(rng.random() < self.share)


def test_members_are_drawn_by_numbers_of_their_own_that_may_have_a_distribution():
    uniform = {"distribution": "uniform"}
    members = [{**member(join), "ratio": uniform} for join in ("mask", "none")]
    policy = Shared(Distribution("uniform"), tuple(members))
    assert drawn(policy)["maskspans"] == pytest.approx(300, abs=50)
    masker, passage = Masker.of(policy, Denoising()), small.ids(range(50))
    found = masker.select([[passage]] * 2, [0] * 600, 0, range(600))
    for join in ("mask", "none"):  # whose rates are as if there were one
        pairs = zip(found.denoisings, found.spans, strict=True)
        shares = [np.diff(own).sum() / 50 for how, own in pairs if how.join == join]
        assert np.mean(shares) == pytest.approx(0.5, abs=0.07)


@pytest.mark.parametrize("wrong", [2, -1, "x", None, 0.5])
def test_an_unknown_member_raises(wrong):
    with pytest.raises(ConfigError, match="choose_member must return a number from 0 to 1, not"):
        masked(Chooses(wrong))


def test_choose_accepts_weights_of_any_sum_but_zero():
    rng = np.random.default_rng(0)
    counts = Counter(choose([0.2, 0.0, 0.6], rng) for _ in range(800))
    assert counts[0] == pytest.approx(200, abs=50) and counts[1] == 0
    for none in ([0.0, 0.0], []):
        refused(choose, none, rng, match="weights: add up to 0")


class Numbered:
    def select(self, passage, rng, example):
        assert passage.sentences[0, 0] == 0
        return passage.pieces[:1] if example is None else passage.pieces[example : example + 1]


def test_the_number_of_an_example_is_none_where_a_passage_is_one():
    passages = [small.ids(range(5))] * 2
    assert [spans.tolist() for spans in select(Numbered(), passages, 0, [0, 0])] == [[[0, 1]]] * 2
    found = select(Numbered(), passages, 0, [0, 0], examples=[0, 3])
    assert [spans.tolist() for spans in found] == [[[0, 1]], [[3, 4]]]


def test_no_policy_is_asked_about_a_passage_without_a_token():
    [spans] = select(Numbered(), [small.ids([])], 0, [0])
    assert spans.shape == (0, 2)
    weighing = type("Weighing", (), {"weigh": lambda self, passage, spans: passage.sentences[0]})()
    selected = [small.ids([])], [spans], [0]
    assert loss_weights(weighing, Denoising(), selected, 0, 0.0) == [1.0]


@pytest.mark.parametrize("kind", ["u1", "?", "f4", "O"])
def test_the_highest_unsigned_scores_are_drawn(kind) -> None:
    units = as_spans([(i, i + 1) for i in range(4)])
    scores = np.asarray([0, 1, 0, 1], kind)
    assert draw_highest(units, scores, 0.5, np.random.default_rng(0)).tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    "wrong", [[3, 5, 8, 9], [(0, 1, 7), (2, 3, 7)], [(0, 1), (2,)], [(0.5, 2.9)]]
)
def test_numbers_that_are_no_pairs_do_not_become_spans(wrong) -> None:
    refused(as_spans, wrong, match=r"pairs of whole numbers \(first, end\)(, not a .* of shape|: )")


def test_spans_of_a_frame_are_its_rows():
    assert as_spans(pandas.DataFrame({"first": [0, 3], "end": [2, 4]})).tolist() == [[0, 2], [3, 4]]


@dataclass(frozen=True)
class Widening(Fixed):
    """Masks more than it has selected."""

    def weigh(self, passage: Passage, spans: Spans) -> float:
        spans[0, 1] += 1
        return 1.0


def test_weigh_cannot_change_the_spans():
    policy, passage = Widening(as_spans([[1, 2]])), small.ids(range(5))
    selected = [passage], select(policy, [passage], 0, [0]), [0]
    call = loss_weights, policy, Denoising(), selected, 0, 0.0
    refused(*call, error=PluginError, match="read-only")
