"""What a policy selects is the same in every batch, and is checked: sorted and apart."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
import small
from hypothesis import given
from hypothesis import strategies as st

from maskpolicy.errors import ConfigError, PluginError
from maskpolicy.masking.selection import check, select
from maskpolicy.plugins import registry
from maskpolicy.plugins.discovery import find_plugin
from maskpolicy.types import Passage, Spans, as_spans

PASSAGES = small.passages()


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
