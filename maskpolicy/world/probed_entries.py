"""Entries about people with what a linear probe asks of their tokens, and the parts of a probe."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal, TypeAlias

import numpy as np

from maskpolicy.errors import ConfigError
from maskpolicy.world.entries import Entry
from maskpolicy.world.pools import build
from maskpolicy.world.settings import Settings
from maskpolicy.world.subject_kinds import described, subjects
from maskpolicy.world.subjects import Subject

Part: TypeAlias = Literal["train", "dev", "test"]
SHARERS = 3  # people who share a value: with fewer, no part but one has it
_PARTS = 3  # the fewest people, and the fewest facts of each


@dataclass(frozen=True)
class ProbedEntry:
    """An entry of one fact; ranges are half-open ranges of characters of `text`."""

    text: str
    person: str
    relation: str
    value: str
    name: tuple[int, int]
    statement: tuple[int, int]  # the sentence that states the fact
    stated: tuple[int, int]  # the value in it
    by_fact: Part  # all entries of one fact are in one part, and each person in every part
    by_person: Part  # all entries about one person are in one part


def probed_entries(settings: Settings, people: int, seed: int) -> list[ProbedEntry]:
    """Return the entries about the first `people` people of the tasks' corpus.

    `seed` draws the parts. Raises ConfigError for a world whose entries state several facts, and
    for one with too few people or facts for three parts.
    """
    if settings.facts != 1:
        raise ConfigError("probe: needs entries that state one fact each: world.facts: 1")
    if settings.asked + settings.never < _PARTS:
        raise ConfigError(f"probe: needs people with {_PARTS} facts: raise world.asked")
    if people < _PARTS:
        raise ConfigError(f"probe: needs {_PARTS} people: raise people")
    every = subjects(settings, build(settings), "people", "intermediate")
    known = list(islice(every, people))
    parts = _parts(len(known), seed)
    return [
        entry
        for subject, by_person in zip(known, parts, strict=True)
        for entry in _of(subject, settings, by_person, seed)
    ]


def shared_values(entries: Sequence[ProbedEntry]) -> set[str]:
    """Return the values that at least SHARERS people have."""
    people: dict[str, set[str]] = defaultdict(set)
    for entry in entries:
        people[entry.value].add(entry.person)
    return {value for value, known in people.items() if len(known) >= SHARERS}


def _parts(count: int, seed: int) -> list[Part]:
    """Draw a part for each of `count` people: a fifth dev, a fifth test, at least one each."""
    fifth = max(1, count // 5)
    parts: list[Part] = ["train"] * count
    order = np.random.default_rng([seed, 1]).permutation(count).tolist()
    for place in order[:fifth]:
        parts[place] = "test"
    for place in order[fifth : 2 * fifth]:
        parts[place] = "dev"
    return parts


def _of(subject: Subject, settings: Settings, by_person: Part, seed: int) -> Iterator[ProbedEntry]:
    """Yield the entries about a person; one of the facts is dev, another one is test."""
    drawn = np.random.default_rng([seed, 2, subject.page]).permutation(len(subject.facts))
    parts: dict[str, Part] = {fact.relation.name: "train" for fact in subject.facts}
    parts[subject.facts[int(drawn[0])].relation.name] = "test"
    parts[subject.facts[int(drawn[1])].relation.name] = "dev"
    values = {fact.relation.name: fact.value.text for fact in subject.facts}
    for entry in described(settings, subject):
        ((relation, statement),) = entry.sentences.items()
        start = entry.text.index(subject.called)
        yield ProbedEntry(
            text=entry.text,
            person=subject.title,
            relation=relation,
            value=values[relation],
            name=(start, start + len(subject.called)),
            statement=statement,
            stated=_stated(entry, statement),
            by_fact=parts[relation],
            by_person=by_person,
        )


def _stated(entry: Entry, statement: tuple[int, int]) -> tuple[int, int]:
    """Return where the statement has its value, its only entity."""
    return next((a, b) for a, b, _ in entry.entities if a >= statement[0])
