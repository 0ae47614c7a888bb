"""Entries that probes read: what is asked is not in the part that is read, nor in train."""

from __future__ import annotations

from collections import defaultdict

import pytest

from maskpolicy import world
from maskpolicy.errors import ConfigError
from maskpolicy.world.probed_entries import SHARERS, probed_entries, shared_values


@pytest.fixture(scope="module")
def entries():
    return probed_entries(world.make({"people": 30, "general_people": 8}), 100, seed=0)


def test_the_ranges_are_name_statement_and_value(entries):
    assert len(entries) == 30 * 18
    for entry in entries:
        assert entry.text[slice(*entry.name)] == entry.person
        assert entry.text[slice(*entry.stated)] == entry.value
        start, end = entry.statement
        assert entry.name[1] < start < entry.stated[0] < entry.stated[1] <= end == len(entry.text)
        assert entry.person not in entry.text[start:]


def test_each_person_has_a_fact_of_its_own_in_every_part(entries):
    parts = defaultdict(set)
    for entry in entries:
        parts[entry.person, entry.by_fact].add(entry.relation)
    for person in {entry.person for entry in entries}:
        sizes = [len(parts[person, part]) for part in ("train", "dev", "test")]
        assert sizes == [4, 1, 1]
        assert len(set.union(*(parts[person, part] for part in ("train", "dev", "test")))) == 6


def test_no_person_is_in_two_parts(entries):
    people = defaultdict(set)
    for entry in entries:
        people[entry.by_person].add(entry.person)
    assert {part: len(found) for part, found in people.items()} == {
        "train": 18,
        "dev": 6,
        "test": 6,
    }


def test_another_seed_draws_other_parts_of_the_same_entries(entries):
    settings = world.make({"people": 30, "general_people": 8})
    other = probed_entries(settings, 100, seed=1)
    assert [entry.text for entry in other] == [entry.text for entry in entries]
    assert [entry.by_fact for entry in other] != [entry.by_fact for entry in entries]
    assert len({entry.person for entry in probed_entries(settings, 7, seed=0)}) == 7


def test_a_shared_value_has_three_people(entries):
    shared = shared_values(entries)
    assert shared
    for value in {entry.value for entry in entries}:
        people = {entry.person for entry in entries if entry.value == value}
        assert (value in shared) == (len(people) >= SHARERS)


def test_a_world_of_other_entries_is_refused():
    with pytest.raises(ConfigError, match=r"world\.facts: 1"):
        probed_entries(world.make({"people": 8, "facts": 2}), 8, 0)
    with pytest.raises(ConfigError, match=r"raise world\.asked"):
        probed_entries(world.make({"people": 8, "asked": 2, "never": 0}), 8, 0)
    with pytest.raises(ConfigError, match="raise people"):
        probed_entries(world.make({"people": 8}), 2, 0)
