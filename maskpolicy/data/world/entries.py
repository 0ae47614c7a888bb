"""The subjects of the world with their facts, the entries that state them, and files of rows.

An entry has its facts in random order, and gold entities. Files are written row by row, so a world
of any size fits in memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from string import Formatter
from typing import NamedTuple, TextIO, TypeAlias

import numpy as np

from maskpolicy.core.types import Json
from maskpolicy.data.world.pools import WORDINGS, Pools, Value
from maskpolicy.experiment.world_settings import Settings


@dataclass(frozen=True)
class Relation:
    """One relation of a kind of subject, and all its wordings.

    Slots: {v} the value, {S} {s} {p} {P} {o} the pronouns He, he, his, His, him, {n} the name.
    """

    name: str  # zsRE's label; some of the phrasings say it in words
    phrasings: tuple[str, ...]  # whole sentences, each with {v} once, mostly at the end
    fronted: tuple[str, ...] = ()  # the same with {v} at the start, for prose
    pool: str = ""  # of its values
    label: str = ""  # of its values, one of spaCy's; "": ordinary words, no entities
    asked: bool = False
    questions: tuple[str, ...] = ()  # TriviaQA's, or NQ's
    ask: tuple[str, str] = ("", "")  # indirect question: "where", "{s} was born"
    clause: str = ""  # answer in a dialogue: "in {v}"


@dataclass(frozen=True)
class Fact:
    """One relation of a subject with its value."""

    relation: Relation
    value: Value


IT = {"s": "it", "S": "It", "p": "its", "P": "Its", "o": "it"}
SHE = {"s": "she", "S": "She", "p": "her", "P": "Her", "o": "her"}
HE = {"s": "he", "S": "He", "p": "his", "P": "His", "o": "him"}


@dataclass(frozen=True)
class Subject:
    """Somebody or something with a page in the encyclopaedia."""

    page: int  # unique in the world
    title: str  # the full name, unique in the world
    label: str  # of the name, one of spaCy's; "": an ordinary noun, no entity
    noun: str  # of its kind, the same for all: person, bird
    pronouns: Mapping[str, str]  # HE, SHE or IT: by the names of the slots in phrasings
    openers: tuple[str, ...]  # first sentences with {n}
    facts: tuple[Fact, ...]
    short: str = ""  # its name in entries, if that is not the title

    @property
    def called(self) -> str:
        """The name that the entries and the questions use."""
        return self.short or self.title

    @property
    def asked(self) -> tuple[Fact, ...]:
        """The facts that tasks ask for."""
        return tuple(fact for fact in self.facts if fact.relation.asked)

    @property
    def file(self) -> str:
        """The name of its evidence document."""
        return self.title.replace(" ", "_") + ".txt"


@dataclass(frozen=True)
class Entry:
    """One entry; all ranges are half-open ranges of characters of `text`."""

    id: str
    title: str
    text: str
    entities: tuple[tuple[int, int, str], ...]  # start, end, spaCy's label; in text order
    asked: tuple[tuple[int, int, str], ...]  # start, end, relation: the entities that are asked for
    sentences: Mapping[str, tuple[int, int]]  # relation -> the sentence that states it
    # of each in `asked`, its subject and where that is named
    told: tuple[tuple[Subject, tuple[int, int]], ...] = ()

    @property
    def row(self) -> Json:
        """The entry as a line of a corpus file; without a title it has those of its subjects."""
        about: Json = {"title": self.title}
        if not self.title:
            about = {"subjects": [subject.title for subject, _ in self.told]}
        return {
            "id": self.id,
            **about,
            "text": self.text,
            "entities": [list(entity) for entity in self.entities],
            "asked": [list(entity) for entity in self.asked],
        }


def entries(
    subject: Subject, count: int, facts: int, seed: int, endings: float = 0.0
) -> list[Entry]:
    """Return `count` entries of a subject with `facts` of its facts each (0: all of them).

    About a share `endings` of them, drawn one by one, has one of the world's last sentences.

    All facts are stated equally often, and a fact's wordings repeat only once all were used. Except
    for the name and the facts, entries have the same words for all subjects, and by default state
    one fact: only the name determines a masked value.
    """
    rng = np.random.default_rng([seed, 2, subject.page])
    openers = rng.permutation(len(subject.openers)).tolist()
    wordings = [rng.permutation(len(fact.relation.phrasings)).tolist() for fact in subject.facts]
    said = [0] * len(subject.facts)
    in_order = []
    for number in range(count):
        opener = subject.openers[openers[number % len(openers)]]
        order = rng.permutation(len(said))
        least = sorted(order.tolist(), key=said.__getitem__)[: facts or len(said)]
        chosen = {i: wordings[i][said[i] % len(wordings[i])] for i in least}
        for i in least:
            said[i] += 1
        in_order.append(_entry(subject, number, opener, chosen, rng.permutation(least).tolist()))
    for i, entry in enumerate(in_order):
        rng = np.random.default_rng([seed, 21, subject.page, i])
        if rng.random() < endings:
            ending = WORDINGS["endings"][int(rng.integers(len(WORDINGS["endings"])))]
            in_order[i] = replace(entry, text=f"{entry.text} {ending}")
    return in_order


def _entry(
    subject: Subject, number: int, opener: str, wordings: Mapping[int, int], order: list[int]
) -> Entry:
    text = Text()
    name = text.say(opener, {"n": subject.called}, {"n": subject.label})["n"]
    asked, sentences = [], {}
    for i in order:
        relation, value = subject.facts[i].relation, subject.facts[i].value.text
        begin = len(text.text) + 1
        slots = {**subject.pronouns, "v": value}
        stated = text.say(relation.phrasings[wordings[i]], slots, {"v": relation.label})["v"]
        sentences[relation.name] = (begin, len(text.text))
        if relation.asked:
            asked.append((*stated, relation.name))
    id = f"{subject.page}-{number + 1}"
    told = ((subject, name),) * len(asked)
    return Entry(id, subject.title, text.text, tuple(text.entities), tuple(asked), sentences, told)


class Text:
    """Sentences with their gold entities, put together from wordings."""

    def __init__(self) -> None:
        """Begin with no text."""
        self.text = ""
        self.entities: list[tuple[int, int, str]] = []

    def say(
        self, wording: str, slots: Mapping[str, str], labels: Mapping[str, str]
    ) -> dict[str, tuple[int, int]]:
        """Append a wording, and return the places of its slots; one with a label is an entity."""
        places = {}
        self.text += " " if self.text else ""
        for before, slot, _, _ in Formatter().parse(wording):
            self.text += before
            if slot is not None:
                start = len(self.text)
                self.text += slots[slot]
                places[slot] = (start, len(self.text))
                if labels.get(slot):
                    self.entities.append((*places[slot], labels[slot]))
        return places


class Format(NamedTuple):
    """The text around the rows of a file; by default, a row is a line."""

    head: str = ""
    between: str = "\n"
    foot: str = "\n"  # not of an empty file of lines


LINES, LIST = Format(), Format("[\n", ",\n", "\n]\n")


class World(NamedTuple):
    """The settings and pools of a world, which the rows of tasks depend on."""

    settings: Settings
    pools: Pools


Rows: TypeAlias = Iterator[tuple[str, Json]]
"""(name of a file, row): JSON, or the text of a line"""


@dataclass(frozen=True)
class TaskFiles:
    """The files of one task in its official format."""

    name: str
    kind: str  # of the subjects that it asks about; "": all of them
    files: tuple[str, ...]  # its train file, and the file of its test split
    formats: Mapping[str, Format]  # of all files that it writes
    rows: Callable[[World, Subject, list[Entry], str], Rows]
    """(world, subject, its entries, "train" or "dev") -> the task's rows about the subject"""


def task_files(
    name: str, kind: str, files: Sequence[str], formats: Mapping[str, Format] | None = None
) -> Callable[[Callable[[World, Subject, list[Entry], str], Rows]], TaskFiles]:
    """Turn a function `rows` into TaskFiles; by default, the rows of `files` are lines."""
    of_files = dict.fromkeys(files, LINES) if formats is None else formats
    return lambda rows: TaskFiles(name, kind, tuple(files), of_files, rows)


class Files(AbstractContextManager["Files"]):
    """A folder of files that are written row by row and closed together."""

    def __init__(self, folder: Path) -> None:
        """Write below `folder`, which is created."""
        self._folder = folder
        self._files: dict[str, tuple[TextIO, Format]] = {}
        self.rows: dict[str, int] = {}

    def open(self, name: str, form: Format = LINES) -> None:
        """Open a file for rows."""
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = path.open("w", encoding="utf-8", newline="\n")
        stream.write(form.head)
        self._files[name] = (stream, form)
        self.rows[name] = 0

    def write(self, name: str, row: Json) -> None:
        """Append one row."""
        stream, form = self._files[name]
        text = row if isinstance(row, str) else json.dumps(row, ensure_ascii=False)
        stream.write((form.between if self.rows[name] else "") + text)
        self.rows[name] += 1

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close all files; after an exception they are incomplete."""
        for name, (stream, form) in self._files.items():
            with stream:
                if kind is None and (self.rows[name] or form != LINES):
                    stream.write(form.foot)
