from __future__ import annotations

import re

import pytest

from maskpolicy.world import make
from maskpolicy.world.entries import entries
from maskpolicy.world.heldout import held_out
from maskpolicy.world.pools import build
from maskpolicy.world.settings import SUBJECT_KINDS
from maskpolicy.world.subject_kinds import described, subjects
from maskpolicy.world.tags import LEXICON, tag

SETTINGS = make({"kinds": list(SUBJECT_KINDS), "people": 30, "general_people": 30, "endings": 0.5})


def words_of(entry):
    found = [m.span() for m in re.finditer(r"\w+|[^\w\s]", entry.text)]
    named = [any(a < end and start < b for a, b, _ in entry.entities) for start, end in found]
    return [entry.text[a:b] for a, b in found], named


@pytest.mark.parametrize("kind", SUBJECT_KINDS)
def test_every_word_outside_of_names_is_known(kind):
    pools = build(SETTINGS)
    own = {word.lower() for word in pools.words.get(kind, ())}
    for subject in list(subjects(SETTINGS, pools, kind, "intermediate"))[:30]:
        for entry in described(SETTINGS, subject):
            words, named = words_of(entry)
            for word, is_name in zip(words, named, strict=True):
                known = word.lower() in LEXICON or word.lower() in own or not word[0].isalpha()
                assert is_name or known or word.lower() in ("is", "to"), word


def test_tags_depend_on_neighbours_where_they_must():
    text = "There is a salt. She liked to swim. She went to school. Her only award is X"
    words = re.findall(r"\w+|\.", text)
    tags = tag(words, [word == "X" for word in words])
    found = dict(zip(enumerate(words), tags, strict=True))
    assert found[1, "is"] == "VERB"
    assert found[7, "to"] == "PART"
    assert found[12, "to"] == "ADP"
    assert found[16, "only"] == "ADJ"
    assert found[18, "is"] == "AUX"
    assert found[19, "X"] == "PROPN"


def test_names_hold_numbers_and_small_words():
    words = ["University", "of", "Grumley", "6", "March", "1893", ","]
    tags = tag(words, [True] * len(words))
    assert tags == ["PROPN", "ADP", "PROPN", "NUM", "PROPN", "NUM", "PUNCT"]


def test_held_out_people_are_in_no_corpus():
    pools = build(SETTINGS)
    known = {
        subject.title
        for corpus in ("general", "intermediate")
        for subject in subjects(SETTINGS, pools, "people", corpus)
    } | {value.text for value in pools.values["teachers"]}
    found = list(held_out(SETTINGS, 50))
    assert len({entry.title for entry in found}) == 50
    assert not {entry.title for entry in found} & known
    assert found == list(held_out(SETTINGS, 50))


def test_held_out_entries_are_worded_like_the_others():
    pools = build(SETTINGS)
    subject = next(iter(subjects(SETTINGS, pools, "people", "general")))
    length = len(entries(subject, 1, SETTINGS.facts, 0)[0].text.split())
    assert all(abs(len(e.text.split()) - length) < 20 for e in held_out(SETTINGS, 20))


def test_there_are_no_more_held_out_people_than_names():
    small = make({"people": 4, "general_people": 4, "teachers": 1, "name_parts": 4})
    assert len(list(held_out(small, 100))) == 16 - 9
