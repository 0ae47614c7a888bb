"""Figures of a written world: how much text, and how much of it is ever asked for."""

from __future__ import annotations

import json
from pathlib import Path

from maskpolicy.errors import DataError
from maskpolicy.types import Json
from maskpolicy.world.writing import TASKS

CORPORA = ("general", "intermediate")


def figures(folder: Path) -> Json:
    """Return figures by corpus (documents, facts, asked share ..) and questions by task.

    A fact is what one subject's entries say of one asked relation; a mention is a distinct gold
    entity of a document, and asked if it answers a question.
    """
    record = Path(folder) / "world.json"
    if not record.is_file():
        raise DataError(f"{record}: no such file: write a world there first")
    rows = json.loads(record.read_text(encoding="utf-8"))["rows"]
    return {
        "corpora": {name: _corpus(Path(folder) / f"{name}.jsonl") for name in CORPORA},
        "tasks": {
            task.name: dict(zip(("train", "test"), map(rows.get, task.files), strict=True))
            for task in TASKS
            if task.files[0] in rows
        },
    }


def _corpus(path: Path) -> Json:
    documents = words = mentions = asked = 0
    titles: set[str] = set()
    facts: set[tuple[str, str]] = set()
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            documents += 1
            words += len(row["text"].split())
            titles.add(row["title"])
            named = {row["text"][start:end] for start, end, _ in row["entities"]}
            mentions += len(named)
            asked += len(named & {row["text"][start:end] for start, end, _ in row["asked"]})
            facts |= {(row["title"], relation) for _, _, relation in row["asked"]}
    return {
        "documents": documents,
        "subjects": len(titles),
        "words": words,
        "facts": len(facts),
        "mentions": mentions,
        "asked": asked,
        "asked_share": asked / mentions if mentions else 0.0,
    }
