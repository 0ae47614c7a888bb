"""Reads the rows of a corpus, file formats and the Hub alike, never a whole file at once."""

from __future__ import annotations

import csv
import gzip
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, TypeAlias

from maskpolicy import formats, hub
from maskpolicy.errors import ConfigError, DataError
from maskpolicy.formats import Row

Columns: TypeAlias = Sequence[str]
"""The keys that are read of each row: that of its text first."""

KILT = "kilt_knowledgesource"
_BLOCK = 1 << 20  # characters; a longer block of plain text is cut behind a line
_BATCH = 256  # rows of Parquet that are decoded at once
_HEADING = re.compile(r"\s*(?:= )+(?!=).*\S(?: =)+\s*")  # wikitext's " = = Early life = = "
_SECTION, _BULLET = "Section::::", re.compile(r"BULLET::::-?\s*")  # KILT's markers


def stem(name: str) -> str:
    """Return a file's name without the endings that say how it is read.

    Raises ConfigError when they do not say that.
    """
    plain = formats.ungzipped(name)
    _reader(name)
    return plain.rpartition(".")[0]


def is_plain(name: str) -> bool:
    """Say whether a file is plain text, which has no keys."""
    return _reader(Path(name).name) is _text


def rows(path: Path, columns: Columns) -> Iterator[Row]:
    """Yield the rows of a file, each with the keys `columns`; plain text is one row per block.

    What cannot be parsed is a row with an error. Raises DataError for a file that cannot be read
    at all or has no such columns.
    """
    read = _reader(path.name)
    with formats.opened(path) as stream:
        yield from read(stream, path, columns)


def hub_rows(
    name: str,
    columns: Columns,
    subset: str | None = None,
    split: str = "train",
    revision: str | None = None,
    stream: bool = False,
) -> Iterator[Row]:
    """Yield the rows of a Hub dataset (or of a local folder laid out as one).

    With `stream` nothing but what is read is downloaded. Raises DataError when it cannot be loaded
    or has no such columns.
    """
    where = f"{name}{f' ({subset})' if subset else ''}, split {split}"
    with hub.explained(where, "name files"):
        loaded = hub.dataset(name, subset, split, revision, stream)
        if loaded.column_names is not None:
            _check_columns(where, columns, loaded.column_names)
            loaded = loaded.select_columns(list(columns))
        for number, value in enumerate(loaded):
            if not _is_heading(value.get(columns[0])):
                yield Row(f"{where}, row {number}", number, value)


def has_lines(name: str) -> bool:
    """Say whether a file's rows may be single lines of a text, so that headings are left out."""
    return _reader(Path(name).name) is _parquet


def _is_heading(text: object) -> bool:
    """Say whether a row is a heading of WikiText, whose Parquet files hold a row for each line."""
    return isinstance(text, str) and _HEADING.fullmatch(text) is not None


def _reader(name: str) -> Callable[[IO[bytes], Path, Columns], Iterator[Row]]:
    plain = formats.ungzipped(name).lower()
    if plain.startswith(KILT) and plain.endswith((".json", ".jsonl")):
        return _kilt
    for ending, read in _READERS.items():
        if plain.endswith(ending) and plain != ending:
            return read
    raise ConfigError(
        f"corpus file {name}: its kind is unknown: the name must end in {', '.join(_READERS)} "
        f"(each also with .gz) or be {KILT}.json"
    )


def _lines(stream: Iterable[bytes], path: Path) -> Iterator[Row]:
    """Yield each line as a row whose value is text without its end."""
    for number, line in enumerate(stream, start=1):
        place = f"{path}, line {number}"
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            yield Row(place, number, text.rstrip("\r\n"))
        except UnicodeDecodeError as error:
            yield Row(place, number, error=f"not UTF-8 at byte {error.start}")


def _text(stream: IO[bytes], path: Path, columns: Columns) -> Iterator[Row]:
    """Yield the blocks between blank lines; wikitext's headings end a block and are left out."""
    if len(columns) > 1:
        raise DataError(f"{path}: plain text has no column {columns[1]!r}: use .jsonl or .parquet")
    block: list[Row] = []
    size = 0
    for line in _lines(stream, path):
        if line.error:
            yield line
            continue
        ends = not line.value.strip() or _is_heading(line.value)
        if block and (ends or size > _BLOCK):
            yield _block(block, columns)
            block, size = [], 0
        if not ends:
            block.append(line)
            size += len(line.value)
    if block:
        yield _block(block, columns)


def _block(lines: list[Row], columns: Columns) -> Row:
    """Return the row of a block, or of its first line that no tokenizer can take."""
    text = "\n".join(line.value for line in lines).strip()
    reason = formats.unusable(text)
    if not reason:
        return Row(lines[0].place, lines[0].number, {columns[0]: text})
    bad = next(line for line in lines if formats.unusable(line.value))
    return Row(bad.place, bad.number, error=f"holds {formats.unusable(bad.value)}: remove it")


def _json(stream: IO[bytes], path: Path, columns: Columns) -> Iterator[Row]:
    for line in _lines(stream, path):
        if line.error:
            yield line
        elif line.value.strip():
            yield _object(line)


def _object(line: Row) -> Row:
    try:
        value = json.loads(line.value)
    except (ValueError, RecursionError) as error:
        return Row(line.place, line.number, error=f"not JSON: {error}")
    if not isinstance(value, dict):
        return Row(line.place, line.number, error=f"must be a JSON object, not {line.value:.40}")
    return Row(line.place, line.number, value)


def _kilt(stream: IO[bytes], path: Path, columns: Columns) -> Iterator[Row]:
    """Yield the pages of KILT's knowledge source: running text, without title and headings."""
    if len(columns) > 1:
        raise DataError(f"{path}: KILT's pages have no column {columns[1]!r}: leave it out")
    for row in _json(stream, path, columns):
        parts = None if row.error else row.value.get(columns[0])
        if isinstance(parts, list) and all(isinstance(part, str) for part in parts):
            text = _page(parts, row.value.get("wikipedia_title"))
            yield Row(row.place, row.number, {columns[0]: text})
        else:
            reason = row.error or f"key {columns[0]!r} must be a list of texts"
            yield Row(row.place, row.number, error=reason)


def _page(parts: list[str], title: object) -> str:
    """Join paragraphs; a list's items stay, without their marker."""
    kept = (part.strip() for part in parts if not part.startswith(_SECTION))
    texts = [_BULLET.sub("", part, count=1) for part in kept]
    if texts and isinstance(title, str) and texts[0] == title.strip():
        del texts[0]
    return "\n".join(text for text in texts if text)


def _table(stream: IO[bytes], path: Path, columns: Columns) -> Iterator[Row]:
    """Yield the rows of a table with a header, quoted as DPR's psgs_w100.tsv is."""
    names: list[str] = []
    for line in _lines(stream, path):
        if line.error or not line.value.strip():
            if line.error:
                yield line
            continue
        try:
            cells = next(csv.reader([line.value], delimiter="\t", strict=True))
        except csv.Error as error:
            yield Row(line.place, line.number, error=f"not a row of a .tsv file: {error}")
            continue
        if not names:
            names = cells
            _check_columns(f"{path}, line {line.number}", columns, names)
        elif len(cells) != len(names):
            reason = f"has {len(cells)} cells, not {len(names)} as its header"
            yield Row(line.place, line.number, error=reason)
        else:
            yield Row(line.place, line.number, dict(zip(names, cells, strict=True)))


def _parquet(stream: IO[bytes], path: Path, columns: Columns) -> Iterator[Row]:
    import pyarrow
    from pyarrow.parquet import ParquetFile

    with tempfile.TemporaryFile() as unpacked:
        if isinstance(stream, gzip.GzipFile):  # it is read from its end, which gzip cannot
            shutil.copyfileobj(stream, unpacked)
            stream = unpacked
        try:
            file = ParquetFile(stream)
            _check_columns(str(path), columns, file.schema_arrow.names)
            number = 0
            for batch in file.iter_batches(_BATCH, columns=list(columns)):
                for value in batch.to_pylist():
                    if not _is_heading(value.get(columns[0])):
                        yield Row(f"{path}, row {number}", number, value)
                    number += 1
        except pyarrow.ArrowException as error:
            raise DataError(f"{path}: no readable Parquet: {str(error).splitlines()[0]}") from error


def _check_columns(where: str, wanted: Columns, there: Iterable[str]) -> None:
    names = list(there)
    for name in wanted:
        if name not in names:
            raise DataError(f"{where}: no column {name!r}; there are {', '.join(names)}")


_READERS = {".txt": _text, ".raw": _text, ".jsonl": _json, ".parquet": _parquet, ".tsv": _table}
