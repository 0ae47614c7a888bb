"""The labels of rows and columns: the plugin's name, and the settings that distinguish it."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from maskpolicy import keys, schema
from maskpolicy.errors import ConfigError
from maskpolicy.schema import at
from maskpolicy.types import Json

log = logging.getLogger(__name__)


def apart(
    name: str,
    block: Mapping[str, Json],
    others: Sequence[Mapping[str, Json]],
    always: Collection[str] = (),
) -> str:
    """Return a name followed by each setting in which a block differs from one of `others`.

    The keys in `always`, and those of their blocks, are named too. With the defaults as the only
    other block, the name does not depend on other rows.
    """
    known = [_flat(other) for other in others]
    differing = [
        f"{key}={_shown(value)}"
        for key, value in _flat(block).items()
        if any(key == each or key.startswith(f"{each}.") for each in always)
        or any(key not in other or other[key] != value for other in known)
    ]
    return " ".join([name, *differing])


def is_automatic(label: str, name: str) -> bool:
    """Return whether a label is one that `apart` makes for a row of the policy `name`."""
    plain, _, settings = label.partition(" ")
    return plain == name and (not settings or "=" in settings.partition(" ")[0])


def name_all(
    names: Sequence[str],
    given: Sequence[str | None],
    blocks: Sequence[Mapping[str, Json]],
    where: str,
) -> list[str]:
    """Return one label for each block: the given one, or its name and the keys that differ.

    `blocks` holds the keys of each block that may distinguish it. Raises ConfigError if two blocks
    are the same or share a label.
    """
    every = list(zip(names, given, blocks, strict=True))
    labels = []
    for name, label, block in every:
        rivals = [other for rival, stated, other in every if rival == name and stated is None]
        labels.append(apart(name, block, rivals) if label is None else label)
    return distinct(labels, [f"{where}[{index}]" for index in range(len(labels))])


def distinct(labels: list[str], places: Sequence[str]) -> list[str]:
    """Return the labels of the blocks at `places`; raises ConfigError if two are the same."""
    first: dict[str, str] = {}
    for label, place in zip(labels, places, strict=True):
        other = first.setdefault(label, place)
        if other != place:
            raise ConfigError(
                f"{place}: has the label {label!r}, as {other.rpartition(' ')[2]} has: drop one of "
                "them, or give each a `label` of its own"
            )
    return labels


def warn_of_equal_settings(
    what: str, labels: Sequence[str], settings: Sequence[Json], where: str
) -> None:
    """Log a line for each group of rows, or of columns, that differ in their labels alone."""
    groups: dict[str, list[str]] = {}
    for label, each in zip(labels, settings, strict=True):
        groups.setdefault(keys.canonical(each), []).append(repr(label))
    for *most, last in groups.values():
        if most:
            log.warning(
                "%s: the %s %s and %s differ in their labels alone and will have the same scores",
                where,
                what,
                ", ".join(most),
                last,
            )


def named(item: Any, where: str) -> Mapping[str, Any]:
    """Return a row or column as a block; check that its name and label are text."""
    if isinstance(item, str):
        return {"name": item}
    if not isinstance(item, Mapping):
        raise schema.wrong(item, "a name or a block with a name", where)
    if "name" not in item:
        raise ConfigError(f"{where}.name: missing{_with_name(item)}")
    for key in ("name", "label"):
        if key in item:
            schema.check(item[key], str, at(where, key))
            if not item[key].strip():
                raise ConfigError(f"{at(where, key)}: is empty")
    return item


def _with_name(item: Mapping[Any, Any]) -> str:
    """Return what to write for a block without a name, whose only key may be the name."""
    if len(item) == 1 and isinstance(value := next(iter(item.values())), Mapping | None):
        name, rest = next(iter(item)), "".join(f", {key}: .." for key in value or ())
        return f": write {{name: {name}{rest}}}"
    return "; it has no default"


def _flat(block: Mapping[str, Json], before: str = "") -> dict[str, Json]:
    """Return the settings of a block and its nested blocks; a dot in a key joins the blocks."""
    found: dict[str, Json] = {}
    for key, value in block.items():
        place = f"{before}{key}"
        found |= _flat(value, f"{place}.") if isinstance(value, Mapping) else {place: value}
    return found


def _shown(value: Json) -> str:
    if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
        return "+".join(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
