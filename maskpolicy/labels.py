"""Names rows and columns: the plugin's name, plus the keys that differ when two would share it."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from maskpolicy.errors import ConfigError
from maskpolicy.types import Json


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
    labels = list(given)
    for name, members in rivals.items():
        for index in members:
            labels[index] = _label(name, blocks[index], [blocks[i] for i in members])
    result = [label for label in labels if label is not None]
    for label, count in Counter(result).items():
        if count > 1:
            raise ConfigError(f"{where}: {count} blocks are called {label!r}: give each a label")
    return result


def _label(name: str, block: Mapping[str, Json], rivals: Sequence[Mapping[str, Json]]) -> str:
    differ = [key for key in block if any(rival[key] != block[key] for rival in rivals)]
    return " ".join([name, *(f"{key}={_shown(block[key])}" for key in differ)])


def _shown(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
