"""Reads the rows of official files (JSON Lines, JSON, TSV; also gzipped) and their values."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from maskpolicy.errors import DataError
from maskpolicy.types import Json

_UNUSABLE = re.compile("[\x00\ud800-\udfff]")


@dataclass(frozen=True)
class Row:
    """One row of a file or a Hub dataset; `error` says why it could not be read."""

    place: str  # file and row, for messages
    number: int  # line (from 1) of JSON Lines, index (from 0) of anything else
    value: Json = None
    error: str = ""


def rows(path: Path, at: str = "", columns: Sequence[str] = ()) -> Iterator[Row]:
    """Yield the rows of a .jsonl file, or of the list in a .json file (under its key `at`).

    `at` may lead through lists, as in "data.paragraphs.qas": then a row also has the keys of all
    that encloses it. A line that is not JSON is a row with an error; a .json file that cannot be
    parsed raises DataError, because nothing of it can be used. A .tsv file has the names of its
    columns in the first line, unless they are given as `columns`; there is no quoting. Each may
    be gzipped.
    """
    name = ungzipped(path.name)
    with opened(path) as stream:
        if name.endswith(".jsonl"):
            yield from _lines(stream, path)
        elif name.endswith(".tsv"):
            yield from _table(stream, path, columns)
        else:
            yield from _items(stream, path, at)


def existing(path: Path) -> Path | None:
    """Return the file, or its gzipped form where only that is there; None: neither is."""
    gzipped = path.with_name(f"{path.name}.gz")
    return next((file for file in (path, gzipped) if file.is_file()), None)


def ungzipped(name: str) -> str:
    """Return a file's name without the ending .gz."""
    return name[:-3] if name.lower().endswith(".gz") else name


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file, unpacking it where it is gzipped; DataError names one that cannot be read."""
    try:
        if ungzipped(path.name) == path.name:
            with path.open("rb") as stream:
                yield stream
        else:
            with gzip.open(path) as unpacked:
                yield cast(IO[bytes], unpacked)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: damaged or no gzip file: {error}") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error


def text(row: Mapping[str, Any], *keys: str) -> str:
    """Return the text under the first of `keys` that the row has, or raise DataError.

    The first key is the official one, which messages name; the others are the Hub's spellings.
    """
    value = _first(row, keys)
    if value is None:
        raise DataError(f"key {keys[0]!r} is missing")
    if not isinstance(value, str):
        raise DataError(f"key {keys[0]!r} must be text, not {_shown(value)}")
    if not value.strip():
        raise DataError(f"key {keys[0]!r} is empty")
    return value


def optional(row: Mapping[str, Any], *keys: str) -> str:
    """Return the text under the first of `keys` that the row has, stripped; absent or null: ""."""
    value = _first(row, keys)
    if value is not None and not isinstance(value, str):
        raise DataError(f"key {keys[0]!r} must be text, not {_shown(value)}")
    return (value or "").strip()


def texts(row: Mapping[str, Any], *keys: str) -> list[str]:
    """Return the list of texts under the first of `keys` that the row has; absent or null: []."""
    value = _first(row, keys)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise DataError(f"key {keys[0]!r} must be a list of texts, not {_shown(value)}")
    return value


def block(row: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """Return the object under the first of `keys` that the row has; absent or null: {}."""
    value = _first(row, keys)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise DataError(f"key {keys[0]!r} must be an object, not {_shown(value)}")
    return value


def records(row: Mapping[str, Any], *keys: str) -> list[dict[str, Any]]:
    """Return the list of objects under the first of `keys` that the row has; absent or null: [].

    The Hub's object of lists, {"a": [1, 2]}, is the same as [{"a": 1}, {"a": 2}].
    """
    value = _first(row, keys)
    if value is None:
        return []
    if isinstance(value, dict) and all(isinstance(column, list) for column in value.values()):
        if len({len(column) for column in value.values()}) > 1:
            raise DataError(f"key {keys[0]!r} has lists of different lengths")
        return [dict(zip(value, items, strict=True)) for items in zip(*value.values(), strict=True)]
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise DataError(f"key {keys[0]!r} must be a list of objects, not {_shown(value)}")
    return value


def check(value: str, what: str) -> None:
    """Raise DataError for text that a tokenizer cannot take: NUL or a lone surrogate."""
    reason = unusable(value)
    if reason:
        raise DataError(f"{what} holds {reason}: remove it")


def unusable(value: str) -> str:
    """Return what no tokenizer can take in a text and at which character; mostly nothing."""
    found = _UNUSABLE.search(value)
    if not found:
        return ""
    kind = "a NUL character" if found[0] == "\0" else f"a lone surrogate (U+{ord(found[0]):X})"
    return f"{kind} at character {found.start()}"


def distinct(values: Iterable[str]) -> tuple[str, ...]:
    """Return the values with outer blanks stripped, each once, in order, without empty ones."""
    return tuple(dict.fromkeys(stripped for value in values if (stripped := value.strip())))


def alike(value: str) -> str:
    """Return a text in lower case with single blanks, so that equal questions have equal groups."""
    return " ".join(value.lower().split())


def digest(value: str) -> str:
    """Return a short name for a long text, such as the document that a group stands for."""
    return hashlib.sha256(value.encode(errors="surrogatepass")).hexdigest()[:16]


def _lines(stream: IO[bytes], path: Path) -> Iterator[Row]:
    for number, line in enumerate(stream, start=1):
        place = f"{path}, line {number}"
        try:
            decoded = line.decode("utf-8-sig" if number == 1 else "utf-8")
            if decoded.strip():
                yield _row(place, number, json.loads(decoded))
        except UnicodeDecodeError as error:
            yield Row(place, number, error=f"not UTF-8 at byte {error.start}")
        except (ValueError, RecursionError) as error:  # also a number of too many digits
            yield Row(place, number, error=f"not JSON: {error}")


def _table(stream: IO[bytes], path: Path, columns: Sequence[str]) -> Iterator[Row]:
    """Yield the lines of a TSV file as {column: text}."""
    names = list(columns)
    for number, line in enumerate(stream, start=1):
        place = f"{path}, line {number}"
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            yield Row(place, number, error=f"not UTF-8 at byte {error.start}")
            continue
        fields = text.split("\t")
        if not names:
            names = fields
        elif not text:
            continue
        elif len(fields) != len(names):
            wrong = f"has {len(fields)} fields, not {len(names)} ({', '.join(names)})"
            yield Row(place, number, error=wrong)
        else:
            yield Row(place, number, dict(zip(names, fields, strict=True)))


def _items(stream: IO[bytes], path: Path, at: str) -> Iterator[Row]:
    try:
        content = json.loads(stream.read().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 at byte {error.start}") from error
    except (ValueError, RecursionError) as error:  # also a number of too many digits
        raise DataError(f"{path}: not JSON: {error}") from error
    first, _, inner = at.partition(".")
    if first:
        content = content.get(first) if isinstance(content, dict) else None
    if not isinstance(content, list):
        under = f" under the key {first!r}" if first else ""
        raise DataError(f"{path}: must hold a list of rows{under}")
    for number, (place, value) in enumerate(_nested(content, f"{first or 'row'}", inner, {})):
        yield _row(f"{path}, {place}", number, value)


def _nested(items: list[Json], place: str, at: str, around: Json) -> Iterator[tuple[str, Json]]:
    """Yield (place, value) of the rows that lie under the keys `at` of each item."""
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


def _row(place: str, number: int, value: Json) -> Row:
    if not isinstance(value, dict):
        return Row(place, number, error=f"must be a JSON object, not {_shown(value)}")
    return Row(place, number, value)


def _first(row: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    return next((row[key] for key in keys if row.get(key) is not None), None)


def _shown(value: Any) -> str:
    return f"{json.dumps(value, default=str):.40}"
