"""Questions, or texts with labels, in the columns of a table of your own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from maskpolicy import DataError, Example, Json, task
from maskpolicy.data.taskfiles import alike, minimal_pairs

Format = Literal["auto", "csv", "tsv", "jsonl", "parquet"]
FACTS: dict[str, Any] = {
    "group": "own data",
    "files": {"train": "train.{edition}", "test": "test.{edition}"},
    "editions": get_args(Format)[1:],
}


@task("table", metric="exact_match", **FACTS)
@dataclass(frozen=True)
class Table:
    """Questions and their answers in columns of train and test files (CSV, TSV, JSON Lines, ..)."""

    question: str = "question"  # its column
    answers: str = "answer"  # the column of its answer, or of a list of answers
    separator: str = ""  # between the answers of a cell; empty: a cell is one answer
    passage: str = ""  # the column of what `context: true` gives; empty: there is none
    topic: str = ""  # the column of what rows of one group share; empty: a question or passage
    id: str = ""  # the column of a row's name in predictions; empty: rows are numbered
    edition: Format = "auto"  # the ending of the files; auto: the first that is there

    def example(self, row: Json) -> Example | None:
        """Map a row; None without an answer."""
        targets = _answers(row, self.answers, self.separator)
        if not targets:
            return None
        question = _text(row, self.question, "question")
        if not question:
            raise DataError(f"column {self.question!r} is empty")
        passage = _text(row, self.passage, "passage")
        group = _text(row, self.topic, "topic") or alike(passage or question)
        return Example(_text(row, self.id, "id"), group, question, targets, passage or None)


@task("labelled-table", kind="label", metric="accuracy", **FACTS)
@dataclass(frozen=True)
class LabelledTable:
    """Texts, or pairs of them, with labels, in columns of train and test files."""

    labels: tuple[str, ...]  # all labels
    text: str = "text"  # its column
    second: str = ""  # the column of the second text of a pair; empty: there is none
    answer: str = "label"  # the column of the label
    topic: str = ""  # the column of what rows of one group share; empty: a text
    id: str = ""  # the column of a row's name in predictions; empty: rows are numbered
    edition: Format = "auto"  # the ending of the files; auto: the first that is there

    def example(self, row: Json) -> Example | None:
        """Map a row; None without a label."""
        label = _text(row, self.answer, "answer")
        if not label:
            return None
        if label not in self.labels:
            raise DataError(f"column {self.answer!r}: {label!r} is not in `labels`")
        text, second = _text(row, self.text, "text"), _text(row, self.second, "second")
        if not text:
            raise DataError(f"column {self.text!r} is empty")
        group = _text(row, self.topic, "topic") or alike(text)
        name = _text(row, self.id, "id")
        return Example(name, group, text, (label,), second or None, self.labels)


@task("pairs", kind="pairs", metric="accuracy", **FACTS | {"files": {"test": "pairs.{edition}"}})
@dataclass(frozen=True)
class PairsTable:
    """Pairs of a better and a worse text in columns of a file, scored without fine-tuning."""

    good: str = "good"  # the column of the better text
    bad: str = "bad"  # the column of the other one
    before: str = ""  # the column of what both texts continue, which is not scored; empty: none
    topic: str = ""  # the column of what rows of one group share; empty: each is one
    slices: tuple[str, ...] = ()  # columns whose values predictions keep, for scores by slice
    id: str = ""  # the column of a row's name in predictions; empty: rows are numbered
    choose: minimal_pairs.Scored = "auto"  # how a text is scored
    edition: Format = "auto"  # the ending of the file; auto: the first that is there

    def example(self, row: Json) -> Example:
        """Map a row."""
        names = {field: getattr(self, field) for field in ("good", "bad", "before", "topic", "id")}
        cells = {field: _text(row, column, field) for field, column in names.items()}
        return minimal_pairs.pair(
            {names[side]: cells[side] for side in ("good", "bad")},
            (self.good, self.bad),
            group=cells["topic"],
            id=cells["id"],
            before=cells["before"],
            slices={column: _text(row, column, "slices") for column in self.slices},
        )


def _cell(row: Json, column: str, field: str) -> Json:
    """Return a cell; a DataError names the field that names the column."""
    if column not in row:
        columns = ", ".join(map(str, row))
        is_one = len(row) == 1 and any(sign in columns for sign in ";|\t")
        signs = " (commas separate columns of .csv, and tabs those of .tsv)" if is_one else ""
        raise DataError(
            f"has no column {column!r} (it has {columns}): name it by `{field}: COLUMN`{signs}"
        )
    return row[column]


def _text(row: Json, column: str, field: str) -> str:
    """Return the text in a cell, "" if no column is named."""
    return _written(_cell(row, column, field), column) if column else ""


def _written(value: Json, column: str) -> str:
    """Return a text, number or boolean as text; "" for null and NaN."""
    if isinstance(value, dict | list | tuple | bytes):
        raise DataError(f"column {column!r} must hold text, not {value!r:.60}: write it as text")
    return "" if value is None or value != value else str(value).strip()


def _answers(row: Json, column: str, separator: str) -> tuple[str, ...]:
    """Return the answers in a cell: a list, or a text that may hold several."""
    cell = _cell(row, column, "answers")
    if not isinstance(cell, list | tuple):
        text = _written(cell, column)
        cell = text.split(separator) if separator else [text]
    return tuple(filter(None, (_written(answer, column) for answer in cell)))
