"""Tasks in tables of the user's own: no code is needed where columns suffice."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maskpolicy.config.experiment import TaskBlock
from maskpolicy.errors import DataError
from maskpolicy.formats import sources
from maskpolicy.formats.examples import read_examples

ROWS = [
    {"question": "Who wrote it?", "answer": "Ada", "where": "Rome", "note": "Ada wrote."},
    {"question": "Who built it?", "answer": "Bob|Robert", "where": "Oslo", "note": "Bob built."},
    {"question": "Who knows?", "answer": "", "where": "Oslo", "note": "Nobody."},
]


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


def block(name="table", **fields):
    return TaskBlock(name, name, fields)


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
def test_columns_are_questions_and_answers(tmp_path, ending):
    first, second = read_examples(block(separator="|"), "test", write(tmp_path, ending))
    assert (first.source, first.targets, first.context) == ("Who wrote it?", ("Ada",), None)
    assert second.targets == ("Bob", "Robert")


def test_other_columns_hold_group_and_context(tmp_path):
    fields = {"question": "note", "answers": "question", "topic": "where", "passage": "note"}
    found = read_examples(block(**fields), "test", write(tmp_path, "csv"))
    assert [each.group for each in found] == ["Rome", "Oslo", "Oslo"]
    assert found[0].context == found[0].source == "Ada wrote."


def test_a_list_of_answers_is_several(tmp_path):
    rows = [{"question": "Who?", "answer": ["Ada", "A. Lovelace", "", None]}]
    (found,) = read_examples(block(), "test", write(tmp_path, "jsonl", rows))
    assert found.targets == ("Ada", "A. Lovelace")


def test_dev_is_carved_from_train(tmp_path):
    rows = [{"question": f"Who is {number}?", "answer": "Ada"} for number in range(40)]
    write(tmp_path, "csv", rows)
    dev, train = (read_examples(block(), split, tmp_path) for split in ("dev", "train"))
    assert len(dev) + len(train) == 40
    assert 0 < len(dev) < len(train)


def test_labels_are_those_that_are_named(tmp_path):
    rows = [{"text": "It is.", "label": "yes"}, {"text": "It is not.", "label": "no"}]
    found = read_examples(
        block("labelled-table", labels=("no", "yes")), "test", write(tmp_path, "csv", rows)
    )
    assert [each.targets for each in found] == [("yes",), ("no",)]
    assert found[0].choices == ("no", "yes")
    with pytest.raises(DataError, match="'no' is not in `labels`"):
        read_examples(block("labelled-table", labels=("yes", "maybe")), "test", tmp_path)


def test_a_column_that_is_not_there_is_named_with_its_field(tmp_path):
    with pytest.raises(DataError, match=r"line 2: has no column 'q' \(it has question, answer"):
        read_examples(block(question="q"), "test", write(tmp_path, "csv"))
    (tmp_path / "test.csv").write_text("question;answer\nWho?;Ada\n")
    with pytest.raises(DataError, match=r"`answers: COLUMN` \(commas separate columns of \.csv"):
        read_examples(block(), "test", tmp_path)
    with pytest.raises(DataError, match=r"train\.csv or "):
        read_examples(block(), "train", tmp_path / "nowhere")


def test_rows_are_numbered_or_have_the_names_in_a_column(tmp_path, caplog):
    rows = [
        {"key": 7, "question": "Who?", "answer": "Ada"},
        {"key": "b", "question": "Why?", "answer": "-"},
    ]
    folder = write(tmp_path, "jsonl", rows)
    assert [each.id for each in read_examples(block(), "test", folder)] == ["test-1", "test-2"]
    assert [each.id for each in read_examples(block(id="key"), "test", folder)] == ["7", "b"]
    write(tmp_path, "jsonl", [*rows, rows[0]])
    assert len(read_examples(block(id="key"), "test", folder)) == 3
    assert "1 rows have the id of an earlier row" in caplog.text


def test_an_empty_question_or_text_is_refused_with_its_line(tmp_path):
    rows = [{"question": "Who?", "answer": "Ada"}, {"question": " ", "answer": "Ada"}]
    with pytest.raises(DataError, match="line 3: column 'question' is empty"):
        read_examples(block(), "test", write(tmp_path, "csv", rows))
    rows = [{"text": "", "label": "yes"}]
    with pytest.raises(DataError, match="line 2: column 'text' is empty"):
        read_examples(
            block("labelled-table", labels=("yes", "no")), "test", write(tmp_path, "csv", rows)
        )


def test_the_hub_is_refused_with_the_way_to_save_it_to_files():
    with pytest.raises(DataError) as error:
        sources.hub_config(sources.task(block()), "mine.yaml: tasks[0]")
    line = str(error.value)
    assert line.startswith("mine.yaml: tasks[0]: task 'table' is read from files alone")
    assert "(train.csv, test.csv)" in line and "to_parquet('train.parquet')" in line
    tsv = sources.task(block(edition="tsv"))
    with pytest.raises(DataError, match=r"\(train.tsv, test.tsv\)"):
        sources.hub_config(tsv)
