"""The values of a row: read with their types checked, and texts cleaned, compared and digested."""

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

    The first key is the official one, which messages name; the others are the Hub's spellings.
    """
    value = _first(row, keys)
    if value is None:
        raise DataError(f"key {keys[0]!r} is missing")
    if not isinstance(value, str):
        raise DataError(f"key {keys[0]!r} must be text, not {shown(value)}")
    if not value.strip():
        raise DataError(f"key {keys[0]!r} is empty")
    return value


def optional(row: Mapping[str, Any], *keys: str) -> str:
    """Return the text under the first of `keys` that the row has, stripped; absent or null: ""."""
    value = _first(row, keys)
    if value is not None and not isinstance(value, str):
        raise DataError(f"key {keys[0]!r} must be text, not {shown(value)}")
    return (value or "").strip()


def texts(row: Mapping[str, Any], *keys: str) -> list[str]:
    """Return the list of texts under the first of `keys` that the row has; absent or null: []."""
    value = _first(row, keys)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise DataError(f"key {keys[0]!r} must be a list of texts, not {shown(value)}")
    return value


def block(row: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """Return the object under the first of `keys` that the row has; absent or null: {}."""
    value = _first(row, keys)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise DataError(f"key {keys[0]!r} must be an object, not {shown(value)}")
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
        raise DataError(f"key {keys[0]!r} must be a list of objects, not {shown(value)}")
    return value


def check(value: str, what: str) -> None:
    """Raise DataError for text that no tokenizer takes: with a NUL or a lone surrogate.

    `what` names the text in the message.
    """
    reason = unusable(value)
    if reason:
        raise DataError(f"{what} holds {reason}: remove it")


def unusable(value: str) -> str:
    """Return what a tokenizer cannot take in a text, with its place; "" if there is nothing."""
    match = _UNUSABLE.search(value)
    if not match:
        return ""
    kind = "a NUL character" if match[0] == "\0" else f"a lone surrogate (U+{ord(match[0]):X})"
    return f"{kind} at character {match.start()}"


def distinct(values: Iterable[str]) -> tuple[str, ...]:
    """Return the values with outer blanks stripped, each once, in order, without empty ones."""
    return tuple(dict.fromkeys(stripped for value in values if (stripped := value.strip())))


def alike(value: str) -> str:
    """Return a text in lower case with single blanks, so that equal questions have equal groups."""
    return " ".join(value.lower().split())


def digest(value: str) -> str:
    """Return a short name for a long text, such as the document of a group."""
    return hashlib.sha256(value.encode(errors="surrogatepass")).hexdigest()[:16]


def shown(value: Any) -> str:
    """Return the beginning of a value as JSON, for messages."""
    return f"{json.dumps(value, default=str):.40}"


def _first(row: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    return next((row[key] for key in keys if row.get(key) is not None), None)
