"""Hidden values of the world's entries: nothing but the name may tell them."""

from __future__ import annotations

import pytest

from maskpolicy import world
from maskpolicy.world.cloze import MASK, blanks, majority, nameless
from maskpolicy.world.settings import SUBJECT_KINDS

ALL = {"kinds": list(SUBJECT_KINDS), "people": 100, "general_people": 4}


@pytest.fixture(scope="module")
def found():
    return list(blanks(world.make(ALL)))


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


def test_the_classifier_finds_what_other_facts_of_an_entry_tell():
    leaky = list(blanks(world.make({"people": 60, "general_people": 4, "facts": 0})))
    assert nameless(leaky) > majority(leaky) + 0.5
