"""The built-in rules, which find names, dates, times and numbers in English text.

The rules and tests/data/entities.jsonl follow the same conventions. A span holds a whole name with
its title and initials, a whole date, a time of day, or a number with its scale and unit. Articles,
possessive endings and words such as "about", "early" or "last" are not part of a span.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

VERSION = 2  # part of the stage key: raise it when the rules find other spans or labels
LABELS = ("NAME", "DATE", "TIME", "NUMBER")
Entity: TypeAlias = tuple[int, int, str]  # characters [start, end), one of LABELS


def find(text: str) -> list[Entity]:
    """Return the names, dates, times and numbers of `text`, sorted and disjoint."""
    from maskpolicy.data.corpus.entities import rules  # its patterns take a while

    counted = disjoint(rules.find_numbers(text))
    dates = [entity for entity in counted if entity[2] != "NUMBER"]
    return disjoint([*dates, *rules.find_names(_blank(text, dates)), *counted])


def disjoint(entities: Iterable[Entity]) -> list[Entity]:
    """Keep the first of overlapping entities; of equal starts the longest, then first listed."""
    kept: list[Entity] = []
    for entity in sorted(entities, key=lambda e: (e[0], -e[1])):
        if not kept or entity[0] >= kept[-1][1]:
            kept.append(entity)
    return kept


def _blank(text: str, spans: list[Entity]) -> str:
    """Return `text` with the characters of `spans` replaced by commas, which end a name."""
    parts, at = [], 0
    for start, end, _ in spans:
        parts += [text[at:start], "," * (end - start)]
        at = end
    return "".join([*parts, text[at:]])
