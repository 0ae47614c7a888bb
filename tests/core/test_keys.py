"""Keys: one text for equal values, different texts for different ones."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskpolicy.core.errors import ConfigError
from maskpolicy.core.keys import (
    canonical,
    differences,
    digest,
    digest_parsed,
    from_json,
    to_json,
)
from maskpolicy.core.schema import omitted, unkeyed

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


def same(a, b) -> bool:
    """Say whether two values are equal down to the types and the sign of zero."""
    if type(a) is not type(b):
        return False
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
    return repr(a) == repr(b)


def backwards(value):
    """Return a value with the order of every mapping turned round."""
    if isinstance(value, dict):
        return {name: backwards(value[name]) for name in reversed(value)}
    return [backwards(item) for item in value] if isinstance(value, list) else value


def test_a_golden_digest():
    value = {"kind": "x", "version": 1, "params": {"lr": 1e-3, "é": [None, True, "\0"]}}
    text = r'{"kind":"x","params":{"lr":0.001,"\u00e9":[null,true,"\u0000"]},"version":1}'
    assert canonical(value) == text
    assert digest(value) == "97fd4dbaa7423dba1584969e7fb1aba884c942f8a67925d9b06a36344d040590"


@given(values)
def test_the_order_of_keys_does_not_matter(value):
    assert digest(backwards(value)) == digest(value)


@given(values)
def test_what_was_parsed_has_the_same_digest(value):
    assert digest_parsed(json.loads(canonical(value))) == digest(value)


@pytest.mark.parametrize("text", ["NaN", '[1, {"a": -Infinity}]', r'{"a": "\ud800"}'])
def test_what_was_parsed_and_json_cannot_hold_is_refused(text):
    with pytest.raises(ValueError):
        digest_parsed(json.loads(text))


@given(values, values)
def test_different_values_have_different_keys(a, b):
    assert (canonical(a) == canonical(b)) == same(a, b)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"lr": math.nan}, r"^lr: nan is not a finite number"),
        ({"a": {"b": [0, math.inf]}}, r"^a\.b\[1\]: inf"),
        ({"path": Path("x")}, r"^path: a \w*Path cannot be written as JSON"),
        ({"ids": {1, 2}}, r"^ids: a set cannot"),
        ({"a": {1: 2}}, r"^a: the key 1 is not a string"),
        ({"text": "\ud800"}, r"^text: .* lone surrogate"),
    ],
)
def test_what_json_cannot_hold_is_refused_with_its_place(value, message):
    with pytest.raises(ConfigError, match=message):
        canonical(value)


def test_differences_name_the_place_and_both_values():
    old = {"steps": 1000, "betas": [0.9, 0.999], "gone": 1, "same": {"x": None}}
    new = {"steps": 2000, "betas": [0.9, 0.95], "new": "a", "same": {"x": None}}
    assert differences(old, new, "intermediate") == [
        "intermediate.betas[1]: 0.999 -> 0.95",
        "intermediate.gone: 1 -> (not there)",
        'intermediate.new: (not there) -> "a"',
        "intermediate.steps: 1000 -> 2000",
    ]


def test_differences_shorten_digests_and_long_values():
    assert differences("a" * 64, "b" * 64, "file") == ["file: aaaaaaaa -> bbbbbbbb"]
    (line,) = differences("x", "y" * 100, "text")
    assert line == 'text: "x" -> "' + "y" * 36 + "..."


@dataclass(frozen=True, kw_only=True)
class Inner:
    rate: float
    later: float = omitted(0.5)
    every: float = unkeyed(60.0)


@dataclass(frozen=True, kw_only=True)
class Outer:
    kind: str = omitted("plain")
    layers: int | None = omitted(None, lambda params: params.kind == "plain")
    inner: Inner
    pair: tuple[int, str] = (1, "a")


@pytest.mark.parametrize(
    ("params", "keyed"),
    [
        (Outer(inner=Inner(rate=0.1, every=1.0)), {"inner": {"rate": 0.1}, "pair": [1, "a"]}),
        (
            Outer(kind="deep", inner=Inner(rate=0.1, later=0.7)),
            {
                "kind": "deep",
                "layers": None,
                "inner": {"rate": 0.1, "later": 0.7},
                "pair": [1, "a"],
            },
        ),
    ],
)
def test_a_key_leaves_out_what_is_omitted_and_unkeyed(params, keyed):
    assert to_json(params) == keyed
    assert to_json(from_json(Outer, keyed)) == keyed


def test_what_no_key_holds_is_read_back_at_its_default():
    params = Outer(inner=Inner(rate=0.1, every=1.0))
    assert from_json(Outer, to_json(params)) == Outer(inner=Inner(rate=0.1))


@pytest.mark.parametrize("keyed", [{}, {"inner": {"rate": "fast"}}, {"inner": {}, "more": 1}])
def test_json_that_is_not_of_the_dataclass_is_refused(keyed):
    with pytest.raises(ConfigError, match="outer"):
        from_json(Outer, keyed, "outer")
