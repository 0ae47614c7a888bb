"""Groups carved from train: both sides get some, and each stays where it is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from maskpolicy.carving import carve


@given(st.sets(st.text(max_size=5), min_size=2, max_size=40), st.floats(0, 1))
def test_both_sides_of_a_carve_have_a_group(groups, share):
    dev = carve(groups, share)
    assert dev and dev < groups


def test_a_group_stays_on_its_side_when_others_come():
    few, many = [f"g{n}" for n in range(200)], [f"g{n}" for n in range(400)]
    assert carve(few, 0.1) == carve(many, 0.1) & set(few)
