"""Look up contexts in DPR's retriever files (Karpukhin et al. 2020): passages for each question."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from maskpolicy.core.errors import DataError
from maskpolicy.core.types import Example, Json
from maskpolicy.data.corpus.segmentation import ENGLISH
from maskpolicy.data.datafiles import fields, readers
from maskpolicy.data.datafiles.rows import matching
from maskpolicy.data.taskfiles.evidence import occurrence


def companions(name: str, beside: Sequence[Path], splits: Sequence[str]) -> list[Path]:
    """Return the files biencoder-NAME-SPLIT.json of the first folder with any of them."""
    for folder in beside:
        files = (f"biencoder-{name}-{split}.json" for split in splits)
        if present := [path for file in files for path in matching(folder, file)]:
            return present
    return []


def passages(
    questions: Iterable[str], paths: Sequence[Path]
) -> Callable[[Json, Example], str | None]:
    """Return a function (row, example) -> the first positive passage with an answer, or None.

    Questions are compared without case, repeated blanks and question mark. The files are read once
    (NQ's train file has 8 GB); memory only holds passages of `questions`. A malformed row raises
    DataError also with `on_error: skip`, which is for the task's rows.
    """
    wanted = {_plain(question) for question in questions}
    positive: dict[str, list[str]] = {}
    for row in (row for path in paths for row in readers.rows(path)):
        try:
            if row.error:
                raise DataError(row.error)
            question = _plain(fields.text(row.value, "question"))
            if question in wanted:
                contexts = fields.records(row.value, "positive_ctxs")
                positive.setdefault(question, []).extend(fields.text(c, "text") for c in contexts)
        except DataError as error:
            raise DataError(f"{row.place}: {error}") from error

    def find(row: Json, example: Example) -> str | None:
        texts = positive.get(_plain(example.source), [])
        held = (text.strip() for text in texts if occurrence(text, example.targets, ENGLISH))
        return next(held, None)

    return find


def _plain(question: str) -> str:
    return fields.alike(question).rstrip("? ")
