"""Canonical JSON and its digests, dataclasses as JSON in keys, and differences of two records."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import Field, fields, is_dataclass
from enum import Enum
from typing import Any, TypeVar

from maskpolicy.core import schema
from maskpolicy.core.errors import ConfigError
from maskpolicy.core.types import Json

_ABSENT = object()
_LONGEST = 40  # characters of a value in a message
T = TypeVar("T")


def canonical(value: Json) -> str:
    """Return the canonical JSON text of `value`: sorted keys, no blanks, ASCII, floats by repr.

    Tuples become lists; 1, 1.0 and True differ. Raises ConfigError as `plain` does.
    """
    return _canonical(plain(value))


def _canonical(value: Json, **more: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, **more)


def digest(value: Json) -> str:
    """Return the sha256 of the canonical JSON of `value`, as 64 hexadecimal digits."""
    return _sha256(canonical(value))


def digest_parsed(value: Json) -> str:
    """Return `digest` of a value from `json.loads`, faster because it copies nothing.

    Raises ValueError, not ConfigError, for NaN, infinities and lone surrogates.
    """
    json.dumps(value, ensure_ascii=False).encode()  # fails on lone surrogates
    return _sha256(_canonical(value))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def plain(value: Json, where: str = "") -> Json:
    """Return a copy of `value` made of dicts, lists and scalars; a dataclass becomes a dict.

    Raises ConfigError, with the place, for values that JSON cannot represent exactly: NaN and
    infinities, lone surrogates, keys that are not strings, sets, paths, arrays.
    """
    if isinstance(value, Enum):
        value = value.value
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ConfigError(f"{where or 'value'}: {value} is not a finite number")
        return float(value)
    if isinstance(value, str):
        return _text(value, where)
    if is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return {
            _name(key, where): plain(item, f"{where}.{key}" if where else str(key))
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    raise ConfigError(
        f"{where or 'value'}: a {type(value).__name__} cannot be written as JSON: "
        "use null, true, false, a number, a string, a list or a mapping"
    )


def to_json(instance: object, where: str = "") -> dict[str, Json]:
    """Return the JSON of a dataclass in a key, without the fields that are `omitted`.

    Raises ConfigError as `plain` does.
    """
    return plain(_keyed(instance), where)


def without_omitted(kind: type, values: Mapping[str, Json]) -> dict[str, Json]:
    """Return the fields of the dataclass `kind` as JSON, without those that keys omit.

    Fields that are dataclasses lose theirs, too.
    """
    blocks = {each.name: each.default_factory for each in fields(kind) if values.get(each.name)}
    omitted = {
        each.name: plain(each.default) for each in fields(kind) if schema.OMIT in each.metadata
    }
    return {
        name: without_omitted(block, value) if is_dataclass(block := blocks.get(name)) else value
        for name, value in values.items()
        if omitted.get(name, _ABSENT) != value
    }


def from_json(kind: type[T], value: Json, where: str = "") -> T:
    """Return an instance of the dataclass `kind` from the JSON that `to_json` returned.

    Missing fields get their defaults. Raises ConfigError for unknown keys and wrong types.
    """
    return schema.check(value, kind, where)


def _keyed(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        kept = [each for each in fields(value) if not _is_omitted(each, value)]
        return {schema.old_name(each): _keyed(getattr(value, each.name)) for each in kept}
    if isinstance(value, Mapping):
        return {key: _keyed(item) for key, item in value.items()}
    return [_keyed(item) for item in value] if isinstance(value, list | tuple) else value


def _is_omitted(each: Field[Any], instance: object) -> bool:
    if schema.OMIT not in each.metadata:
        return False
    when = each.metadata[schema.OMIT]
    return bool(getattr(instance, each.name) == each.default if when is None else when(instance))


def differences(old: Json, new: Json, where: str) -> list[str]:
    """Return "place: old -> new" for each value that differs, sorted by place."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return [
            line
            for name in sorted({*old, *new})
            for line in differences(
                old.get(name, _ABSENT), new.get(name, _ABSENT), f"{where}.{name}"
            )
        ]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [
            line
            for index, pair in enumerate(zip(old, new, strict=True))
            for line in differences(*pair, f"{where}[{index}]")
        ]
    before, after = _shown(old), _shown(new)
    return [] if before == after else [f"{where}: {_cut(before)} -> {_cut(after)}"]


def _text(value: str, where: str) -> str:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise ConfigError(f"{where or 'value'}: {value!r} holds a lone surrogate") from None
    return str(value)


def _name(key: object, where: str) -> str:
    if not isinstance(key, str):
        raise ConfigError(f"{where or 'value'}: the key {key!r} is not a string")
    return _text(key, where)


def _shown(value: object) -> str:
    return "(not there)" if value is _ABSENT else _canonical(plain(value), ensure_ascii=False)


def _cut(text: str) -> str:
    bare = text.strip('"')
    if len(bare) == 64 and set(bare) <= set("0123456789abcdef"):
        return bare[:8]
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
