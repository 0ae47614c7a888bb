"""Figures of a written world: how much text, and how much of it is ever asked for."""

from __future__ import annotations

import json
from pathlib import Path

from maskpolicy.errors import DataError
from maskpolicy.types import Json
from maskpolicy.world.create import CORPORA, FILES, SITUATIONS
from maskpolicy.world.settings import RECORD
from maskpolicy.world.squad import V2, Squad


def figures(folder: Path) -> Json:
    """Return figures by corpus (documents, facts, asked share ..) and questions by task.

    A fact is what one subject's entries say of one asked relation; a mention is a distinct gold
    entity of a document, and asked if it answers a question.
    """
    record = Path(folder) / RECORD
    if not record.is_file():
        raise DataError(f"{record}: no such file: write a world there first")
    written = json.loads(record.read_text(encoding="utf-8"))
    rows, settings = written["rows"], written["settings"]
    corpora = [name for name in CORPORA if name != SITUATIONS or settings.get(SITUATIONS)]

    def questions(name: str) -> int:
        path = Path(folder) / "tasks" / name
        return _asked(path) if name in (*Squad.files, *V2) else rows[name]

    return {
        "corpora": {name: _corpus(Path(folder) / f"{name}.jsonl") for name in corpora},
        "tasks": {
            task: {"train": questions(train), "test": questions(test)}
            for task, (train, test) in FILES.items()
            if train in rows
        },
    }


def _asked(path: Path) -> int:
    """Return the number of questions in one of SQuAD's files, whose rows are whole articles."""
    with path.open(encoding="utf-8") as lines:
        return sum(line.count('"question": ') for line in lines)


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
