"""The predictions of a cell, with a score and a group for each test example, and the questions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskpolicy.core.errors import DataError
from maskpolicy.core.files import slug, write_file
from maskpolicy.core.types import Json
from maskpolicy.leaderboard.results.cell import STEP, Result
from maskpolicy.pipeline.graph.nodes import Stage
from maskpolicy.pipeline.store.artifacts import Store

_CLOSE = 1e-6  # tolerance between the stored mean and that of the examples


@dataclass(frozen=True, eq=False)
class CellAnswers:
    """The scores of one cell's examples, in the order of the test split."""

    examples: str  # digest of ids and groups: equal if and only if the examples are the same
    groups: NDArray[np.int32]  # (n,) group of each example, numbered by first appearance
    scores: NDArray[np.float32]  # (n,) in [0, 1]


def read_answers(result: Result, path: Path | None = None) -> CellAnswers | None:
    """Read the predictions of a cell, by default `result.answers`; None if there is no file.

    Raises DataError for a truncated file, or if its scores do not agree with `result`.
    """
    path = path or result.answers
    if result.metrics is None or not path.is_file():
        return None
    cell = answers(path)
    scores = cell.scores.astype(np.float64)
    mean = float(np.mean(scores)) if len(scores) else 0.0
    total = result.metrics
    stored = total.score if total.mean is None else total.mean
    if len(scores) != total.n or abs(mean - stored) > _CLOSE:
        raise DataError(
            f"{path}: {len(scores)} answers that score {mean:.4f}, but its result has {total.n} "
            f"answers and {stored:.4f}: run the experiment again"
        )
    return cell


def read_anywhere(cell: Result, store: Store) -> CellAnswers | None:
    """Read a cell's predictions from its run's folder, or from the store for a checkpoint.

    None if there is no file; raises DataError as `read_answers`.
    """
    if STEP not in cell.config:
        return read_answers(cell)
    key = cell.stage_key("evaluate")
    path = None if key is None else store.file(key, "predictions.jsonl")
    return None if path is None else read_answers(cell, path)


def answers(path: Path) -> CellAnswers:
    """Read a file of predictions; raises DataError if it is truncated."""
    known = hashlib.sha256()
    numbers: dict[str, int] = {}
    groups, scores = [], []
    for row in rows(path):
        groups.append(numbers.setdefault(row["group"], len(numbers)))
        scores.append(row["score"])
        known.update(json.dumps([row["id"], row["group"]]).encode())
    return CellAnswers(known.hexdigest(), np.array(groups, np.int32), np.array(scores, np.float32))


def rows(path: Path) -> Iterator[dict[str, Json]]:
    """Yield the rows of a file of predictions; raises DataError with the line of a bad row."""
    for number, line in lines(path):
        yield parse(path, number, line)


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (number from 1, line) for each line of a file; raises DataError."""
    try:
        with path.open("rb") as file:
            yield from enumerate(file, 1)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error


def parse(path: Path, number: int, line: bytes) -> dict[str, Json]:
    """Parse one line of a file of predictions; raises DataError."""
    try:
        row: dict[str, Json] = json.loads(line)
        whole = isinstance(row["id"], str) and isinstance(row["group"], str)
        if not (whole and 0 <= row["score"] <= 1 and isinstance(row["prediction"], str)):
            raise ValueError
    except (KeyError, TypeError, ValueError, RecursionError):
        raise DataError(
            f"{path}, line {number}: truncated, or not written by `maskpolicy run`: run the "
            "experiment again"
        ) from None
    return row


def questions_file(folder: Path, task: str) -> Path:
    """Return where a run's folder holds the questions of a task, if it does."""
    return folder / "questions" / f"{slug(task)}.jsonl"


def save_questions(cells: Mapping[tuple[str, str, int], Stage], store: Store, folder: Path) -> None:
    """Write ids and sources to questions/*.jsonl for each task whose examples are in the store.

    Raises StoreError if a file cannot be written.
    """
    stages: Mapping[str, Stage] = {task: stage for (_, task, _), stage in cells.items()}
    for task, stage in stages.items():
        examples = stage.inputs.get("examples")
        path = None if examples is None else store.file(examples.key, "test.jsonl")
        if path is None:
            continue
        rows = []
        for _, line in lines(path):
            row = json.loads(line)
            question = {"id": row["id"], "source": row["source"]}
            rows.append(f"{json.dumps(question, ensure_ascii=False)}\n")
        write_file(questions_file(folder, task), "".join(rows).encode())


def read_questions(folder: Path, task: str, wanted: set[str]) -> dict[str, str]:
    """Return the sources of the `wanted` examples by id, if they are stored; raises DataError."""
    path = questions_file(folder, task)
    found = {}
    for number, line in lines(path) if path.is_file() else ():
        try:
            row = json.loads(line)
            if row["id"] in wanted:
                found[row["id"]] = str(row["source"])
        except (KeyError, TypeError, ValueError, RecursionError):
            raise DataError(f"{path}, line {number}: not a question: run it again") from None
    return found
