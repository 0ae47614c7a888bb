"""Data files: formats, malformed rows, gzip, values of rows, and where files may be cut."""

import gzip
import hashlib
import json
import re
from itertools import pairwise

import pyarrow
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from refusals import refused

from maskpolicy.core.errors import DataError
from maskpolicy.data.datafiles import fields, readers
from maskpolicy.data.datafiles import rows as cuts
from maskpolicy.data.datafiles.rows import WHOLE, Layout, Part, opened
from tests.data.test_documents import write


def read(path, **layout):
    """Return the values of a file's rows, and (line or index, error) of those without one."""
    found = readers.rows(path, Layout(**layout))
    return [(row.number, row.error) if row.error else row.value for row in found]


def test_csv_keeps_commas_quotes_and_line_breaks_of_quoted_cells(tmp_path):
    content = '\ufeffid,text\r\n1,"One, ""two""\r\n\r\nthree."\r\n\r\n2,Four\r\n'
    path = write(tmp_path, "a.csv", content)
    assert read(path) == [{"id": "1", "text": 'One, "two"\n\nthree.'}, {"id": "2", "text": "Four"}]
    assert [row.place.rpartition(", ")[2] for row in readers.rows(path)] == ["line 2", "line 6"]


@pytest.mark.parametrize(
    ("content", "bad"),
    [
        (b'text,n\nx,5" "\nB,2\n', {"text": "x", "n": '5" "'}),
        (b'text,n\n"A"b,1\nB,2\n', (2, "not a row of a .csv file: ',' expected after '\"'")),
        (b"text,n\nA\nB,2\n", (2, "has 1 cells, not 2 (text, n)")),
        (b'text,n\n"A\n\xff",1\nB,2\n', (2, "not UTF-8 at byte 0: convert the file to UTF-8")),
    ],
)
def test_a_malformed_row_of_csv_is_told_and_the_next_one_read(tmp_path, content, bad):
    assert read(write(tmp_path, "a.csv", content)) == [bad, {"text": "B", "n": "2"}]


def test_quotes_of_a_tsv_file_count_only_where_its_layout_says_so(tmp_path):
    path = write(tmp_path, "a.tsv", 'a\tb\n"x ""y"""\tz\n')
    assert read(path) == [{"a": 'x "y"', "b": "z"}]
    assert read(path, quoted=False) == [{"a": '"x ""y"""', "b": "z"}]
    assert read(path, quoted=False, header=["c", "d"])[0] == {"c": "a", "d": "b"}


def test_a_column_that_is_there_twice_is_an_error_if_it_is_read(tmp_path):
    path = write(tmp_path, "a.csv", "a,b,a\n1,2,3\n")
    for layout in ({"keys": ["a"]}, {}):
        with pytest.raises(DataError, match=r"a.csv, line 1: two columns are called 'a': rename"):
            read(path, **layout)
    assert read(path, keys=["b"])[0]["b"] == "2"
    assert read(write(tmp_path, "b.csv", "a,,\n1,,\n"))[0]["a"] == "1"


def test_parquet_gives_all_columns_if_none_are_named(tmp_path):
    parquet.write_table(pyarrow.table({"a": [1], "b": [[{"c": "d"}]]}), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet") == [{"a": 1, "b": [{"c": "d"}]}]
    assert read(tmp_path / "a.parquet", keys=["a"]) == [{"a": 1}]
    with pytest.raises(DataError, match="no column 'x'; there are a, b"):
        read(tmp_path / "a.parquet", keys=["x"])


@pytest.mark.parametrize("name", ["a.docx", "a", ".csv", "a.csv.zip"])
def test_an_unknown_format_lists_those_that_are_known(name):
    known = (
        "must end in .txt, .text, .md, .rst, .conll, .train, .dev, .test, .raw, .jsonl, .json, "
        ".tsv, .csv, .parquet (each also with .gz)"
    )
    refused(readers.stem, name, match=re.escape(known))


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
        patch.setattr(readers, "_PIECE", piece)
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
        ("", "must hold a list of rows$"),
        ('{"a": 1}', "must hold a list of rows$"),
        ('{"a": 1}\n{"a": 2}\n', r"list of rows; it has one row on each line: name it \*\.jsonl"),
        ("id,question\n1,what?\n", r"list of rows; it looks like a table: name it \*\.csv"),
        ("id\tquestion\n1\twhat?\n", r"list of rows; it looks like a table: name it \*\.tsv"),
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
    monkeypatch.setattr(readers, "_PIECE", piece)
    reason = reason if piece > 1 else reason.partition(";")[0]  # advice needs the first lines
    path = write(tmp_path, "a.json", content)
    refused(read, path, error=DataError, match=rf"a\.json.*{reason}")


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
    ("data", "reason"),
    [
        (None, "cannot be read: No such file"),
        (b"no gzip", "damaged, or not a gzip file"),
        (gzip.compress(b"text" * 999, mtime=0)[:-9], "damaged, or not a gzip file"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line(tmp_path, data, reason):
    path = tmp_path / "a.txt.gz"
    if data is not None:
        path.write_bytes(data)

    def reading():
        with opened(path) as stream:
            stream.read()

    refused(reading, error=DataError, match=rf"a\.txt\.gz: {reason}")


@given(st.lists(st.fixed_dictionaries({"a": st.integers(), "b": st.text()}), min_size=1))
def test_the_hubs_object_of_lists_is_a_list_of_objects(rows):
    columns = {name: [row[name] for row in rows] for name in ("a", "b")}
    assert fields.records({"rows": columns}, "rows") == fields.records({"rows": rows}, "rows")


LINES = (
    *(b"One two.", b" = Ada = ", b" = = Life = = ", b"", b" ", b"\t", b"\xff\xfe", b"a\x00b"),
    *(b'{"text": "A b."}', b'{"text": ""}', b"{", b"[1]", "é\u2028\x85 ü".encode()),
    *(b"id\ttext\ttitle", b"1\tA\tB", b'2\t"A ""b"""\tC', b'3\t"open\tB', b"id,text", b"1,a", b'"'),
    *(b'{"text": ["A", "b"], "wikipedia_title": "A"}', b"x" * 40),
)
NAMES = ("a.txt", "a.RAW", "a.jsonl", "a.tsv", "a.csv", "kilt_knowledgesource.json")
CONTENT = st.tuples(
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
    st.lists(
        st.tuples(st.sampled_from(LINES), st.sampled_from([b"\n", b"\r\n", b"\n\n", b"\r"])),
        max_size=25,
    ),
    st.sampled_from(LINES),
).map(lambda given: given[0] + b"".join(a + b for a, b in given[1]) + given[2])
ONCE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)


def rows_of(path, part=WHOLE):
    return list(readers.rows(path, Layout(part=part)))


def parts(path, size):
    digest, found = cuts.scan(path, size, readers.unit(path.name))
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()
    return cuts.parts(found)


@pytest.mark.parametrize("name", NAMES)
@ONCE
@given(content=CONTENT, size=st.integers(1, 60))
def test_the_parts_of_a_file_hold_its_rows_once_and_in_order(tmp_path, name, content, size):
    path = tmp_path / name
    path.write_bytes(content)
    found = parts(path, size)
    try:
        whole = rows_of(path)
    except DataError as error:
        assert str(error).startswith(f"{path}, line ")
        return
    assert [row for part in found for row in rows_of(path, part)] == whole
    assert found[0].begin == found[0].before == 0 and found[-1].end is None
    assert all(one.end == other.begin > one.begin for one, other in pairwise(found))
    assert all(part.end - part.begin >= size for part in found[:-1])


@pytest.mark.parametrize("name", ["it.txt", "it.txt.gz", "it.jsonl"])
def test_a_line_that_is_too_long_is_one_malformed_row(tmp_path, monkeypatch, name):
    monkeypatch.setattr(cuts, "LONGEST_LINE", 20)
    monkeypatch.setattr(cuts, "_PIECE", 7)
    lines = [b'{"text": "one"}', b"x" * 20, b"x" * 61, b'{"text": "two"}', b"y" * 35]
    content = b"\n".join(lines)
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    found = list(readers.rows(path, Layout(keys=("text",))))
    wrong = [(row.number, row.error) for row in found if row.error]
    assert wrong == [(number, "has more than 0 MB: break it into several") for number in (2, 3, 5)]
    assert len(found) == (4 if ".txt" in name else 5)
    part = Layout(keys=("text",), part=Part(begin=16, end=16 + 21 + 62, before=1))
    if not name.endswith("gz"):
        assert [row.number for row in readers.rows(path, part)] == [2, 3]


def test_a_quote_that_does_not_fit_is_text_in_a_tsv_file(tmp_path):
    rows = '"Yes," he said.\t"No."', '" We\t" He , "', '"It\trains."', '"One"'
    path = write(tmp_path, "a.tsv", "a\tb\n" + "\n".join(rows) + "\n")
    wanted = [('"Yes," he said.', '"No."'), ('" We', '" He , "'), ('"It', 'rains."')]
    assert read(path)[:3] == [dict(zip("ab", row, strict=True)) for row in wanted]
    assert read(path)[3] == (5, "has 1 cells, not 2 (a, b)")
