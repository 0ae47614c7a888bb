"""Keys: equal values have one text, different values different ones; ragged arrays."""

import json
import math
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import small
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from maskpolicy.core import ragged
from maskpolicy.core.errors import ConfigError, DataError
from maskpolicy.core.keys import (
    canonical,
    differences,
    digest,
    digest_parsed,
    from_json,
    to_json,
    without_omitted,
)
from maskpolicy.core.ragged import Joined, Ragged
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
def test_parsed_values_have_the_same_digest(value):
    assert digest_parsed(json.loads(canonical(value))) == digest(value)


@pytest.mark.parametrize("text", ["NaN", '[1, {"a": -Infinity}]', r'{"a": "\ud800"}'])
def test_parsed_values_that_json_cannot_hold_are_errors(text):
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
def test_values_that_json_cannot_hold_are_errors_with_their_place(value, message):
    with pytest.raises(ConfigError, match=message):
        canonical(value)


def test_differences_name_the_place_and_both_values():
    old = {"steps": 1000, "betas": [0.9, 0.999], "gone": 1, "same": {"x": None}}
    new = {"steps": 2000, "betas": [0.9, 0.95], "new": "a", "same": {"x": None}}
    assert differences("ä/b", "ö", "data") == ['data: "ä/b" -> "ö"']
    assert differences(old, new, "intermediate") == [
        "intermediate.betas[1]: 0.999 -> 0.95",
        "intermediate.gone: 1 -> (not there)",
        'intermediate.new: (not there) -> "a"',
        "intermediate.steps: 1000 -> 2000",
    ]


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
    ("kind", "inner", "keyed"),
    [
        ({}, {"every": 1.0}, {"inner": {"rate": 0.1}}),
        ({"kind": "deep"}, {"later": 0.7}, {"layers": None, "inner": {"rate": 0.1, "later": 0.7}}),
    ],
)
def test_a_key_leaves_out_what_is_omitted_and_unkeyed(kind, inner, keyed):
    keyed = {**kind, **keyed, "pair": [1, "a"]}
    assert to_json(Outer(**kind, inner=Inner(rate=0.1, **inner))) == keyed
    assert to_json(from_json(Outer, keyed)) == keyed


@dataclass(frozen=True)
class Noise:
    rate: float = 0.5
    later: float = omitted(0.5)


@dataclass(frozen=True)
class Noisy:
    noise: Noise | None = field(default_factory=Noise)


def test_a_block_may_be_null():
    blocks = {"noise": {"rate": 0.5, "later": 0.5}}
    assert without_omitted(Noisy, blocks) == {"noise": {"rate": 0.5}}
    assert without_omitted(Noisy, {"noise": None}) == {"noise": None}


@pytest.mark.parametrize("keyed", [{}, {"inner": {"rate": "fast"}}, {"inner": {}, "more": 1}])
def test_json_of_another_dataclass_is_an_error(keyed):
    with pytest.raises(ConfigError, match="outer"):
        from_json(Outer, keyed, "outer")


ROWS = st.lists(
    st.integers(0, 4).flatmap(lambda n: arrays(np.int32, (n, 2), elements=st.integers(-9, 9))),
    max_size=6,
)


def same_rows(one, other):
    return len(one) == len(other) and all(
        a.dtype == b.dtype and a.shape == b.shape and (a == b).all()
        for a, b in zip(one, other, strict=True)
    )


def test_a_file_gives_back_every_column_of_every_type(tmp_path):
    texts = [np.frombuffer(text.encode(), np.uint8) for text in ("é", "", "ab")]
    columns = {
        "tokens": Ragged.of([[1, 2], [], [3]], np.int32),
        "spans": Ragged.of([np.zeros((0, 2)), [[1, 2]], np.zeros((0, 2))], np.int32, 2),
        "nowhere": Ragged.of([np.zeros((0, 2))] * 3, np.int32, 2),
        "texts": Ragged.of(texts, np.uint8),
        "scores": Ragged.of_arrays([np.asarray([0.5, 1.5])] * 3),
        "single": Ragged.of_arrays([np.asarray([[0.5, 1.5]], np.float32)] * 3),
        "long": Ragged.of_arrays([np.asarray([2**40])] * 3),
    }
    small.save(tmp_path / "it.safetensors", columns)
    loaded = ragged.load(tmp_path / "it.safetensors")
    assert loaded.keys() == columns.keys()
    for name, column in columns.items():
        assert same_rows(loaded[name], column), name


def test_a_shape_or_a_type_that_does_not_fit_names_its_column(tmp_path):
    rows = [np.zeros((1, 2), np.int32), np.zeros((2, 3), np.int32)]
    with pytest.raises(DataError, match=r"column 'it', row 1: its array has the shape \(n, 3\)"):
        small.save(tmp_path / "it", {"it": rows})
    rows = [np.zeros(0), np.asarray([1]), np.zeros(0, np.int32)]  # floats hold whole numbers
    small.save(tmp_path / "it", {"it": rows})
    with pytest.raises(DataError, match="row 1: its array has the type float64, and the first one"):
        small.save(tmp_path / "it", {"it": [np.asarray([1]), np.asarray([0.5])]})
    with pytest.raises(DataError, match="column 'it', row 7: its array has the type float64"):
        ragged.check_alike("it", 7, np.zeros(2), np.zeros(0, np.uint8))  # of another shard
    with pytest.raises(DataError, match="column 'it': its arrays are int16"):
        small.save(tmp_path / "it", {"it": [np.zeros(1, np.int16)]})


def test_the_file_is_plain_safetensors(tmp_path):
    from safetensors.numpy import load_file

    small.save(tmp_path / "it", {"it": Ragged.of([[1, 2], [3]], np.int32)})
    plain = load_file(tmp_path / "it")
    assert plain["it"].tolist() == [1, 2, 3]
    assert [b - a for a, b in pairwise(plain["it.bounds"].tolist())] == [2, 1]
    assert json.dumps(sorted(plain)) == '["it", "it.bounds"]'


@given(ROWS, st.lists(st.integers(0, 6), max_size=3), st.integers(-7, 7), st.integers(-7, 7))
def test_parts_are_read_as_one_list_wherever_they_end(rows, cuts, begin, end):
    bounds = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    found = Joined([Ragged.of(rows[a:b], np.int32, width=2) for a, b in pairwise(bounds)])
    whole = Ragged.of(rows, np.int32, width=2)
    assert same_rows(found, rows)
    assert same_rows(found[begin:end], rows[begin:end])
    assert found.lengths.tolist() == whole.lengths.tolist()
    places = np.asarray([place for place in (begin, end) if 0 <= place < len(rows)], np.int64)
    assert same_rows(found.take(places), whole.take(places))
    with pytest.raises(IndexError):
        found[len(rows)]
