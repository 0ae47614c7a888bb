"""Lists of arrays of unequal length, as made and as read back from a file."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
import small
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from maskpolicy.core import ragged
from maskpolicy.core.errors import DataError
from maskpolicy.core.ragged import Joined, Ragged

ROWS = st.lists(
    st.integers(0, 4).flatmap(lambda n: arrays(np.int32, (n, 2), elements=st.integers(-9, 9))),
    max_size=6,
)


def same(one, other):
    return len(one) == len(other) and all(
        a.dtype == b.dtype and a.shape == b.shape and (a == b).all()
        for a, b in zip(one, other, strict=True)
    )


@given(ROWS)
def test_a_ragged_is_the_list_that_it_was_made_of(rows):
    packed = Ragged.of(rows, np.int32, width=2)
    assert same(packed, rows)
    assert packed.lengths.tolist() == [len(row) for row in rows]


def test_places_count_from_both_ends():
    packed = Ragged.of([[1], [2, 3]], np.int32)
    assert packed[-1].tolist() == [2, 3]
    assert list(map(len, packed)) == [1, 2]
    for place in (2, -3):
        with pytest.raises(IndexError):
            packed[place]
    with pytest.raises(IndexError, match="step 1"):
        packed[::2]


def of_texts(texts: list[str]) -> Ragged:
    return Ragged.of((np.frombuffer(text.encode(), np.uint8) for text in texts), np.uint8)


def test_a_file_gives_back_every_column_of_every_type(tmp_path):
    columns = {
        "tokens": Ragged.of([[1, 2], [], [3]], np.int32),
        "spans": Ragged.of([np.zeros((0, 2)), [[1, 2]], np.zeros((0, 2))], np.int32, 2),
        "nowhere": Ragged.of([np.zeros((0, 2))] * 3, np.int32, 2),
        "texts": of_texts(["é", "", "ab"]),
        "scores": Ragged.of_arrays([np.asarray([0.5, 1.5])] * 3),
        "single": Ragged.of_arrays([np.asarray([[0.5, 1.5]], np.float32)] * 3),
        "long": Ragged.of_arrays([np.asarray([2**40])] * 3),
    }
    small.save(tmp_path / "it.safetensors", columns)
    loaded = ragged.load(tmp_path / "it.safetensors")
    assert loaded.keys() == columns.keys()
    for name, column in columns.items():
        assert same(loaded[name], column), name


def test_a_slice_is_saved_as_if_it_had_been_made_so(tmp_path):
    whole = Ragged.of([[1], [2, 3], [4]], np.int32)
    small.save(tmp_path / "slice", {"it": whole[1:3]})
    small.save(tmp_path / "made", {"it": Ragged.of([[2, 3], [4]], np.int32)})
    assert (tmp_path / "slice").read_bytes() == (tmp_path / "made").read_bytes()


def test_a_strange_type_names_file_and_column(tmp_path):
    path = tmp_path / "it"
    small.save(path, {"it": Ragged.of([[1, 2]], np.int32)})
    path.write_bytes(path.read_bytes().replace(b'"I32"', b'"U32"'))
    with pytest.raises(DataError, match=r"it: it has the unexpected type U32"):
        ragged.load(path)


def test_a_shape_or_a_type_that_does_not_fit_names_its_column(tmp_path):
    with pytest.raises(DataError, match=r"column 'it', row 1: its array has the shape \(2, 3\)"):
        small.save(
            tmp_path / "it", {"it": [np.zeros((1, 2), np.int32), np.zeros((2, 3), np.int32)]}
        )
    with pytest.raises(DataError, match="column 'it': its arrays are int16"):
        small.save(tmp_path / "it", {"it": [np.zeros(1, np.int16)]})


def test_the_file_is_plain_safetensors(tmp_path):
    from safetensors.numpy import load_file

    small.save(tmp_path / "it", {"it": Ragged.of([[1, 2], [3]], np.int32)})
    plain = load_file(tmp_path / "it")
    assert plain["it"].tolist() == [1, 2, 3]
    assert [b - a for a, b in pairwise(plain["it.bounds"].tolist())] == [2, 1]
    assert json.dumps(sorted(plain)) == '["it", "it.bounds"]'


@given(st.lists(st.lists(st.integers(0, 9), max_size=5), min_size=1, max_size=6), st.randoms())
def test_rows_are_taken_in_any_order(rows, random):
    ragged = Ragged.of([np.asarray(row, np.int32) for row in rows], np.int32)
    chosen = [random.randrange(len(rows)) for _ in range(4)]
    taken = ragged.take(np.asarray(chosen))
    assert [row.tolist() for row in taken] == [rows[index] for index in chosen]


@given(st.lists(st.lists(st.integers(0, 9), max_size=5), max_size=6))
def test_padding_fills_up_to_the_longest_row(rows):
    ragged = Ragged.of([np.asarray(row, np.int32) for row in rows], np.int32)
    width = max(map(len, rows), default=0)
    assert ragged.padded(-1).tolist() == [row + [-1] * (width - len(row)) for row in rows]
    assert ragged.inside.sum() == sum(map(len, rows))


def joined(rows, cuts):
    """Return the rows in parts that end at these places, and as one list."""
    bounds = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    parts = [Ragged.of(rows[a:b], np.int32, width=2) for a, b in pairwise(bounds)]
    return Joined(parts)


@given(ROWS, st.lists(st.integers(0, 6), max_size=3), st.integers(-7, 7), st.integers(-7, 7))
def test_parts_are_read_as_one_list_wherever_they_end(rows, cuts, begin, end):
    found, whole = joined(rows, cuts), Ragged.of(rows, np.int32, width=2)
    assert same(found, rows)
    assert same(found[begin:end], rows[begin:end])
    assert found.lengths.tolist() == whole.lengths.tolist()
    places = np.asarray([place for place in (begin, end) if 0 <= place < len(rows)], np.int64)
    assert same(found.take(places), whole.take(places))
    with pytest.raises(IndexError):
        found[len(rows)]


def test_all_parts_have_the_type_of_the_first_as_if_one_writer_had_written_them():
    parts = [Ragged.of([[1, 2]], np.int32), Ragged.of([[3.0]], np.float64)]
    assert same(Joined(parts), Ragged.of([[1, 2], [3]], np.int32))
