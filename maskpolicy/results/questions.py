"""What the test examples of each task ask, kept beside the answers that results/ are made of."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from maskpolicy.errors import DataError
from maskpolicy.files import slug, write_file
from maskpolicy.graph.nodes import Stage
from maskpolicy.results.predictions import lines
from maskpolicy.store.artifacts import Store


def path(folder: Path, task: str) -> Path:
    """Return where the questions of a task lie, if they are known."""
    return folder / "questions" / f"{slug(task)}.jsonl"


def save(cells: Mapping[tuple[str, str, int], Stage], store: Store, folder: Path) -> None:
    """Write questions/*.jsonl, ids and sources, for every task whose examples are in the store.

    Raises StoreError.
    """
    stages: Mapping[str, Stage] = {task: stage for (_, task, _), stage in cells.items()}
    for task, stage in stages.items():
        examples = stage.inputs.get("examples")
        if examples is not None and store.peek(examples.key) is not None:
            write_file(path(folder, task), _text(store.path(examples.key) / "test.jsonl").encode())


def read(folder: Path, task: str, wanted: set[str]) -> dict[str, str]:
    """Return the sources of some examples by id, as far as they are known; raises DataError."""
    place = path(folder, task)
    found = {}
    for number, line in lines(place) if place.is_file() else ():
        try:
            row = json.loads(line)
            if row["id"] in wanted:
                found[row["id"]] = str(row["source"])
        except (KeyError, TypeError, ValueError):
            raise DataError(f"{place}, line {number}: not a question: run it again") from None
    return found


def _text(file: Path) -> str:
    with file.open(encoding="utf-8") as opened:
        rows = [json.loads(line) for line in opened]
    kept = [{"id": row["id"], "source": row["source"]} for row in rows]
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in kept)
