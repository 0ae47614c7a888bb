"""Entities as a tagger that errs would find them: some are missing, some are other words."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from maskpolicy.types import Json
from maskpolicy.world.entries import Entry
from maskpolicy.world.pools import draw
from maskpolicy.world.settings import WITH_ERRORS, EntityErrors

_RUN = re.compile(r"\w+(?: \w+)*")  # words with nothing but blanks between them
_WORD = re.compile(r"\w+")


def row(entry: Entry, errors: EntityErrors, seed: Sequence[int]) -> Json:
    """Return an entry as a line of a corpus file, with the column if there are errors."""
    if errors == EntityErrors():
        return entry.row
    return entry.row | {WITH_ERRORS: _with_errors(entry, errors, np.random.default_rng(seed))}


def _with_errors(entry: Entry, errors: EntityErrors, rng: np.random.Generator) -> list[Json]:
    """Return the entities that are kept, and wrong ones of as many words, in text order.

    A wrong one lies within a sentence and touches no entity. Where no words are left for it, the
    entity is dropped.
    """
    drawn = rng.random(len(entry.entities))
    found = [
        entity
        for entity, chance in zip(entry.entities, drawn, strict=True)
        if chance >= errors.dropped + errors.wrong
    ]
    taken = [(start, end) for start, end, _ in entry.entities]
    for (start, end, label), chance in zip(entry.entities, drawn, strict=True):
        if errors.dropped <= chance < errors.dropped + errors.wrong:
            count = len(_WORD.findall(entry.text[start:end]))
            if free := _free(entry.text, count, taken):
                place = draw(free, 0, rng)
                taken.append(place)
                found.append((*place, label))
    return [list(entity) for entity in sorted(found)]


def _free(text: str, count: int, taken: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the ranges of `count` words in a row that touch none of those taken."""
    ranges = []
    for run in _RUN.finditer(text):
        words = [word.span() for word in _WORD.finditer(text, *run.span())]
        ranges += [
            (first[0], last[1]) for first, last in zip(words, words[count - 1 :], strict=False)
        ]
    return [(a, b) for a, b in ranges if not any(a < end and start < b for start, end in taken)]
