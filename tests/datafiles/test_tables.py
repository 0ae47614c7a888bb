"""Tables: quotes, line breaks and long cells of CSV files, quotes of TSV files, malformed rows."""

from __future__ import annotations

import pytest

from maskpolicy.datafiles import readers, tables
from maskpolicy.datafiles.rows import Layout


def write(folder, name, content: str | bytes):
    path = folder / name
    path.write_bytes(
        content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    )
    return path


def read(path, **layout):
    """Return the values of a file's rows, and (line or index, error) of those without one."""
    found = readers.rows(path, Layout(**layout))
    return [(row.number, row.error) if row.error else row.value for row in found]


def test_csv_keeps_commas_quotes_and_line_breaks_of_quoted_cells(tmp_path):
    path = write(
        tmp_path, "a.csv", '\ufeffid,text\r\n1,"One, ""two""\r\n\r\nthree."\r\n\r\n2,Four\r\n'
    )
    assert read(path) == [{"id": "1", "text": 'One, "two"\n\nthree.'}, {"id": "2", "text": "Four"}]
    assert [row.place.rpartition(", ")[2] for row in readers.rows(path)] == ["line 2", "line 6"]


def test_a_cell_of_a_csv_file_may_be_long(tmp_path):
    path = write(tmp_path, "a.csv", f"text\n{'a ' * 300_000}\n")
    assert len(read(path)[0]["text"]) == 600_000


@pytest.mark.parametrize(
    ("content", "bad"),
    [
        (b'text,n\n"A"b,1\nB,2\n', (2, "not a row of a .csv file: ',' expected after '\"'")),
        (b"text,n\nA\nB,2\n", (2, "has 1 cells, not 2 (text, n)")),
        (b"text,n\n\xff,1\nB,2\n", (2, "not UTF-8 at byte 0")),
        (b'text,n\n"A\n\xff",1\nB,2\n', (2, "not UTF-8 at byte 0")),
    ],
)
def test_a_malformed_row_of_csv_is_told_and_the_next_one_read(tmp_path, content, bad):
    assert read(write(tmp_path, "a.csv", content)) == [bad, {"text": "B", "n": "2"}]


def test_a_quote_that_is_never_closed_spoils_a_block_and_no_more(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "_BLOCK", 10)
    path = write(tmp_path, "a.csv", 'text\n"One\ntwo two two\nthree\n')
    assert read(path) == [
        (2, "not a row of a .csv file: unexpected end of data"),
        {"text": "three"},
    ]


def test_quotes_of_a_tsv_file_count_only_where_its_layout_says_so(tmp_path):
    path = write(tmp_path, "a.tsv", 'a\tb\n"x ""y"""\tz\n')
    assert read(path) == [{"a": 'x "y"', "b": "z"}]
    assert read(path, quoted=False) == [{"a": '"x ""y"""', "b": "z"}]
    assert read(path, quoted=False, header=["c", "d"])[0] == {"c": "a", "d": "b"}
