"""Groups carved from train: both sides get some, and each stays where it is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from maskpolicy.formats.dev_split import carve, connected, first


@given(st.sets(st.text(max_size=5), min_size=2, max_size=40), st.floats(0, 1))
def test_both_sides_of_a_carve_have_a_group(groups, share):
    dev = carve(groups, share)
    assert dev and dev < groups


def test_a_group_stays_on_its_side_when_others_come():
    few, many = [f"g{n}" for n in range(200)], [f"g{n}" for n in range(400)]
    assert carve(few, 0.1) == carve(many, 0.1) & set(few)


@given(st.sets(st.integers(0, 30), min_size=2), st.data())
def test_groups_that_are_to_stay_are_not_carved_while_there_are_others(numbers, data):
    groups = [str(number) for number in numbers]
    stay = data.draw(st.sets(st.sampled_from(groups), max_size=len(groups) - 1))
    dev = carve(groups, 0.3, stay=stay)
    assert dev and not dev & stay


@given(st.lists(st.lists(st.sampled_from("abcdefghij"), min_size=1, max_size=2), max_size=12))
def test_two_examples_are_one_group_exactly_where_a_chain_of_shared_texts_leads(links):
    reached = [set(texts) for texts in links]
    for _ in links:  # grows each to the texts of all that it shares one with
        reached = [set().union(*(o for o in reached if o & one)) for one in reached]
    groups = connected(links)
    assert groups == [min(texts) for texts in reached]


@given(st.lists(st.sampled_from("abcdef"), max_size=30), st.integers(0, 30))
def test_a_limit_takes_whole_groups_and_of_one_the_first(groups, count):
    places = first(groups, count)
    assert places == sorted(set(places))
    assert len(places) == min(count, len(groups))
    taken = [groups[place] for place in places]
    parts = {group for group in set(taken) if taken.count(group) < groups.count(group)}
    assert len(parts) <= 1
    for group in parts:
        own = [place for place, other in enumerate(groups) if other == group]
        assert [place for place in places if groups[place] == group] == own[: taken.count(group)]


@given(st.lists(st.sampled_from("abcdef"), max_size=30), st.integers(0, 20), st.integers(0, 20))
def test_a_larger_limit_drops_no_example(groups, count, more):
    assert set(first(groups, count)) <= set(first(groups, count + more))
