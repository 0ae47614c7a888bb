"""Corpora: every kind of file, what is malformed, what identifies them."""

import gzip
import json
import logging
import os

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet
from refusals import refused

from maskpolicy.core.errors import ConfigError, DataError
from maskpolicy.core.files import sha256
from maskpolicy.data.corpus import documents
from maskpolicy.data.datafiles import readers
from maskpolicy.data.datafiles.rows import Malformed
from maskpolicy.experiment.definition import CorpusBlock

DPR = 'id\ttext\ttitle\n1\t"Aaron (or ""Ahärôn"") is a prophet."\tAaron\n2\tPlain.\tB\n'


def write(folder, name, content: str | bytes):
    """Write a file, packed if its name ends in .gz."""
    data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    path = folder / name
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def read(*paths, malformed=None, **keys):
    """Return the documents of some files."""
    corpus = CorpusBlock(files=tuple(map(str, paths)), **keys)
    block = documents.identify(corpus, sha256)
    return list(documents.read(block, {}, corpus, malformed))


def texts(*paths, **keys):
    return [document.text for document in read(*paths, **keys)]


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


KILT = (
    {
        "wikipedia_title": "Ada",
        "text": ["Ada\n", "Ada was born.\n", "Section::::Life.:Work.\n", "BULLET::::- A list.\n"],
    },
    {"wikipedia_title": "Bob", "text": ["Bob\n", "Section::::Life.\n"]},
)


@pytest.mark.parametrize(
    ("name", "content", "wanted"),
    [
        # a document for each block between blank lines
        ("a.txt", "\ufeffOne,\r\ntwo.\r\n \r\n\r\nThree.", {1: "One,\ntwo.", 5: "Three."}),
        # headings end a block
        (
            "wiki.raw",
            " \n = Ada = \n \n She was born . \n = = Life = = \n a = b \n",
            {4: "She was born .", 6: "a = b"},
        ),
        ("a.jsonl", lines({"text": "A."}, {"text": None}, {"text": " "}), {1: "A."}),
        ("psgs_w100.tsv.gz", DPR, {2: 'Aaron (or "Ahärôn") is a prophet.', 3: "Plain."}),
        # title, headings and markers are left out
        ("kilt_knowledgesource.json", lines(*KILT), {1: "Ada was born.\nA list."}),
    ],
)
def test_documents_are_read_as_the_format_of_their_file_says(tmp_path, name, content, wanted):
    found = {document.id: document.text for document in read(write(tmp_path, name, content))}
    stem = name.partition(".")[0]
    assert found == {f"{stem}:{line}": text for line, text in wanted.items()}


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet", "a.parquet.gz"])
def test_columns_of_character_ranges_are_read_too(tmp_path, name):
    rows = [{"text": "Ada met Bob.", "spans": [[0, 3], [8, 11, 7]]}, {"text": "A", "spans": None}]
    path = write(tmp_path, name, lines(*rows))
    if "parquet" in name:
        parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "plain.parquet")
        path = write(tmp_path, name, (tmp_path / "plain.parquet").read_bytes())
    found = read(path, columns=("spans",))
    assert [one.text for one in found] == ["Ada met Bob.", "A"]
    assert [one.columns for one in found] == [{"spans": [[0, 3], [8, 11]]}, {"spans": []}]


def test_wikitext_headings_are_no_documents_of_parquet_either(tmp_path):
    rows = ["", " = Ada = \n", " She was born . \n", " = = Life = = \n", " a = b \n"]
    parquet.write_table(pyarrow.table({"text": rows}), tmp_path / "a.parquet")
    corpus = CorpusBlock(hub=str(tmp_path))
    of_hub = documents.read(documents.identify(corpus, sha256), {}, corpus)
    for prefix, found in (("a", read(tmp_path / "a.parquet", limit=2)), ("train", of_hub)):
        known = {one.id: one.text.strip() for one in found}
        assert known == {f"{prefix}:2": "She was born .", f"{prefix}:4": "a = b"}


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))))
def test_what_is_written_as_jsonl_is_read_back(tmp_path_factory, written):
    path = write(tmp_path_factory.mktemp("c"), "a.jsonl", lines(*({"text": t} for t in written)))
    kept = [text for text in written if text.strip()]
    if kept:
        assert texts(path) == kept
    else:
        refused(texts, path, error=DataError, match="holds no text")


X, SKIP = {"columns": ("x",)}, {"on_error": "skip"}


@pytest.mark.parametrize(
    ("name", "content", "keys", "message"),
    [
        ("a.jsonl", '{"text": "A."}\n{"text"', {}, r"line 2: not JSON.*\(corpus.on_error: skip"),
        ("a.jsonl", '{"body": "A."}', {}, r"no key 'text' \(it has body\): set corpus\.column"),
        ("a.jsonl", '{"text": 3}', {}, "line 1: key 'text' must be text, not 3"),
        ("a.jsonl", '{"text": "A\\u0000"}', {}, "line 1: key 'text' holds a NUL character"),
        ("a.jsonl", '{"text": "\\ud800"}', {}, "line 1: key 'text' holds a lone surrogate"),
        ("a.jsonl", b'{"text": "\xff"}', {}, "line 1: not UTF-8 at byte 10"),
        ("a.jsonl", "[" * 200_000, {}, "line 1: not JSON"),
        ("a.jsonl", '{"text": "A."}', X, "line 1: key 'x' is missing"),
        ("a.jsonl", '{"text": "A.", "x": [3]}', X, "must be a list of"),
        ("a.jsonl", '{"text": "A.", "x": [[1, 3]]}', X, "is not a range of the 2-character text"),
        ("a.txt", "A.\n\nB.\nC\0D.\n", {}, "line 4: holds a NUL character at character 1: remove"),
        ("a.txt", b"A.\n\xff\n", {}, "line 2: not UTF-8 at byte 0: convert the file to UTF-8"),
        ("a.txt", "A.", X, "plain text has no column 'x'"),
        ("a.tsv", "id\tbody\n1\tA.\n", {}, "there are id, body: rename one, or set corpus.column"),
        ("a.csv", b"text,\xe9\nA.,1\n", SKIP, "a.csv, line 1: not UTF-8 at byte 5: convert"),
        ("a.csv", "id;text\n1;A.\n", {}, "there are id;text: separate columns by commas"),
        ("kilt_knowledgesource.json", '{"text": "A."}', {}, "must be a list of texts"),
        ("a.parquet", "A.", {}, "a.parquet: not valid Parquet"),
        ("a.jsonl", "", {}, "a.jsonl: the corpus holds no text in 'text': name another key"),
        ("a.txt", " = Heading = \n\n", {}, "a.txt: the corpus holds no text: name files with text"),
    ],
)
def test_bad_input_is_one_line_with_file_and_row(tmp_path, name, content, keys, message):
    refused(read, write(tmp_path, name, content), error=DataError, match=message, **keys)


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_parquet_whose_text_is_not_utf8_is_one_line(tmp_path, on_error):
    texts = pyarrow.array([b"A.", b"\xff"], pyarrow.binary()).view(pyarrow.string())
    parquet.write_table(pyarrow.table({"text": texts}), tmp_path / "a.parquet")
    line = refused(read, tmp_path / "a.parquet", error=DataError, on_error=on_error)
    assert "a.parquet: a text is not UTF-8" in line


def test_skipped_rows_are_counted_and_the_first_ten_named(tmp_path, caplog):
    path = write(tmp_path, "a.jsonl", '{"text": "A."}\n' + "x\n" * 12)
    malformed = Malformed("corpus.on_error: skip", skip=True)
    with caplog.at_level(logging.WARNING):
        assert texts(path, on_error="skip", malformed=malformed) == ["A."]
    assert malformed.count == 12
    assert "12 malformed rows skipped" in caplog.text
    assert "line 11:" in caplog.text and "line 12:" not in caplog.text


def test_the_limit_counts_documents_and_reads_no_further(tmp_path):
    path = write(tmp_path, "a.jsonl", lines({"text": "A."}, {"text": ""}, {"text": "B."}) + "x\n")
    assert texts(path, limit=2) == ["A.", "B."]


def test_a_corpus_and_its_ids_are_told_by_names_and_digests_not_by_folders(tmp_path):
    paths = []
    for folder, name in (("one", "a.txt"), ("two", "a.txt"), ("three", "b.txt")):
        (tmp_path / folder).mkdir()
        paths.append(write(tmp_path / folder, name, "A.\n\nB."))
    ids = [document.id for document in read(*paths)]
    assert ids == ["0/a:1", "0/a:3", "1/a:1", "1/a:3", "b:1", "b:3"]

    def identity(path):
        return documents.identify(CorpusBlock(files=(str(path),)), sha256)

    assert identity(paths[0]) == identity(paths[1])
    assert identity(paths[0]) != identity(write(tmp_path, "a.txt", "B."))


@pytest.mark.parametrize("columns", [("text",), ("tokens",)])
def test_columns_with_names_of_our_own_are_refused(columns):
    with pytest.raises(ConfigError, match="is a reserved name"):
        documents.identify(CorpusBlock(files=("/a.jsonl",), columns=columns), sha256)


@pytest.mark.parametrize("stream", [False, True])
def test_a_hub_dataset_is_read_whole_or_streamed(tmp_path, monkeypatch, stream):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "data"
    folder.mkdir()
    rows = [{"text": "A.", "spans": [[0, 1]], "x": 1}, {"text": "B.", "spans": [], "x": 2}]
    write(folder, "train.jsonl", lines(*rows))
    corpus = CorpusBlock(hub=str(folder), columns=("spans",), stream=stream)
    block = documents.identify(corpus, sha256)
    assert [name for name, _ in block.files] == ["train.jsonl"]
    assert [(d.id, d.text, d.columns) for d in documents.read(block, {}, corpus)] == [
        ("train:0", "A.", {"spans": [[0, 1]]}),
        ("train:1", "B.", {"spans": []}),
    ]
    with pytest.raises(DataError, match=r"split train: no column 'body'; there are"):
        list(readers.hub_rows(str(folder), ["body"], stream=stream))
    with pytest.raises(
        DataError, match=r"split dev: cannot be loaded as a dataset of files: .*dev"
    ):
        list(readers.hub_rows(str(folder), ["text"], split="dev", stream=stream))


def test_a_dataset_in_a_folder_is_read_again_and_lies_in_the_folder(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("Anna", "Bert"):  # of one size, written at one time
        path = write(folder, "train.jsonl", lines({"text": name}))
        os.utime(path, (1e9, 1e9))
        assert [row.value["text"] for row in readers.hub_rows(str(folder))] == [name]
    write(tmp_path, "outside.jsonl", lines({"text": "A."}))
    files = 'configs: [{config_name: default, data_files: "../outside.jsonl"}]'
    write(folder, "README.md", f"---\n{files}\n---\n")
    with pytest.raises(DataError, match=r"its README.md names \S+outside.jsonl, outside of the"):
        list(readers.hub_rows(str(folder)))


def test_real_wikitext_is_read_as_sections(real_data):
    path = next((real_data / "wikitext2").glob("*.raw"))
    found = read(path)
    assert len(found) > 500
    assert not any(document.text.startswith("= ") for document in found)
    assert found[0].text.startswith("Robert Boulter is an English film")


def test_files_that_are_all_empty_are_refused_before_anything_is_computed(tmp_path):
    empty, other = write(tmp_path, "a.txt", ""), write(tmp_path, "b.txt", "B.")
    with pytest.raises(DataError, match=r"a\.txt: the corpus holds no text: name files with text"):
        documents.identify(CorpusBlock(files=(str(empty),)), sha256)
    assert documents.identify(CorpusBlock(files=(str(empty), str(other))), sha256)
