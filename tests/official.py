"""Rows of tasks in their official formats: written to files, and read by the built-in tasks."""

import gzip
import json
from pathlib import Path
from typing import Any

from maskpolicy.core.types import Example
from maskpolicy.data.taskfiles import examples
from maskpolicy.experiment.definition import TaskBlock


def block(task: str, fields: dict[str, Any] | None = None, **keys: Any) -> TaskBlock:
    return TaskBlock(task, task, fields or {}, **keys)


def write(path: Path, *rows: Any) -> Path:
    """Write rows (texts as they are) to JSON Lines, or one value to .json; pack .gz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    content = "".join(f"{text}\n" for text in texts).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def rows_of(path: Path) -> list[Any]:
    """Return the rows of a file: lines of JSON, or a JSON list, also of TriviaQA or ROPES."""
    text = path.read_text("utf-8")
    if path.suffix == ".jsonl" or "knowledgesource" in path.name:
        return [json.loads(line) for line in text.splitlines()]
    whole = json.loads(text)
    return whole if isinstance(whole, list) else whole.get("Data") or whole["data"]


def split(task: str, folder: Path, of: str = "test", **keys: Any) -> examples.Split:
    return examples.read_split(block(task, **keys), of, folder)


def read(task: str, folder: Path, of: str = "test", **keys: Any) -> list[Example]:
    return split(task, folder, of, **keys).examples


def groups(task: str, folder: Path, **keys: Any) -> list[str]:
    return [example.group for example in read(task, folder, **keys)]


def files(task: str, folder: Path, **keys: Any) -> list[str]:
    """Return the names of the files that a test split is read from."""
    return [path.name for path in examples.files(block(task, **keys), "test", folder)]


def carved(task: str, folder: Path) -> tuple[list[Example], list[Example]]:
    """Return train and a dev that is carved from it; they share no group."""
    train, dev = read(task, folder, "train"), read(task, folder, "dev")
    assert train and dev and not {one.group for one in train} & {one.group for one in dev}
    return train, dev
