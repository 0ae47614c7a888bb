"""Read rows: of files of every format, by their names, and of datasets of the Hub.

A new file format is a function that yields rows, and a line in the table at the end.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, TypeAlias

from maskpolicy.core import hub
from maskpolicy.core.errors import ConfigError, DataError, StoreError
from maskpolicy.core.files import FULL
from maskpolicy.core.types import Json
from maskpolicy.data.datafiles import fields
from maskpolicy.data.datafiles.rows import (
    Layout,
    Part,
    Row,
    Unit,
    check_keys,
    opened,
    text_lines,
    ungzipped,
)

_PIECE = 1 << 20  # characters that are read at once
_TOKEN = 16  # characters: longer than an escape or literal of JSON, or the end of a number
_NO_BLANK = re.compile(r"[^ \t\r\n]")


def list_items(stream: IO[bytes], path: Path) -> Iterator[tuple[str, Json]]:
    """Yield (place, value) of the items of a JSON list.

    Memory holds one at a time, because files have gigabytes.
    """
    text, number = _JsonText(stream), 0
    try:
        if text.following() != "[":
            raise DataError(f"{path}: must hold a list of rows{_advice(text)}")
        text.at += 1
        while (mark := text.following()) != "]":
            if number and mark != ",":
                raise ValueError("Expecting ',' delimiter")
            text.at += 1 if number else 0
            text.following()
            yield f"row[{number}]", text.item()
            number += 1
        text.at += 1
        if text.following():
            raise ValueError("Extra data behind the list")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}, row[{number}] or later: not UTF-8") from error
    except (ValueError, RecursionError) as error:  # also a number of too many digits
        raise DataError(f"{path}, row[{number}]: not JSON: {error}") from error


class _JsonText:
    """JSON that is read piece by piece; `at` is the index of the next character in `text`."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.text, self.at = "", 0
        self._source = io.TextIOWrapper(stream, encoding="utf-8-sig")
        self._decoder = json.JSONDecoder()

    def following(self) -> str:
        """Move to the next character that is not blank, and return it; at the end, return ""."""
        while not (match := _NO_BLANK.search(self.text, self.at)):
            self.text, self.at = self._source.read(_PIECE), 0
            if not self.text:
                return ""
        self.at = match.start()
        return match[0]

    def item(self) -> Json:
        """Return the value that begins here, and move to its end; raises ValueError."""
        while True:
            value, failed = None, ""
            try:
                value, end = self._decoder.raw_decode(self.text, self.at)
            except json.JSONDecodeError as error:
                end, failed = error.pos, error.msg
            is_cut = len(self.text) - end < _TOKEN or failed.startswith("Unterminated string")
            size = max(_PIECE, len(self.text) - self.at)
            if is_cut and (piece := self._source.read(size)):
                self.text, self.at = self.text[self.at :] + piece, 0
                continue
            if failed:
                raise ValueError(failed)
            self.at = end
            return value


def _advice(text: _JsonText) -> str:
    """Return what to do about a file that does not begin with a list, or ""."""
    first, _, rest = text.text.lstrip().partition("\n")
    try:
        row = json.loads(first)
    except ValueError:
        is_table = not first.startswith("{") and ("," in first or "\t" in first)
        kind = ".tsv" if "\t" in first else ".csv"
        return f"; it looks like a table: name it *{kind}" if is_table else ""
    is_lines = isinstance(row, dict) and rest.lstrip().startswith("{")
    return "; it has one row on each line: name it *.jsonl" if is_lines else ""


def enclosed_items(stream: IO[bytes], path: Path, at: str) -> Iterator[tuple[str, Json]]:
    """Yield (place, value) of the rows under the keys `at` of a JSON object."""
    try:
        content = json.loads(stream.read().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 at byte {error.start}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not JSON: {error}") from error
    first, _, inner = at.partition(".")
    content = content.get(first) if isinstance(content, dict) else None
    if not isinstance(content, list):
        raise DataError(f"{path}: must hold a list of rows under the key {first!r}")
    yield from _nested(content, first, inner, {})


def _nested(items: list[Json], place: str, at: str, around: Json) -> Iterator[tuple[str, Json]]:
    """Yield (place, value) of the rows under the keys `at` of each item.

    A row also has the keys of the objects around it, as `around.KEY` if it has KEY itself.
    """
    key, _, inner = at.partition(".")
    for number, item in enumerate(items):
        where = f"{place}[{number}]"
        if not isinstance(item, dict):
            yield where, item
        elif not key:
            hidden = {f"around.{name}": around[name] for name in around.keys() & item.keys()}
            yield where, {**hidden, **around, **item}
        else:
            outer = {name: value for name, value in item.items() if name != key}
            below = item.get(key)
            rows = below if isinstance(below, list) else [below]
            yield from _nested(rows, f"{where}.{key}", inner, {**around, **outer})


_CSV_ROW = 1 << 20  # characters of the longest row of a .csv file
_ANY_SIZE = (1 << 31) - 1


def _tsv(stream: IO[bytes], path: Path, layout: Layout) -> Iterator[Row]:
    """Yield the rows of a table; line breaks always end a row, even in quoted cells."""
    return _table(stream, path, layout, text_lines, _fitting if layout.quoted else _unquoted)


def _joined(stream: IO[bytes], path: Path, part: Part) -> Iterator[Row]:
    """Join the lines of each row: those of a quoted cell, up to a malformed or a late one."""
    lines = text_lines(stream, path, part)
    for first in lines:
        found = [first]
        if first.value and '"' in first.value:
            with suppress(csv.Error):
                _cells(_until_late(first, lines, found), ",")
        error = found[-1].error
        text = None if error else "\n".join(line.value for line in found)
        yield Row(first.place, first.number, text, error)


def _until_late(first: Row, lines: Iterator[Row], found: list[Row]) -> Iterator[str]:
    """Yield the texts of a row and of lines after it, up to _CSV_ROW characters; note these."""
    yield f"{first.value}\n"
    size = len(first.value)
    while size <= _CSV_ROW and (line := next(lines, None)):
        found.append(line)
        if line.error:
            return
        size += len(line.value)
        yield f"{line.value}\n"


def _csv(stream: IO[bytes], path: Path, layout: Layout) -> Iterator[Row]:
    """Yield the rows of a table whose quoted cells may have line breaks."""
    return _table(stream, path, layout, _joined, lambda line, width: _cells([line], ","))


def _unquoted(line: str, width: int) -> list[str]:
    """Return the cells of a row of a .tsv file in which quotes are text."""
    return line.split("\t")


def _fitting(line: str, width: int) -> list[str]:
    """Return the cells of the same; quotes that do not give `width` cells are text, as in GLUE."""
    with suppress(csv.Error):
        cells = _cells([line], "\t")
        if len(cells) == (width or len(cells)):
            return cells
    return _unquoted(line, width)


def _cells(lines: Iterable[str], delimiter: str) -> list[str]:
    """Return the cells of the first row, which may be of any length."""
    usual = csv.field_size_limit(_ANY_SIZE)
    try:
        return next(csv.reader(lines, delimiter=delimiter, strict=True))
    finally:
        csv.field_size_limit(usual)


def _table(
    stream: IO[bytes],
    path: Path,
    layout: Layout,
    lines: Callable[[IO[bytes], Path, Part], Iterator[Row]],
    split: Callable[[str, int], list[str]],
) -> Iterator[Row]:
    """Yield lines as {column: text}; unless `layout` names the columns, the first line does.

    `split` gets a line and the number of columns (0: unknown). A malformed header is a DataError.
    """
    names = list(layout.header)

    def in_cells(part: Part) -> Iterator[Row]:
        for line in lines(stream, path, part):
            if line.error:
                yield line
            elif line.value.strip():
                try:
                    yield Row(line.place, line.number, split(line.value, len(names)))
                except csv.Error as error:
                    reason = f"not a row of a {Path(ungzipped(path.name)).suffix} file: {error}"
                    yield Row(line.place, line.number, error=reason)

    if layout.part.begin and not names:  # the header precedes the part
        before = in_cells(Part(end=layout.part.begin))
        names = next((row.value for row in before if not row.error), [])
    for row in in_cells(layout.part):
        if row.error and not names:
            raise DataError(f"{row.place}: {row.error}")
        if row.error:
            yield row
        elif not names:
            names = row.value
            check_keys(f"{path}, line {row.number}", layout.keys or filter(None, names), names)
        elif len(row.value) != len(names):
            reason = f"has {len(row.value)} cells, not {len(names)} ({', '.join(names)})"
            yield Row(row.place, row.number, error=reason)
        else:
            yield Row(row.place, row.number, dict(zip(names, row.value, strict=True)))


_BLOCK = 1 << 20  # characters; a longer block of plain text is split after a line
_BATCH = 256  # rows of Parquet that are decoded at once
_HEADING = re.compile(r"\s*(?:= )+(?!=).*\S(?: =)+\s*")  # WikiText's " = = Early life = = "
_LONG_HEADING = 1000  # characters; the pattern takes long for a long line of signs
_SECTION, _BULLET = "Section::::", re.compile(r"BULLET::::-?\s*")  # KILT's markers
_ANY = Layout()

Reader: TypeAlias = Callable[[IO[bytes], Path, Layout], Iterator[Row]]


def rows(path: Path, layout: Layout = _ANY) -> Iterator[Row]:
    """Yield the rows of a file in the format of its name; text may begin with a BOM.

    A row that cannot be parsed has an `error` instead of a value. Only a .json file with a
    `layout.at` is read as a whole. Raises ConfigError for an unknown format, and DataError for a
    file that cannot be read at all or lacks one of the columns `layout.keys`.
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

    `keys` are the keys to read of each row (empty: all). With `stream`, rows are downloaded one by
    one. Raises DataError, with the advice `instead`, if the dataset cannot be loaded or lacks one
    of the keys.
    """
    where = f"{name}{f' ({subset})' if subset else ''}, split {split}"
    read = hub.dataset(name, subset, split, revision, stream)
    with hub.explained(where, "" if Path(name).is_dir() else instead), read as loaded:
        if keys and loaded.column_names is not None:
            check_keys(where, keys, loaded.column_names)
            rows = loaded.select_columns(list(keys))
        else:
            rows = loaded
        for number, value in enumerate(rows):
            yield Row(f"{where}, row {number}", number, value)


def stem(name: str) -> str:
    """Return a file's name without the endings of its format and compression.

    Raises ConfigError for an unknown format.
    """
    _reader(name)
    return ungzipped(name).rpartition(".")[0]


def unit(name: str) -> Unit | None:
    """Return the units between which a file may be cut; None if it must be read as a whole."""
    return _reader(name)[1] if ungzipped(name) == name else None


def is_plain(name: str) -> bool:
    """Return whether a file is plain text, which has no keys."""
    return _reader(Path(name).name)[0] is _text


def has_lines(name: str) -> bool:
    """Return whether a row may be one line of a document, as in WikiText's Parquet files."""
    return _reader(Path(name).name)[0] is _parquet


def is_heading(text: object) -> bool:
    """Return whether a line is a heading of WikiText."""
    if not isinstance(text, str) or len(text) > _LONG_HEADING:
        return False
    return _HEADING.fullmatch(text) is not None


def _reader(name: str) -> tuple[Reader, Unit | None]:
    plain = ungzipped(name).lower()
    for pattern, reader in _READERS.items():
        if fnmatchcase(plain, pattern):
            return reader
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
    """Return the row of a block, or of its first line that tokenizers cannot encode."""
    text = "\n".join(line.value for line in lines).strip()
    if not fields.unusable(text):
        return Row(lines[0].place, lines[0].number, {key: text})
    bad = next(line for line in lines if fields.unusable(line.value))
    return Row(bad.place, bad.number, error=f"holds {fields.unusable(bad.value)}: remove it")


def _jsonl(stream: IO[bytes], path: Path, layout: Layout) -> Iterator[Row]:
    number = 0  # of the rows within lines
    for line in text_lines(stream, path, layout.part):
        if line.error:
            yield line
        elif line.value.strip():
            try:
                value = json.loads(line.value)
            except (ValueError, RecursionError) as error:  # also a number of too many digits
                yield Row(line.place, line.number, error=f"not JSON: {error}")
                continue
            if not layout.at:
                yield _object(line.place, line.number, value)
                continue
            for place, row in _nested([value], line.place, layout.at, {}):
                yield _object(place, number, row)
                number += 1


def _json(stream: IO[bytes], path: Path, layout: Layout) -> Iterator[Row]:
    at = layout.at
    items = enclosed_items(stream, path, at) if at else list_items(stream, path)
    for number, (place, value) in enumerate(items):
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
    """Join paragraphs and items of lists, without markers."""
    kept = (part.strip() for part in parts if not part.startswith(_SECTION))
    texts = [_BULLET.sub("", part, count=1) for part in kept]
    if texts and isinstance(title, str) and texts[0] == title.strip():
        del texts[0]
    return "\n".join(text for text in texts if text)


def _parquet(stream: IO[bytes], path: Path, layout: Layout) -> Iterator[Row]:
    import pyarrow
    from pyarrow.parquet import ParquetFile

    with tempfile.TemporaryFile() as unpacked:
        if isinstance(stream, gzip.GzipFile):  # Parquet is read from its end, which gzip cannot do
            try:
                shutil.copyfileobj(stream, unpacked)
            except OSError as error:
                if error.errno not in FULL:
                    raise
                raise StoreError(
                    f"{path}: no room to unpack it in {tempfile.gettempdir()} ({error.strerror}): "
                    "unpack it elsewhere, or set $TMPDIR to a folder with room"
                ) from error
            stream = unpacked
        try:
            file = ParquetFile(stream)
            names = file.schema_arrow.names
            check_keys(str(path), layout.keys or names, names)
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
            raise DataError(f"{path}: not valid Parquet: {str(error).splitlines()[0]}") from error


_READERS: dict[str, tuple[Reader, Unit | None]] = {
    "kilt_knowledgesource*.json": (_kilt, "line"),
    "kilt_knowledgesource*.jsonl": (_kilt, "line"),
    **{f"?*.{ending}": (_text, "block") for ending in ("txt", "text", "md", "rst", "conll")},
    **{f"?*.{ending}": (_text, "block") for ending in ("train", "dev", "test")},  # BabyLM's
    "?*.raw": (_text, "block"),
    "?*.jsonl": (_jsonl, "line"),
    "?*.json": (_json, None),
    "?*.tsv": (_tsv, "line"),
    # line breaks in quoted cells belong to the cell
    "?*.csv": (_csv, "unquoted"),
    "?*.parquet": (_parquet, "group"),
}
"""By pattern of file names without .gz, the first match: the reader, and the units for cuts."""
