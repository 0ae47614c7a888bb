"""Read the documents of a corpus: from the embedded world, files or a Hub dataset."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from maskpolicy import hub
from maskpolicy.config.experiment import WORLD, CorpusBlock
from maskpolicy.corpus.passages import FIXED, Document
from maskpolicy.datafiles import fields, readers
from maskpolicy.datafiles.readers import Layout
from maskpolicy.datafiles.rows import Malformed, Row
from maskpolicy.errors import ConfigError, DataError
from maskpolicy.types import Json

_GOLD = {"gold_entities": "entities", "asked": "asked"}  # column: key of a world's document


def identify(corpus: CorpusBlock, digest: Callable[[Path], str]) -> dict[str, Json]:
    """Return all that a corpus's passages depend on, with digests in place of paths.

    Files keep their names, which decide how they are read and begin the ids of their documents. The
    revision of a Hub dataset becomes a commit. Raises ConfigError or DataError for what cannot be
    read.
    """
    block: dict[str, Json] = {"words": corpus.words, "limit": corpus.limit}
    if corpus.name == WORLD:
        if corpus.columns:
            raise ConfigError(f"corpus.columns: the world has {', '.join(_GOLD)}: leave it out")
        return {"name": WORLD, "part": "intermediate", **block}
    _check_names(corpus)
    block |= {"column": corpus.column, "columns": list(corpus.columns)}
    block["on_error"] = corpus.on_error
    if corpus.hub is None:
        paths = [Path(path) for path in corpus.files]
        _stems(path.name for path in paths)
        if any(readers.has_lines(path.name) for path in paths):
            block["headings"] = False  # WikiText's are no documents
        return {"files": [[path.name, digest(path)] for path in paths], **block}
    block |= {"subset": corpus.subset, "split": corpus.split, "headings": False}
    folder = Path(corpus.hub)
    if folder.is_dir():
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        found = [[path.relative_to(folder).as_posix(), digest(path)] for path in paths]
        return {"hub": "", "revision": None, "files": found, **block}
    commit = hub.commit("dataset", corpus.hub, corpus.revision)
    return {"hub": corpus.hub, "revision": commit, **block}


def where(corpus: CorpusBlock) -> dict[str, Json]:
    """Return the corpus's location and how it is fetched; neither is part of its identity."""
    lies = {"files": list(corpus.files), "hub": corpus.hub, "stream": corpus.stream}
    return {**lies, "revision": corpus.revision}


def read(
    block: Json,
    inputs: Mapping[str, Path],
    local: Mapping[str, Json],
    malformed: Malformed | None = None,
) -> Iterator[Document]:
    """Yield the documents of a corpus; `inputs["world"]` is the world's folder.

    Rows without text are passed over. `malformed` decides about rows that cannot be used; it is
    that of the block if it is left out. Raises DataError for such a row unless they are skipped,
    and when there is no text.
    """
    if block.get("name") == WORLD:
        found = world(inputs["world"] / f"{block['part']}.jsonl")
        yield from islice(found, block["limit"] or None)
        return
    malformed = malformed or malformed_rows(block)
    number = 0
    try:
        for document in islice(_documents(block, local, malformed), block["limit"] or None):
            number += 1
            yield document
    finally:
        malformed.warn("corpus")
    if not number:
        raise DataError(_no_text(block, local, malformed))


def malformed_rows(block: Json) -> Malformed:
    """Return what a corpus does with rows that cannot be used."""
    return Malformed("corpus.on_error: skip", block.get("on_error") == "skip")


def _no_text(block: Json, local: Mapping[str, Json], malformed: Malformed) -> str:
    """Return why a corpus is of no use, and what to do."""
    bad = f" ({malformed.count} malformed, {malformed.first[0]})" if malformed.count else ""
    name = local["hub"] if "hub" in block else ", ".join(local["files"])
    if "hub" not in block and all(map(readers.is_plain, local["files"])):
        return f"{name}: the corpus holds no text{bad}: name files that hold some"
    key = block["column"]
    return (
        f"{name}: the corpus holds no text in {key!r}{bad}: name another key (corpus.column=KEY), "
        "or files that hold some"
    )


def world(path: Path) -> Iterator[Document]:
    """Yield the documents of a corpus of the embedded world, with its gold columns."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            columns = {name: [span[:2] for span in row[key]] for name, key in _GOLD.items()}
            yield Document(row["id"], row["text"], columns)


def _documents(block: Json, local: Mapping[str, Json], malformed: Malformed) -> Iterator[Document]:
    for prefix, rows in _sources(block, local):
        for row in rows:
            try:
                document = _document(row, prefix, block["column"], block["columns"])
            except DataError as error:
                malformed.add(row, str(error))
            else:
                if document is not None:
                    yield document


def _sources(block: Json, local: Mapping[str, Json]) -> Iterator[tuple[str, Iterator[Row]]]:
    """Yield, for each file or for the Hub dataset, the prefix of its ids and its rows.

    Rows of Parquet and of the Hub may be single lines, as in WikiText: headings are left out.
    """
    column, keys = block["column"], [block["column"], *block["columns"]]
    if "hub" in block:
        place = (block["subset"], block["split"], block["revision"], local["stream"])
        yield (
            block["split"],
            _without_headings(readers.hub_rows(local["hub"], keys, *place), column),
        )
        return
    paths = [Path(path) for path in local["files"]]
    for path, prefix in zip(paths, _stems(path.name for path in paths), strict=True):
        rows = readers.rows(path, Layout(keys=keys))
        is_by_line = readers.has_lines(path.name)
        yield prefix, _without_headings(rows, column) if is_by_line else rows


def _without_headings(rows: Iterator[Row], column: str) -> Iterator[Row]:
    return (row for row in rows if not readers.is_heading((row.value or {}).get(column)))


def _stems(names: Iterator[str]) -> list[str]:
    """Return the prefix of each file's document ids: its name without endings.

    Files of the same name also get their index in the list.
    """
    stems = [readers.stem(name) for name in names]
    return [
        f"{index}/{stem}" if stems.count(stem) > 1 else stem for index, stem in enumerate(stems)
    ]


def _document(row: Row, prefix: str, column: str, columns: Sequence[str]) -> Document | None:
    """Return the document of a row, or None if it has no text; raises DataError without a place."""
    if row.error:
        raise DataError(row.error)
    text = row.value.get(column)
    if isinstance(text, str) and not text.strip():
        return None
    text = fields.text(row.value, column)
    fields.check(text, f"key {column!r}")
    spans = {name: _spans(row.value, name, len(text)) for name in columns}
    return Document(f"{prefix}:{row.number}", text, spans)


def _spans(row: Mapping[str, Any], name: str, length: int) -> list[list[int]]:
    """Return the [start, end] characters in a column; null means [], further items are ignored."""
    if name not in row:
        raise DataError(f"key {name!r} is missing")
    value = row[name] if row[name] is not None else []
    if not isinstance(value, list):
        raise DataError(f"key {name!r} must be a list of [start, end] characters")
    for item in value:
        bounds = item[:2] if isinstance(item, list) else []
        if len(bounds) < 2 or any(type(bound) is not int for bound in bounds):
            raise DataError(f"key {name!r} must be a list of [start, end] characters")
        if not 0 <= bounds[0] < bounds[1] <= length:
            raise DataError(f"key {name!r}: {bounds} is no range of a text of {length} characters")
    return [item[:2] for item in value]


def _check_names(corpus: CorpusBlock) -> None:
    for name in corpus.columns:
        if name in FIXED or name == corpus.column:
            raise ConfigError(f"corpus.columns: {name!r} is taken: rename that column")
