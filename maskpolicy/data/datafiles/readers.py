"""The one reader of rows: files of every format, by their names, and datasets of the Hub.

A new file format is a function that yields rows, and its line in the table at the end.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, TypeAlias

from maskpolicy.core import hub
from maskpolicy.core.errors import ConfigError, DataError
from maskpolicy.core.types import Json
from maskpolicy.data.datafiles import fields
from maskpolicy.data.datafiles.formats import csv_rows, enclosed_items, list_items, tsv_rows
from maskpolicy.data.datafiles.rows import (
    Layout,
    Row,
    Unit,
    check_keys,
    opened,
    text_lines,
    ungzipped,
)

_BLOCK = 1 << 20  # characters; a longer block of plain text is split after a line
_BATCH = 256  # rows of Parquet that are decoded at once
_HEADING = re.compile(r"\s*(?:= )+(?!=).*\S(?: =)+\s*")  # WikiText's " = = Early life = = "
_SECTION, _BULLET = "Section::::", re.compile(r"BULLET::::-?\s*")  # KILT's markers
_ANY = Layout()

Reader: TypeAlias = Callable[[IO[bytes], Path, Layout], Iterator[Row]]


def rows(path: Path, layout: Layout = _ANY) -> Iterator[Row]:
    """Yield the rows of a file in the format of its name; text may begin with a BOM.

    A row that cannot be parsed has an `error` instead of a value. Only a .json file with a
    `layout.at` is read whole. Raises ConfigError for an unknown format, and DataError for a file
    that cannot be read at all, or that lacks one of `layout.keys` in all rows.
    """
    read, _ = _reader(path.name)
    with opened(path) as stream:
        yield from read(stream, path, layout)


def hub_rows(
    name: str,
    keys: Sequence[str] = (),
    subset: str | None = None,
    split: str = "train",
    revision: str | None = None,
    stream: bool = False,
    instead: str = "name files",
) -> Iterator[Row]:
    """Yield the rows of a Hub dataset (or of a local folder laid out as one).

    `keys` are the keys to read of each row (empty: all). With `stream`, only the rows that are read
    are downloaded. Raises DataError, with the advice `instead`, if the dataset cannot be loaded or
    lacks one of the keys.
    """
    where = f"{name}{f' ({subset})' if subset else ''}, split {split}"
    with hub.explained(where, instead):
        loaded = hub.dataset(name, subset, split, revision, stream)
        if keys and loaded.column_names is not None:
            check_keys(where, keys, loaded.column_names)
            loaded = loaded.select_columns(list(keys))
        for number, value in enumerate(loaded):
            yield Row(f"{where}, row {number}", number, value)


def stem(name: str) -> str:
    """Return a file's name without the endings of its format and compression.

    Raises ConfigError for an unknown format.
    """
    _reader(name)
    return ungzipped(name).rpartition(".")[0]


def unit(name: str) -> Unit | None:
    """Return the units after which a file may be cut; None if it must be read as a whole."""
    return _reader(name)[1] if ungzipped(name) == name else None


def is_plain(name: str) -> bool:
    """Return whether a file is plain text, which has no keys."""
    return _reader(Path(name).name)[0] is _text


def has_lines(name: str) -> bool:
    """Return whether a row may be one line of a document, as in WikiText's Parquet files."""
    return _reader(Path(name).name)[0] is _parquet


def is_heading(text: object) -> bool:
    """Return whether a line is a heading of WikiText."""
    return isinstance(text, str) and _HEADING.fullmatch(text) is not None


def _reader(name: str) -> tuple[Reader, Unit | None]:
    plain = ungzipped(name).lower()
    for pattern, found in _READERS.items():
        if fnmatchcase(plain, pattern):
            return found
    endings = ", ".join(pattern[2:] for pattern in _READERS if pattern.startswith("?*"))
    raise ConfigError(
        f"file {name}: its format is unknown: the name must end in {endings} "
        "(each also with .gz) or be kilt_knowledgesource.json"
    )


def _text(stream: IO[bytes], path: Path, layout: Layout) -> Iterator[Row]:
    """Yield the blocks between blank lines; WikiText's headings end a block and are left out."""
    key, *others = layout.keys or ("text",)
    if others:
        raise DataError(f"{path}: plain text has no column {others[0]!r}: use .jsonl or .parquet")
    block: list[Row] = []
    size = 0
    for line in text_lines(stream, path, layout.part):
        if line.error:
            yield line
            continue
        ends = not line.value.strip() or is_heading(line.value)
        if block and (ends or size > _BLOCK):
            yield _block(block, key)
            block, size = [], 0
        if not ends:
            block.append(line)
            size += len(line.value)
    if block:
        yield _block(block, key)


def _block(lines: list[Row], key: str) -> Row:
    """Return the row of a block, or of its first line that no tokenizer can take."""
    text = "\n".join(line.value for line in lines).strip()
    if not fields.unusable(text):
        return Row(lines[0].place, lines[0].number, {key: text})
    bad = next(line for line in lines if fields.unusable(line.value))
    return Row(bad.place, bad.number, error=f"holds {fields.unusable(bad.value)}: remove it")


def _jsonl(stream: IO[bytes], path: Path, layout: Layout) -> Iterator[Row]:
    for line in text_lines(stream, path, layout.part):
        if line.error:
            yield line
        elif line.value.strip():
            try:
                yield _object(line.place, line.number, json.loads(line.value))
            except (ValueError, RecursionError) as error:  # also a number of too many digits
                yield Row(line.place, line.number, error=f"not JSON: {error}")


def _json(stream: IO[bytes], path: Path, layout: Layout) -> Iterator[Row]:
    if layout.at:
        found = enclosed_items(stream, path, layout.at)
    else:
        found = ((f"row[{number}]", item) for number, item in enumerate(list_items(stream, path)))
    for number, (place, value) in enumerate(found):
        yield _object(f"{path}, {place}", number, value)


def _object(place: str, number: int, value: Json) -> Row:
    if not isinstance(value, dict):
        return Row(place, number, error=f"must be a JSON object, not {fields.shown(value)}")
    return Row(place, number, value)


def _kilt(stream: IO[bytes], path: Path, layout: Layout) -> Iterator[Row]:
    """Yield the pages of KILT's knowledge source: running text, without title and headings."""
    key, *others = layout.keys or ("text",)
    if others:
        raise DataError(f"{path}: KILT's pages have no column {others[0]!r}: leave it out")
    for row in _jsonl(stream, path, layout):
        parts = None if row.error else row.value.get(key)
        if isinstance(parts, list) and all(isinstance(part, str) for part in parts):
            yield Row(row.place, row.number, {key: _page(parts, row.value.get("wikipedia_title"))})
        else:
            reason = row.error or f"key {key!r} must be a list of texts"
            yield Row(row.place, row.number, error=reason)


def _page(parts: list[str], title: object) -> str:
    """Join paragraphs; a list's items stay, without their marker."""
    kept = (part.strip() for part in parts if not part.startswith(_SECTION))
    texts = [_BULLET.sub("", part, count=1) for part in kept]
    if texts and isinstance(title, str) and texts[0] == title.strip():
        del texts[0]
    return "\n".join(text for text in texts if text)


def _parquet(stream: IO[bytes], path: Path, layout: Layout) -> Iterator[Row]:
    import pyarrow
    from pyarrow.parquet import ParquetFile

    with tempfile.TemporaryFile() as unpacked:
        if isinstance(stream, gzip.GzipFile):  # it is read from its end, which gzip cannot
            shutil.copyfileobj(stream, unpacked)
            stream = unpacked
        try:
            file = ParquetFile(stream)
            check_keys(str(path), layout.keys, file.schema_arrow.names)
            part, columns = layout.part, list(layout.keys) or None
            groups = range(part.begin, file.num_row_groups if part.end is None else part.end)
            number = part.before
            for batch in file.iter_batches(_BATCH, row_groups=groups, columns=columns):
                for value in batch.to_pylist():
                    yield Row(f"{path}, row {number}", number, value)
                    number += 1
        except UnicodeDecodeError as error:
            raise DataError(f"{path}: a text is not UTF-8: {error.reason}") from error
        except (pyarrow.ArrowException, OSError) as error:  # OSError: also of damaged headers
            raise DataError(f"{path}: no readable Parquet: {str(error).splitlines()[0]}") from error


_READERS: dict[str, tuple[Reader, Unit | None]] = {
    "kilt_knowledgesource*.json": (_kilt, "line"),
    "kilt_knowledgesource*.jsonl": (_kilt, "line"),
    **{f"?*.{ending}": (_text, "block") for ending in ("txt", "text", "md", "rst")},
    "?*.raw": (_text, "block"),
    "?*.jsonl": (_jsonl, "line"),
    "?*.json": (_json, None),
    "?*.tsv": (tsv_rows, "line"),
    "?*.csv": (csv_rows, "unquoted"),
    "?*.parquet": (_parquet, "group"),
}
"""By file name, without .gz; the first that matches. None: such a file is never cut."""
