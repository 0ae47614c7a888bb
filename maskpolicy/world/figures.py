"""Figures of a written world: how much text, and how much of it is ever asked for."""

from __future__ import annotations

import json
from pathlib import Path

from maskpolicy.errors import DataError
from maskpolicy.types import Json

CORPORA = ("general", "intermediate")
QUESTIONS = {
    "triviaqa": "qa/wikipedia-{}.json",
    "zsre": "structured_zeroshot-{}-kilt.jsonl",
    "wow": "wow-{}-kilt.jsonl",
}


def figures(folder: Path) -> Json:
    """Return documents, subjects, words, mentions and asked share by corpus, questions by task.

    A mention is a distinct gold entity of a document; the official dev file is the split "test".
    """
    record = Path(folder) / "world.json"
    if not record.is_file():
        raise DataError(f"{record}: no such file: write a world there first")
    rows = json.loads(record.read_text(encoding="utf-8"))["rows"]
    return {
        "corpora": {name: _corpus(Path(folder) / f"{name}.jsonl") for name in CORPORA},
        "tasks": {
            task: {"train": rows[path.format("train")], "test": rows[path.format("dev")]}
            for task, path in QUESTIONS.items()
        },
    }


def _corpus(path: Path) -> Json:
    documents = words = mentions = asked = 0
    titles: set[str] = set()
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            documents += 1
            words += len(row["text"].split())
            titles.add(row["title"])
            mentions += len({row["text"][start:end] for start, end, _ in row["entities"]})
            asked += len({row["text"][start:end] for start, end, _ in row["asked"]})
    return {
        "documents": documents,
        "subjects": len(titles),
        "words": words,
        "mentions": mentions,
        "asked": asked,
        "asked_share": asked / mentions if mentions else 0.0,
    }
