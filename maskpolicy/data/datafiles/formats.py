"""Read JSON files that hold a list of rows, and tables: TSV and CSV files."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

from maskpolicy.core.errors import DataError
from maskpolicy.core.types import Json
from maskpolicy.data.datafiles.rows import Layout, Part, Row, check_keys, text_lines, ungzipped

_PIECE = 1 << 20  # characters that are read at once
_TOKEN = 16  # characters: more than an escape or a literal of JSON, or the end of a number, has
_NO_BLANK = re.compile(r"[^ \t\r\n]")


def list_items(stream: IO[bytes], path: Path) -> Iterator[Json]:
    """Yield the items of a JSON list, of which one at a time is in memory: files have gigabytes."""
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
            yield text.item()
            number += 1
        text.at += 1
        if text.following():
            raise ValueError("Extra data behind the list")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}, row[{number}] or later: not UTF-8") from error
    except (ValueError, RecursionError) as error:  # also a number of too many digits
        raise DataError(f"{path}, row[{number}]: not JSON: {error}") from error


class _JsonText:
    """JSON that is read piece by piece; `at` is the index in `text` of what comes next."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.text, self.at = "", 0
        self._source = io.TextIOWrapper(stream, encoding="utf-8-sig")
        self._decoder = json.JSONDecoder()

    def following(self) -> str:
        """Move to the next character that is not blank and return it; at the end, ""."""
        while not (found := _NO_BLANK.search(self.text, self.at)):
            self.text, self.at = self._source.read(_PIECE), 0
            if not self.text:
                return ""
        self.at = found.start()
        return found[0]

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
            elif failed:
                raise ValueError(failed)
            else:
                self.at = end
                return value


def _advice(text: _JsonText) -> str:
    """Return what to do about a file that begins with something else than a list, or ""."""
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
    """Yield (place, value) of the rows that lie under the keys `at` of each item.

    A row also has the keys of all that encloses it.
    """
    key, _, inner = at.partition(".")
    for number, item in enumerate(items):
        where = f"{place}[{number}]"
        if not isinstance(item, dict):
            yield where, item
        elif not key:
            yield where, {**around, **item}
        else:
            outer = {name: value for name, value in item.items() if name != key}
            below = item.get(key)
            rows = below if isinstance(below, list) else [below]
            yield from _nested(rows, f"{where}.{key}", inner, {**around, **outer})


_BLOCK = 1 << 20  # characters of the longest row of a .csv file
_TSV_CELL = 131_072  # characters of the longest cell of a quoted .tsv file


def tsv_rows(stream: IO[bytes], path: Path, layout: Layout) -> Iterator[Row]:
    """Yield the rows of a table in which a line is a row, also where cells are quoted."""

    def cells(line: str) -> list[str]:
        return _quoted(line, "\t", _TSV_CELL) if layout.quoted else line.split("\t")

    return _table(stream, path, layout, text_lines, cells)


def csv_rows(stream: IO[bytes], path: Path, layout: Layout) -> Iterator[Row]:
    """Yield the rows of a table with commas; line breaks in quoted cells belong to the cell."""
    return _table(stream, path, layout, _joined, lambda line: _quoted(line, ",", len(line)))


def _joined(stream: IO[bytes], path: Path, part: Part) -> Iterator[Row]:
    """Join lines until quotes are closed; what is more than a block, or no text, ends a row too."""
    held: list[Row] = []
    quotes = size = 0
    for line in text_lines(stream, path, part):
        held.append(line)
        quotes += (line.value or "").count('"')
        size += len(line.value or "")
        if line.error or size > _BLOCK or not quotes % 2:
            yield _one(held)
            held, quotes, size = [], 0, 0
    if held:
        yield _one(held)


def _one(lines: list[Row]) -> Row:
    error = next((line.error for line in lines if line.error), "")
    text = None if error else "\n".join(line.value for line in lines)
    return Row(lines[0].place, lines[0].number, text, error)


def _table(
    stream: IO[bytes],
    path: Path,
    layout: Layout,
    lines: Callable[[IO[bytes], Path, Part], Iterator[Row]],
    cells: Callable[[str], list[str]],
) -> Iterator[Row]:
    """Yield lines as {column: text}; the first one names the columns if `layout` does not."""
    names = list(layout.header)
    if layout.part.begin and not names:
        names = _header(lines(stream, path, Part(end=layout.part.begin)), cells)
    for line in lines(stream, path, layout.part):
        if line.error:
            yield line
            continue
        if not line.value.strip():
            continue
        try:
            found = cells(line.value)
        except csv.Error as error:
            reason = f"not a row of a {Path(ungzipped(path.name)).suffix} file: {error}"
            yield Row(line.place, line.number, error=reason)
            continue
        if not names:
            names = found
            check_keys(f"{path}, line {line.number}", layout.keys, names)
        elif len(found) != len(names):
            reason = f"has {len(found)} cells, not {len(names)} ({', '.join(names)})"
            yield Row(line.place, line.number, error=reason)
        else:
            yield Row(line.place, line.number, dict(zip(names, found, strict=True)))


def _header(lines: Iterable[Row], cells: Callable[[str], list[str]]) -> list[str]:
    """Return the names of the columns, if they are in `lines`: the rest of a file needs them."""
    for line in lines:
        if not line.error and line.value.strip():
            with suppress(csv.Error):
                return cells(line.value)
    return []


def _quoted(line: str, delimiter: str, longest: int) -> list[str]:
    """Return the cells of a row; one that is longer than `longest` raises csv.Error."""
    usual = csv.field_size_limit(longest)
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True))
    finally:
        csv.field_size_limit(usual)
