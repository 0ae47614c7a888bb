"""Find the contexts that learned policies are fitted on: a text per example, with its answers."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskpolicy.core.errors import DataError
from maskpolicy.core.types import Example, Json
from maskpolicy.data.datafiles import fields
from maskpolicy.data.datafiles.rows import Row
from maskpolicy.data.taskfiles import examples
from maskpolicy.data.taskfiles.evidence import occurrence, occurrences
from maskpolicy.experiment.definition import TaskBlock
from maskpolicy.plugins import hooks

_log = logging.getLogger(__name__)
SPLITS = ("train", "dev")  # a policy never sees the test split
DEEP = 100  # number of top-ranked passages that retrieval searches for an answer


@dataclass
class _Read:
    """An example, the text that a policy reads, and the answers that count in it."""

    example: Example
    text: str
    answers: tuple[str, ...]


def find_contexts(
    block: TaskBlock, split: str, folder: Path, corpus: Sequence[str] = ()
) -> tuple[list[Json], dict[str, int]]:
    """Return the contexts of a task's train or dev split, and counts for the report.

    A row is {"id", "group", "source", "targets", "context", "answers": [[start, end], ..]}; answers
    are characters [start, end) of the context. Every occurrence of an answer counts (compared as
    normalised text), except those inside an occurrence of a longer alias. Contexts without an
    answer are returned too; examples without a context are only counted. If the task allows
    retrieval, missing contexts are retrieved from `corpus`. Raises DataError as `examples.load`
    does, and if no train example has a context.
    """
    reading = examples.opened(block, split, folder)
    read = _texts(reading)
    missing = [one for one in read if not one.text.strip()]
    if reading.task.facts.retrieval and missing and len(corpus):
        _retrieve(missing, corpus)
    rows = [_row(one) for one in read if one.text.strip()]
    if not rows and split == "train":
        raise DataError(
            f"{reading.source.name}: no {split} example of task {block.name!r} has a context: "
            "put the task's evidence or knowledge source beside the file, or leave the task out of "
            "train_on"
        )
    counts = dict(
        examples=len(read),
        without_context=len(read) - len(rows),
        retrieved=sum(bool(one.text.strip()) for one in missing),
        without_answer=sum(not row["answers"] for row in rows),
        answers=sum(len(row["answers"]) for row in rows),
        malformed=reading.malformed.count,
    )
    silent, bare = counts["without_answer"], counts["without_context"]
    if bare or silent:
        _log.info(
            f"task {block.name}: of {len(read)} {split} examples {bare} have no context, and the "
            f"contexts of {silent} hold no answer"
        )
    return rows, counts


def find_labelled(
    block: TaskBlock, split: str, folder: Path
) -> tuple[list[Example], dict[str, Json]]:
    """Return the examples of a label task's train or dev split, and counts for the report.

    Raises DataError as `examples.read_split` does, and for a task with numbers in place of labels.
    """
    found = examples.read_split(block, split, folder, contexts=False)
    if not all(example.choices for example in found.examples):
        raise DataError(
            f"task {block.name!r} has numbers, no labels: a policy cannot learn from it: name "
            "another label task in train_on"
        )
    counts: dict[str, Json] = dict(
        examples=len(found.examples),
        unlabelled=found.unlabelled,
        malformed=found.malformed,
        labels=dict(sorted(Counter(one.targets[0] for one in found.examples).items())),
    )
    return found.examples, counts


def _texts(reading: examples.Reading) -> list[_Read]:
    own_text = hooks.READING.of(reading.task.plugin)
    if own_text is None:
        examples.look_up(reading)
        return [_Read(one, one.context or "", one.targets) for _, one in reading.kept]

    def read(row: Row, example: Example) -> _Read:
        text, answers = own_text(row.value)
        fields.check(text, "the text to read")
        return _Read(example, text, answers)

    return reading.each(read)


def _row(read: _Read) -> Json:
    return {
        "id": read.example.id,
        "group": read.example.group,
        "source": read.example.source,
        "targets": list(read.example.targets),
        "context": read.text,
        "answers": _outermost(occurrences(read.text, read.answers)),
    }


def _outermost(spans: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Drop spans inside other spans: "Rome" in "City of Rome", if both are aliases."""
    kept: list[list[int]] = []
    for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
        if not kept or end > kept[-1][1]:
            kept.append([start, end])
    return kept


def _retrieve(read: Sequence[_Read], corpus: Sequence[str]) -> None:
    """Set each text to the best passage (BM25) that contains an answer and words of its source."""
    import bm25s

    def words(texts: Sequence[str]) -> Any:
        return bm25s.tokenize(list(texts), show_progress=False, return_ids=False)

    index = bm25s.BM25()
    index.index(words(corpus), show_progress=False)
    asked = words([one.example.source for one in read])
    found, scores = index.retrieve(asked, k=min(DEEP, len(corpus)), show_progress=False)
    for one, places, worth in zip(read, found.tolist(), scores.tolist(), strict=True):
        shared = (corpus[place] for place, score in zip(places, worth, strict=True) if score > 0)
        one.text = next((text for text in shared if occurrence(text, one.answers)), "")
