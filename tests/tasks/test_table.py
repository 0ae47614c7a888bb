"""Tasks in tables of the user's own: no code is needed where columns suffice."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from official import block, groups, read
from refusals import refused

from maskpolicy.core.errors import DataError
from maskpolicy.data.taskfiles import sources

ROWS = [
    {"question": "Who wrote it?", "answer": "Ada", "where": "Rome", "note": "Ada wrote."},
    {"question": "Who built it?", "answer": "Bob|Robert", "where": "Oslo", "note": "Bob built."},
    {"question": "Who knows?", "answer": "", "where": "Oslo", "note": "Nobody."},
]
LABELS = {"labels": ("no", "yes")}


def write(folder, ending, rows=ROWS):
    for split in ("train", "test"):
        path = folder / f"{split}.{ending}"
        if ending == "parquet":
            pq.write_table(pa.Table.from_pylist(rows), path)
        elif ending == "jsonl":
            path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        else:
            sign = {"csv": ",", "tsv": "\t"}[ending]
            lines = [list(rows[0]), *(list(map(str, row.values())) for row in rows)]
            path.write_text("".join(f"{sign.join(line)}\n" for line in lines))
    return folder


def table(folder, name="table", **fields):
    return read(name, folder, fields=fields)


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
def test_columns_are_questions_and_answers(tmp_path, ending):
    first, second = table(write(tmp_path, ending), separator="|")
    assert (first.source, first.targets, first.context) == ("Who wrote it?", ("Ada",), None)
    assert second.targets == ("Bob", "Robert")


def test_other_columns_hold_group_and_context_and_a_list_several_answers(tmp_path):
    fields = {"question": "note", "answers": "question", "topic": "where", "passage": "note"}
    found = table(write(tmp_path, "csv"), **fields)
    assert groups("table", tmp_path, fields=fields) == ["Rome", "Oslo", "Oslo"]
    assert found[0].context == found[0].source == "Ada wrote."
    rows = [{"question": "Who?", "answer": ["Ada", "A. Lovelace", "", None]}]
    (tmp_path / "json").mkdir()
    (example,) = table(write(tmp_path / "json", "jsonl", rows))
    assert example.targets == ("Ada", "A. Lovelace")


def test_labels_are_those_that_are_named(tmp_path):
    rows = [{"text": "It is.", "label": "yes"}, {"text": "It is not.", "label": "no"}]
    found = table(write(tmp_path, "csv", rows), "labelled-table", **LABELS)
    assert [each.targets for each in found] == [("yes",), ("no",)]
    assert found[0].choices == ("no", "yes")
    with pytest.raises(DataError, match="'no' is not in `labels`"):
        table(tmp_path, "labelled-table", labels=("yes", "maybe"))


@pytest.mark.parametrize("answer", [{"text": ["Ada"]}, [["Ada"]], [{"text": "Ada"}]])
def test_a_cell_that_is_no_text_is_named(tmp_path, answer):
    folder = write(tmp_path, "jsonl", [{"question": "Who?", "answer": answer}])
    assert "column 'answer' must hold text, not" in refused(table, folder, error=DataError)
    pq.write_table(pa.table({"question": ["Who?"], "answer": [b"Ada"]}), folder / "x")
    (folder / "binary").mkdir()
    (folder / "x").rename(folder / "binary" / "test.parquet")
    assert "not b'Ada': write" in refused(table, folder / "binary", error=DataError)
    pq.write_table(pa.table({"text": [float("nan"), 2.5], "label": ["a", "b"]}), tmp_path / "x")
    (tmp_path / "x").rename(folder / "test.parquet")
    with pytest.raises(DataError, match="row 0: column 'text' is empty"):
        table(folder, "labelled-table", labels=("a", "b"), edition="parquet")


@pytest.mark.parametrize(
    ("name", "content", "fields", "message"),
    [
        ("table", "question,answer\nWho?,b\n", {"question": "q"}, r"has no column 'q' \(it has"),
        ("table", "question;answer\nWho?;Ada\n", {}, r"`answers: COLUMN` \(commas separate col"),
        ("table", "question,,,answer,answer\nWho?,,,a,b\n", {}, "two columns are called 'answer'"),
        ("table", "question,answer\nWho?,a\n ,b\n", {}, "line 3: column 'question' is empty"),
        ("labelled-table", "text,label\n,yes\n", LABELS, "line 2: column 'text' is empty"),
    ],
)
def test_what_a_table_lacks_is_named(tmp_path, name, content, fields, message):
    (tmp_path / "test.csv").write_text(content)
    refused(table, tmp_path, name, error=DataError, match=message, **fields)
    refused(read, "table", tmp_path, "train", error=DataError, match=r"has no train\.csv")


def test_rows_are_numbered_or_have_the_names_in_a_column(tmp_path, caplog):
    rows = [{"key": key, "question": "Who?", "answer": "Ada"} for key in (7, "b")]
    folder = write(tmp_path, "jsonl", rows)
    assert [each.id for each in table(folder)] == ["test-1", "test-2"]
    assert [each.id for each in table(folder, id="key")] == ["7", "b"]
    write(tmp_path, "jsonl", [*rows, rows[0]])
    assert len(table(folder, id="key")) == 3
    assert "1 rows have the id of an earlier row" in caplog.text


def test_a_dev_file_that_is_not_read_is_named(tmp_path, caplog):
    rows = [{**ROWS[0], "question": f"Who is {number}?"} for number in range(30)]
    write(tmp_path, "csv", rows)
    (tmp_path / "dev.csv").write_text((tmp_path / "train.csv").read_text())
    for split, times in (("train", 0), ("dev", 1)):
        read("table", tmp_path, split)
        assert caplog.text.count("dev.csv: is not read: a part of train.csv is dev") == times


def test_the_hub_is_refused_with_the_way_to_save_it_to_files():
    task = sources.task(block("table"))
    line = refused(sources.hub_config, task, "mine.yaml: tasks[0]", error=DataError)
    assert line.startswith("mine.yaml: tasks[0]: task 'table' is only read from files")
    assert "(train.csv, test.csv)" in line and "to_parquet('train.parquet')" in line
    with pytest.raises(DataError, match=r"\(train.tsv, test.tsv\)"):
        sources.hub_config(sources.task(block("table", {"edition": "tsv"})))
