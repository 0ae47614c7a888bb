"""What selection.py draws and checks: by its own key, in every passage alike, sorted and apart."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
import small
from hypothesis import given
from hypothesis import strategies as st

from maskpolicy.errors import ConfigError, PluginError
from maskpolicy.masking.selection import check, draw, draw_highest, draw_weighted, select
from maskpolicy.plugins import registry
from maskpolicy.plugins.discovery import find_plugin
from maskpolicy.seeding import generator
from maskpolicy.types import Passage, Spans, as_spans

PASSAGES = small.passages()


def test_the_generator_is_keyed_by_seed_epoch_passage_and_purpose():
    keys = [(0, 0, "a", ""), (1, 0, "a", ""), (0, 1, "a", ""), (0, 0, "b", ""), (0, 0, "a", "x")]
    assert len({generator(*key).random() for key in keys}) == len(keys)
    assert generator(1, 2, "a").random() == generator(1, 2, "a").random()


def test_a_passage_may_have_any_name():
    assert 0 <= generator(0, 0, "\ud800 \x00 é").random() < 1


def test_original_and_random_hide_the_same_tokens():
    chosen = [
        select(find_plugin("policy", name).plugin(), PASSAGES, 7, range(len(PASSAGES)))
        for name in ("original", "random")
    ]
    for first, second in zip(*chosen, strict=True):
        assert first.tolist() == second.tolist()
    assert sum(map(len, chosen[0]))


def test_what_is_hidden_does_not_depend_on_the_batch():
    policy = find_plugin("policy", "random").plugin()
    together = select(policy, list(PASSAGES), 0, [2] * len(PASSAGES))
    for passage, spans in zip(PASSAGES, together, strict=True):
        assert select(policy, [passage], 0, [2])[0].tolist() == spans.tolist()


def test_every_epoch_hides_something_else():
    policy = find_plugin("policy", "random").plugin()
    long = small.ids(range(100, 200))
    assert len({str(select(policy, [long], 0, [e])[0].tolist()) for e in range(5)}) == 5


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


@dataclass(frozen=True)
class Fixed:
    """Returns what it is given."""

    spans: object

    def select(self, passage: Passage, rng: np.random.Generator) -> Spans:
        return self.spans  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("spans", "says"),
    [
        ([[0, 1]], "not an array of shape (n, 2) but list"),
        (None, "not an array of shape (n, 2) but NoneType"),
        (np.zeros(4, np.int32), "not an array of shape (n, 2) but (4,)"),
        (np.zeros((1, 3), np.int32), "not an array of shape (n, 2) but (1, 3)"),
        (np.zeros((1, 2)), "not integers but float64"),
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
    with pytest.raises(ConfigError) as error:
        check([as_spans([[0, 1]]), spans, as_spans([[0, 1]])], [good, bad, good], Fixed(None))
    assert "policy Fixed, passage 'bad' of 5 tokens" in str(error.value)
    assert says in str(error.value)
    with pytest.raises(ConfigError, match=r"Fixed.*bad"):
        select(Fixed(spans), [bad], 0, [0])


@given(st.lists(st.integers(0, 30), max_size=10, unique=True).map(sorted))
def test_good_spans_pass(edges):
    passage = small.ids(range(30))
    apart = as_spans(zip(edges[::2], edges[1::2], strict=False))
    touching = as_spans(pairwise(edges))
    check([apart, touching, apart], [passage] * 3, Fixed(None))
    check([], [], Fixed(None))


@registry.policy("fails-or-none")
@dataclass(frozen=True)
class FirstSentence:
    """Divides by zero, or gives what are no spans."""

    fail: bool = True

    def select(self, passage: Passage, rng: np.random.Generator) -> Spans:
        return as_spans([[1 // 0, 1]]) if self.fail else as_spans([[2, 2]])


def test_a_policy_that_fails_is_named_as_registered_with_passage_and_line():
    line = FirstSentence.select.__code__.co_firstlineno + 1
    with pytest.raises(PluginError) as error:
        select(FirstSentence(), [small.ids(range(5), name="p3")], 0, [0])
    assert str(error.value) == (
        "policy fails-or-none: select of passage 'p3' failed: ZeroDivisionError: integer division "
        f"or modulo by zero ({__file__}:{line})"
    )


def test_bad_spans_name_the_policy_as_registered():
    with pytest.raises(ConfigError, match=r"^policy fails-or-none, passage 'p3'"):
        select(FirstSentence(fail=False), [small.ids(range(5), name="p3")], 0, [0])
