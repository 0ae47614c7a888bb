"""What a person reads of an error: one line, with a name where it is not ours."""

from __future__ import annotations

import pytest

from maskpolicy.core.errors import DataError, StageError, cause, unknown


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (DataError("one.txt, line 3: empty"), "one.txt, line 3: empty"),
        (StageError("  first\nsecond"), "first"),
        (StageError(""), "StageError"),
        (KeyError("entities"), "KeyError: 'entities'"),
        (ValueError("bad\nworse"), "ValueError: bad"),
        (SystemExit(), "SystemExit"),
    ],
)
def test_the_cause_is_one_line_and_ours_stand_alone(error, line):
    assert cause(error) == line


MANY = ("none", "random", "salient-span", "meta-learned", "poisson", *(f"x{i}" for i in range(20)))


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("salientspan", "'salient-span'"),
        ("Salient_Span", "'salient-span'"),
        ("NONE", "'none'"),
        ("meta", "'meta-learned'"),
        ("span", "'salient-span'"),
    ],
)
def test_a_name_that_is_almost_one_of_many_choices_is_told_that_one_alone(name, meant):
    line = unknown("policy", name, MANY, listed="maskpolicy list policies")
    said = f"did you mean {meant}? `maskpolicy list policies` shows the others"
    assert line == f"unknown policy {name!r}: {said}"


def test_the_choices_that_are_meant_are_suggested():
    line = unknown("key", "epochs", ("steps", "lr"), meant=("steps", "gone"))
    assert line == "unknown key 'epochs': did you mean 'steps'? choose from lr, steps"
