"""Blocks of keys and their messages, messages of errors, and types of spans."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypedDict

import pytest
import small
from hypothesis import given
from hypothesis import strategies as st

from maskpolicy.core import keys, schema
from maskpolicy.core.errors import ConfigError, DataError, StageError, cause, unknown


@dataclass(frozen=True)
class Inner:
    share: schema.Share = 0.5


@dataclass(frozen=True)
class Outer:
    must: int
    inner: Inner = Inner()
    either: int | str | None = None
    names: tuple[str, ...] = ()
    table: dict[str, float] | None = None


@dataclass(frozen=True)
class Untyped:
    ratio = 0.5
    lr: float = 1.0


@dataclass(frozen=True)
class Unreadable:
    field: NoSuchType  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "top.must: missing"),
        ({"must": 1, "inner": {"share": 2}}, "top.inner.share: must be >= 0 and <= 1, not 2.0"),
        ({"must": 1, "inner": {"shar": 2}}, "did you mean 'share'?"),
        ({"must": 1, "either": [1]}, "top.either: must be a whole number or text or null"),
        ({"must": 1, "names": [1]}, "top.names[0]: must be text, not a whole number 1"),
        ({"must": 1, "table": {"a": "b"}}, "top.table.a: must be a number"),
        ({"must": 1, "table": {1: 2}}, "a key must be text"),
        ({"must": True}, "top.must: must be a whole number, not true"),
        ({"must": "7"}, "top.must: must be a whole number, not text '7': write 7"),
        ({"must": 7.0}, "top.must: must be a whole number, not a number 7.0: write 7"),
        ({"must": 1, "inner": 0.2}, "not a number 0.2: write {share: ..}"),
        ({"must": 1, "inner": {"share": 30}}, "must be >= 0 and <= 1, not 30.0: write 0.3 for 30%"),
        ({"must": 1, "inner": {"share": "30%"}}, "must be a number, not text '30%': write 0.3"),
        ({"must": 1, "inner": {"share": True}}, "must be a number >= 0 and <= 1, not true"),
        ([], "top: must be a block of keys, not a list"),
        ({"must": 1, "inner": True}, "must be a block of keys, not true: write {share: ..}"),
        ({"must": None}, "must be a whole number, not null: leave it out, or give a value"),
        (3, "top: must be a block of keys, not a whole number 3"),
    ],
)
def test_a_value_of_a_wrong_type_names_its_place(given, says):
    with pytest.raises(ConfigError) as caught:
        schema.block(Outer, given, "top")
    assert says in str(caught.value)


class Bare:
    n: int = 2


@pytest.mark.parametrize(
    ("kind", "given", "says"),
    [
        (Unreadable, {}, "Unreadable: a field's annotation cannot be read"),
        (Untyped, {"ratio": 0.2}, r"^top.ratio: is not a key.* write ratio: float = \.\.$"),
        (Untyped, {"learning_rate": 1}, "unknown key 'learning_rate': did you mean 'lr'"),
        (Bare, {"n": 3}, r"^top.n: .* class Bare is not a dataclass: write @"),
    ],
)
def test_the_message_says_why_a_class_lacks_a_key(kind, given, says):
    with pytest.raises(ConfigError, match=says):
        schema.block(kind, given, "top")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (DataError("one.txt, line 3: empty"), "one.txt, line 3: empty"),
        (StageError("  first\nsecond"), "first"),
        (StageError(""), "StageError"),
        (
            DataError(
                "Caught DataError in worker 0.\nOriginal Traceback:\n  x\na.DataError: b: c\n"
            ),
            "b: c",
        ),
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
def test_a_name_close_to_one_of_many_choices_gets_that_suggestion_alone(name, meant):
    line = unknown("policy", name, MANY, listed="maskpolicy list policies")
    said = f"did you mean {meant}? `maskpolicy list policies` shows the others"
    assert line == f"unknown policy {name!r}: {said}"


TEXT = "Anna Kovar’s “Red River” isn't in café Zürich-Süd: 300.5 francs, 🙂 e\u0301te\u0301!"
RANGE = st.tuples(st.integers(0, len(TEXT)), st.integers(0, len(TEXT))).map(sorted)


@given(st.lists(RANGE, max_size=5))
def test_characters_become_exactly_the_words_that_they_touch(ranges):
    passage = small.passage(TEXT)
    spans, (starts, ends) = passage.at(ranges), passage.offsets.T
    hidden = {token for a, b in spans.tolist() for token in range(a, b)}
    wanted = {
        token
        for a, b in passage.words.tolist()
        if any(begin < ends[b - 1] and starts[a] < end for begin, end in ranges if begin < end)
        for token in range(a, b)
    }
    assert hidden == wanted


@dataclass(frozen=True)
class Percent:
    ratio: schema.Rate = 15


def test_a_default_that_the_type_of_its_field_forbids_is_an_error():
    said = r"^row\.ratio \(the default\): must be >= 0 and <= 1, not 15.*: write 0\.15 for 15%"
    with pytest.raises(ConfigError, match=said):
        schema.block(Percent, {}, "row")
    assert schema.block(Percent, {"ratio": 0.1}, "row") == {"ratio": 0.1}


class Side(StrEnum):
    LEFT, RIGHT = "left", "right"


class Pair(TypedDict):
    one: int


@dataclass(frozen=True)
class Typed:
    share: schema.Share = None
    side: Side = Side.LEFT
    rates: tuple[schema.Rate, ...] = (schema.Schedule(0, 1),)
    pair: Pair | None = None
    word: str = "a"


def test_values_of_an_enum_and_a_default_of_null_come_back_from_a_key():
    changes: tuple[dict[str, Any], ...] = ({}, {"side": "right", "share": 0.5, "pair": {"one": 1}})
    for change in changes:
        made = Typed(**schema.block(Typed, change, "row"))
        assert type(made.side) is Side and made.side == change.get("side", "left")
        assert Typed(**schema.block(Typed, keys.to_json(made), "row")) == made
    assert schema.words(Side) == "left | right"
    with pytest.raises(ConfigError, match=r"row\.side: unknown value 'lft': did you mean 'left'"):
        schema.block(Typed, {"side": "lft"}, "row")
    wrong = type("Wrong", (Typed,), {"word": 5, "__annotations__": {"word": "str"}})
    with pytest.raises(ConfigError, match=r"row\.word \(the default\): must be text, not a whole"):
        schema.block(dataclass(frozen=True)(wrong), {}, "row")
