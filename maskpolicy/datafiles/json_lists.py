"""Read JSON files that hold a list of rows, one row at a time where that is possible."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from maskpolicy.errors import DataError
from maskpolicy.types import Json

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
