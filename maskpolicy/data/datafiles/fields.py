"""Read the values of a row with type checks; clean, compare and digest texts."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from maskpolicy.core.errors import DataError

_UNUSABLE = re.compile("[\x00\ud800-\udfff]")


def text(row: Mapping[str, Any], *keys: str) -> str:
    """Return the text under the first of `keys` that the row has, or raise DataError.

    Messages name the first key, the official one; the others are spellings of the Hub.
    """
    value = str(_of_kind(row, keys, str, "text"))
    if not value.strip():
        lack = "missing" if _first(row, keys) is None else "empty"
        raise DataError(f"key {keys[0]!r} is {lack}")
    return value


def optional(row: Mapping[str, Any], *keys: str) -> str:
    """Return the text under the first of `keys` that the row has, stripped; absent or null: ""."""
    return str(_of_kind(row, keys, str, "text")).strip()


def texts(row: Mapping[str, Any], *keys: str) -> list[str]:
    """Return the list of texts under the first of `keys` that the row has; absent or null: []."""
    return list(_of_kind(row, keys, list, "a list of texts", str))


def block(row: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """Return the object under the first of `keys` that the row has; absent or null: {}."""
    return dict(_of_kind(row, keys, dict, "an object"))


def records(row: Mapping[str, Any], *keys: str) -> list[dict[str, Any]]:
    """Return the list of objects under the first of `keys` that the row has; absent or null: [].

    The Hub's object of lists, {"a": [1, 2]}, means [{"a": 1}, {"a": 2}].
    """
    value = _first(row, keys)
    if isinstance(value, dict) and all(isinstance(column, list) for column in value.values()):
        if len({len(column) for column in value.values()}) > 1:
            raise DataError(f"key {keys[0]!r} has lists of different lengths")
        return [dict(zip(value, items, strict=True)) for items in zip(*value.values(), strict=True)]
    return list(_of_kind(row, keys, list, "a list of objects", dict))


def spans(row: Mapping[str, Any], name: str, length: int) -> list[list[int]]:
    """Return the [start, end) characters in a column; null is [], further items are ignored."""
    if name not in row:
        raise DataError(f"key {name!r} is missing")
    value = plain(row[name])
    items = [] if value is None else value if isinstance(value, list) else [value]
    bounds = [item[:2] if isinstance(item, list) else [] for item in items]
    if any([type(bound) for bound in each] != [int, int] for each in bounds):
        raise DataError(f"key {name!r} must be a list of [start, end] characters")
    for begin, end in bounds:
        if not 0 <= begin < end <= length:
            raise DataError(
                f"key {name!r}: {[begin, end]} is not a range of the {length}-character text"
            )
    return bounds


def check(value: str, what: str) -> None:
    """Raise DataError for a text with a NUL or a lone surrogate; messages name it `what`."""
    if reason := unusable(value):
        raise DataError(f"{what} holds {reason}: remove it")


def unusable(value: str) -> str:
    """Return the first character that tokenizers cannot encode, with its place, or ""."""
    match = _UNUSABLE.search(value)
    if not match:
        return ""
    kind = "a NUL character" if match[0] == "\0" else f"a lone surrogate (U+{ord(match[0]):X})"
    return f"{kind} at character {match.start()}"


def distinct(values: Iterable[str]) -> tuple[str, ...]:
    """Return the values with outer blanks stripped, each once, in order, without empty ones."""
    return tuple(dict.fromkeys(stripped for value in values if (stripped := value.strip())))


def alike(value: str) -> str:
    """Return a text in lower case with single blanks: equal questions have equal groups."""
    return " ".join(value.lower().split())


def digest(value: str) -> str:
    """Return a short name for a long text, e.g. for the group of a document."""
    return hashlib.sha256(value.encode(errors="surrogatepass")).hexdigest()[:16]


def shown(value: Any) -> str:
    """Return the beginning of a value as JSON, for messages."""
    return f"{json.dumps(value, default=str):.40}"


def _first(row: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    return next((row[key] for key in keys if row.get(key) is not None), None)


def _of_kind(
    row: Mapping[str, Any], keys: tuple[str, ...], kind: Any, words: str, item: type | None = None
) -> Any:
    """Return a value of a `kind`, empty if it is absent or null; DataError says it in `words`."""
    value = _first(row, keys)
    if value is None:
        return kind()
    if not isinstance(value, kind) or (item and not all(isinstance(each, item) for each in value)):
        raise DataError(f"key {keys[0]!r} must be {words}, not {shown(value)}")
    return value


def plain(value: Any) -> Any:
    """Return a value with lists for tuples and arrays, which rows of a collator may have."""
    value = getattr(value, "tolist", lambda: value)()
    return [*map(plain, value)] if isinstance(value, list | tuple) else value
