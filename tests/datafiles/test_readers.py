"""The reader of rows: formats that no module of their own reads, and names."""

from __future__ import annotations

import re

import pyarrow
import pytest
from pyarrow import parquet

from maskpolicy.datafiles import readers
from maskpolicy.datafiles.rows import Layout
from maskpolicy.errors import ConfigError, DataError


def read(path, **layout):
    """Return the values of a file's rows, and (line or index, error) of those without one."""
    found = readers.rows(path, Layout(**layout))
    return [(row.number, row.error) if row.error else row.value for row in found]


def test_parquet_gives_all_columns_if_none_are_named(tmp_path):
    parquet.write_table(pyarrow.table({"a": [1], "b": [[{"c": "d"}]]}), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet") == [{"a": 1, "b": [{"c": "d"}]}]
    assert read(tmp_path / "a.parquet", keys=["a"]) == [{"a": 1}]
    with pytest.raises(DataError, match="no column 'x'; there are a, b"):
        read(tmp_path / "a.parquet", keys=["x"])


@pytest.mark.parametrize("name", ["a.JSONL", "a.json.gz", "b.tsv", "c.csv", "d.parquet", "e.txt"])
def test_a_format_is_told_by_the_name_in_any_case(name):
    assert readers.stem(name) == name[0]


@pytest.mark.parametrize("name", ["a.docx", "a", ".csv", "a.csv.zip"])
def test_an_unknown_format_lists_those_that_are_known(name):
    known = "must end in .txt, .raw, .jsonl, .json, .tsv, .csv, .parquet (each also with .gz)"
    with pytest.raises(ConfigError, match=re.escape(known)):
        readers.stem(name)


def test_a_name_decides_what_is_plain_text_and_what_may_hold_headings():
    assert readers.is_plain("a.raw.gz") and not readers.is_plain("a.jsonl")
    assert readers.has_lines("a.parquet") and not readers.has_lines("a.txt")
    assert readers.is_heading(" = = Life = = \n") and not readers.is_heading("a = b")
