"""Where the documents of a corpus come from: the embedded world, files, a Hub dataset."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from itertools import islice
from pathlib import Path

from maskpolicy.corpus import Document
from maskpolicy.errors import DataError
from maskpolicy.experiment import Corpus
from maskpolicy.types import Json

_GOLD = {"gold_entities": "entities", "asked": "asked"}  # column: key of a world's document


def identify(corpus: Corpus, digest: Callable[[Path], str]) -> dict[str, Json]:
    """Return what a corpus's passages depend on: its block, with digests in place of paths."""
    block = asdict(corpus)
    block["files"] = [digest(Path(path)) for path in corpus.files]
    block["part"] = "intermediate"
    return block


def where(corpus: Corpus) -> dict[str, Json]:
    """Return the paths of a corpus, which are not part of its identity."""
    return {"files": list(corpus.files)}


def read(block: Json, inputs: Mapping[str, Path], local: Mapping[str, Json]) -> Iterator[Document]:
    """Yield the documents of a corpus; `inputs["world"]` is the world's folder."""
    if block["name"] == "world":
        found = world(inputs["world"] / f"{block['part']}.jsonl")
        return islice(found, block["limit"] or None)
    raise DataError(f"corpus {block}: not readable")


def world(path: Path) -> Iterator[Document]:
    """Yield the documents of a corpus of the embedded world, with its gold columns."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            columns = {name: [span[:2] for span in row[key]] for name, key in _GOLD.items()}
            yield Document(row["id"], row["text"], columns)
