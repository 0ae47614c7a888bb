"""Names of rows and columns: the plugin's name, and the settings that tell it apart."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from maskpolicy.errors import ConfigError
from maskpolicy.types import Json


def automatic(name: str, block: Mapping[str, Json], defaults: Mapping[str, Json]) -> str:
    """Return a name that tells every setting of a block which is not the default.

    So it stays the same whatever stands beside it. A setting without a default is always told.
    """
    return apart(name, block, [defaults])


def is_automatic(label: str, name: str) -> bool:
    """Whether a name is such as is made for a row of the policy `name` that is given none."""
    plain, _, settings = label.partition(" ")
    return plain == name and (not settings or "=" in settings.partition(" ")[0])


def apart(name: str, block: Mapping[str, Json], others: Sequence[Mapping[str, Json]]) -> str:
    """Return a name that tells every setting of a block in which it differs from another one."""
    missing = object()
    known = [_flat(other) for other in others]
    mine = _flat(block)
    return _label(
        name,
        {
            key: value
            for key, value in mine.items()
            if any(each.get(key, missing) != value for each in known)
        },
    )


def name_all(
    names: Sequence[str],
    given: Sequence[str | None],
    blocks: Sequence[Mapping[str, Json]],
    where: str,
) -> list[str]:
    """Return one label for each block: the given one, else made from name and differing keys.

    `blocks` holds every key of each block that may tell it apart. Raises ConfigError for two
    blocks that are the same or share a label.
    """
    rivals: dict[str, list[int]] = defaultdict(list)
    for index, (name, label) in enumerate(zip(names, given, strict=True)):
        if label is None:
            rivals[name].append(index)
    labels = {index: label for index, label in enumerate(given) if label is not None}
    for name, members in rivals.items():
        others = [blocks[index] for index in members]
        for index in members:
            labels[index] = apart(name, blocks[index], others)
    return distinct([labels[index] for index in range(len(names))], where)


def distinct(labels: list[str], where: str) -> list[str]:
    """Return the labels; raises ConfigError for one that is there twice."""
    for label, count in Counter(labels).items():
        if count > 1:
            raise ConfigError(f"{where}: {count} blocks are called {label!r}: give each a label")
    return labels


def _label(name: str, settings: Mapping[str, Json]) -> str:
    return " ".join([name, *(f"{key}={_shown(value)}" for key, value in settings.items())])


def _flat(block: Mapping[str, Json], before: str = "") -> dict[str, Json]:
    """Return the settings of a block and of the blocks in it, with a dot for each block."""
    found: dict[str, Json] = {}
    for key, value in block.items():
        place = f"{before}{key}"
        found |= _flat(value, f"{place}.") if isinstance(value, Mapping) else {place: value}
    return found


def _shown(value: Json) -> str:
    if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
        return "+".join(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
