"""Hidden values of the world's entries: nothing but the name may tell them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from math import log

import pytest

from maskpolicy import world
from maskpolicy.world.cloze_entries import MASK, Blank, blanks, majority
from maskpolicy.world.settings import SUBJECT_KINDS

ALL = {"kinds": list(SUBJECT_KINDS), "people": 100, "general_people": 4}


@pytest.fixture(scope="module")
def found():
    return list(blanks(world.make(ALL)))


def nameless(found: Sequence[Blank]) -> float:
    """Return the share of blanks that a naive Bayes classifier fills in right without the name.

    It sees every other word of the entry, with the words before and after, and has learned from
    all other entries, those about the same subject too.
    """
    features = [_features(blank) for blank in found]
    priors: dict[str, Counter[str]] = defaultdict(Counter)
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for blank, seen in zip(found, features, strict=True):
        priors[blank.kind + blank.relation][blank.value] += 1
        for feature in seen:
            counts[blank.kind + blank.relation, feature][blank.value] += 1
    right = 0
    for blank, seen in zip(found, features, strict=True):
        about = blank.kind + blank.relation
        scores = {
            value: _score(value, count, seen, about, counts, own=value == blank.value)
            for value, count in priors[about].items()
        }
        right += max(scores, key=scores.__getitem__) == blank.value
    return right / len(found)


def _score(
    value: str,
    count: int,
    seen: frozenset[str],
    about: str,
    counts: dict[tuple[str, str], Counter[str]],
    *,
    own: bool,
) -> float:
    """Return the log probability of a value, the blank itself left out of all counts."""
    left = count - own
    if not left:
        return -float("inf")
    each = (log((counts[about, one][value] - own + 0.1) / (left + 0.2)) for one in seen)
    return log(left) + sum(each)


def _features(blank: Blank) -> frozenset[str]:
    words = blank.with_name("NAME").split()
    pairs = {f"{a} {b}" for a, b in pairwise(words)}
    return frozenset(words) | pairs


def test_every_asked_value_of_every_entry_is_hidden_once(found):
    assert len({(blank.entry, blank.relation) for blank in found}) == len(found)
    people = [blank for blank in found if blank.kind == "people"]
    assert len(people) == 100 * 5 * 3
    assert {blank.kind for blank in found} == set(SUBJECT_KINDS)


def test_a_blank_hides_the_value_and_can_be_renamed(found):
    for blank in found:
        assert blank.text.count(MASK) == 1
        start, end = blank.name
        name = blank.text[start:end]
        assert name != blank.other
        assert blank.renamed == blank.text.replace(name, blank.other, 1)
        assert blank.with_name(name) == blank.text


@pytest.mark.parametrize("kind", SUBJECT_KINDS)
def test_without_the_name_a_guess_is_no_better_than_the_most_frequent_value(found, kind):
    """A classifier that sees all other words gains at most 5 points, whatever the kind."""
    of_kind = [blank for blank in found if blank.kind == kind]
    assert nameless(of_kind) <= majority(of_kind) + 0.05


@pytest.mark.slow
def test_the_classifier_finds_what_other_facts_of_an_entry_tell():
    leaky = list(blanks(world.make({"people": 60, "general_people": 4, "facts": 0})))
    assert nameless(leaky) > majority(leaky) + 0.5
