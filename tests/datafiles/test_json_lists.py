"""JSON lists: read in pieces of any size, strictly, and rows below a key."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskpolicy.datafiles import json_lists
from maskpolicy.errors import DataError
from tests.datafiles.test_tables import read, write

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@given(
    rows=st.lists(st.dictionaries(st.text(max_size=3), VALUES, max_size=3) | VALUES, max_size=5),
    piece=st.integers(1, 30),
    indent=st.sampled_from([None, 0, 3]),
    bom=st.sampled_from(["", "\ufeff"]),
)
def test_a_json_list_is_read_the_same_in_pieces_of_any_size(
    tmp_path_factory, rows, piece, indent, bom
):
    text = bom + json.dumps(rows, indent=indent, ensure_ascii=False)
    path = write(tmp_path_factory.mktemp("json"), "a.json", text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_lists, "_PIECE", piece)
        found = read(path)
    assert [value for value in found if isinstance(value, dict)] == [
        row for row in rows if isinstance(row, dict)
    ]
    bad = [value for value in found if isinstance(value, tuple)]
    assert [number for number, _ in bad] == [
        index for index, row in enumerate(rows) if not isinstance(row, dict)
    ]
    assert all(error.startswith("must be a JSON object, not ") for _, error in bad)


@pytest.mark.parametrize("piece", [1, 1 << 20])
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "must hold a list of rows"),
        ('{"a": 1}', "must hold a list of rows"),
        ('[{"a": 1}', r"row\[1\]: not JSON: Expecting ',' delimiter"),
        ('[{"a": 1', r"row\[0\]: not JSON"),
        ('[{"a": 1} {"a": 2}]', r"row\[1\]: not JSON: Expecting ',' delimiter"),
        ('[{"a": 1},]', r"row\[1\]: not JSON: Expecting value"),
        ('[,{"a": 1}]', r"row\[0\]: not JSON: Expecting value"),
        ("[1", r"row\[1\]: not JSON: Expecting ',' delimiter"),
        ('[{"a": 1}] x', "not JSON: Extra data"),
        ("[" + "[" * 200_000, r"row\[0\]: not JSON"),
        ("[" + "9" * 5000 + "]", r"row\[0\]: not JSON: Exceeds the limit"),
        (b'[{"a": "\xff"}]', "not UTF-8"),
    ],
)
def test_a_json_file_that_is_no_list_is_one_line(tmp_path, monkeypatch, piece, content, reason):
    monkeypatch.setattr(json_lists, "_PIECE", piece)
    with pytest.raises(DataError, match=rf"a\.json.*{reason}") as error:
        read(write(tmp_path, "a.json", content))
    assert "\n" not in str(error.value)


def test_rows_below_a_key_have_what_encloses_them(tmp_path):
    content = {"data": [{"title": "T", "parts": [{"q": 1}, {"q": 2}]}, {"title": "U", "parts": 3}]}
    path = write(tmp_path, "a.json", json.dumps(content))
    assert read(path, at="data.parts") == [
        {"title": "T", "q": 1},
        {"title": "T", "q": 2},
        (2, "must be a JSON object, not 3"),
    ]
    with pytest.raises(DataError, match="must hold a list of rows under the key 'rows'"):
        read(path, at="rows")


@pytest.mark.parametrize(
    ("content", "advice"),
    [
        ("id,question\n1,what?\n", r"it looks like a table: name it \*\.csv"),
        ("id\tquestion\n1\twhat?\n", r"it looks like a table: name it \*\.tsv"),
        ('{"a": 1}\n{"a": 2}\n', r"it has one row on each line: name it \*\.jsonl"),
        ('{"a": 1}', r"must hold a list of rows$"),
    ],
)
def test_a_file_of_another_format_is_told(content, advice):
    with pytest.raises(DataError, match=advice):
        list(json_lists.list_items(io.BytesIO(content.encode()), Path("it.json")))
