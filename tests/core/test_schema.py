from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest

from maskpolicy.core import schema
from maskpolicy.core.errors import ConfigError


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


def test_a_number_in_place_of_a_block_without_keys_is_one_line():
    with pytest.raises(ConfigError, match=r"must be a block of keys, not a whole number 3$"):
        schema.block(type("Empty", (), {}), 3, "top")


def test_blocks_within_blocks_are_made():
    values = schema.block(Outer, {"must": 1, "inner": {"share": 1}}, "top")
    assert values["inner"] == Inner(1.0)
    assert values["table"] is None


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


def test_an_annotation_that_cannot_be_read_is_an_error_of_the_plugin():
    with pytest.raises(ConfigError, match="Unreadable: a field's annotation cannot be read"):
        schema.fields_of(Unreadable)


def test_an_attribute_without_a_type_is_no_key_and_the_message_says_why():
    with pytest.raises(ConfigError, match=r"^top.ratio: is not a key.* write ratio: float = \.\.$"):
        schema.block(Untyped, {"ratio": 0.2}, "top")
    with pytest.raises(ConfigError, match="unknown key 'learning_rate': did you mean 'lr'"):
        schema.block(Untyped, {"learning_rate": 1}, "top")


def test_a_class_that_lacks_its_decorator_is_told_so():
    class Bare:
        n: int = 2

    with pytest.raises(ConfigError, match=r"^top.n: .* class Bare is not a dataclass: write @"):
        schema.block(Bare, {"n": 3}, "top")


def test_annotations_in_words():
    assert schema.words(Literal["full", "spans"]) == "full | spans"
    assert schema.words(schema.Share) == "a number >= 0 and <= 1"
    assert schema.words(tuple[int, ...] | None) == "a list, of a whole number or null"
