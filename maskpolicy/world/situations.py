"""Situations: a genre of its own, which names two values and tells which one is meant.

As ROPES does, a background says something of a subject, and a situation names two places, people
or others of one kind. What follows is stated, so that the objective of pre-training teaches to read
it off the background. No task asks about the subjects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Literal, TypeAlias, get_args

import numpy as np

from maskpolicy.world.birds import DESCRIBER, HOME
from maskpolicy.world.entries import Entry
from maskpolicy.world.invented_names import Names
from maskpolicy.world.pools import Pools, build, draw
from maskpolicy.world.ropes import SITUATIONS
from maskpolicy.world.settings import Settings

Part: TypeAlias = Literal["general", "situations", "held-out"]
PARTS: tuple[Part, ...] = get_args(Part)
NOUNS = ("bird", "fish", "flower", "tree")


@dataclass(frozen=True)
class Frame:
    """What may be said of a subject.

    Slots: {k} the noun of its kind, {n} its name, {v} the value. `law` tells from the fact what
    `question` asks for, and `told` answers it.
    """

    pool: str  # of the values
    label: str  # of the values, one of spaCy's
    law: str
    fact: str
    question: str
    told: str  # without a capital and a full stop


FRAMES = (
    Frame(
        pool="towns",
        label="GPE",
        law="A {k} is seen only in the town where it lives.",
        fact="The {n} lives in {v}.",
        question="In which of the two is the {n} seen?",
        told="the {n} is seen in {v}",
    ),
    Frame(
        pool="towns",
        label="GPE",
        law="The drawing of a {k} is kept in the town where it was found.",
        fact="The {n} was found in {v}.",
        question="In which of the two is the drawing of the {n}?",
        told="the drawing of the {n} is in {v}",
    ),
    Frame(
        pool="teachers",
        label="PERSON",
        law="The first to describe a {k} gives it its name.",
        fact="The {n} was first described by {v}.",
        question="Who of the two named the {n}?",
        told="the {n} was named by {v}",
    ),
    Frame(
        pool="teachers",
        label="PERSON",
        law="The first to find a {k} keeps the drawing of it.",
        fact="The {n} was found by {v}.",
        question="Who of the two keeps the drawing of the {n}?",
        told="the drawing of the {n} is kept by {v}",
    ),
    Frame(
        pool="rivers",
        label="LOC",
        law="A {k} is found only beside the river from which it drinks.",
        fact="The {n} drinks from the {v}.",
        question="Beside which of the two is the {n} found?",
        told="the {n} is found beside the {v}",
    ),
    Frame(
        pool="companies",
        label="ORG",
        law="A {k} is sold by the company that keeps it.",
        fact="The {n} is kept by {v}.",
        question="By which of the two is the {n} sold?",
        told="the {n} is sold by {v}",
    ),
    Frame(
        pool="schools",
        label="ORG",
        law="People learn of a {k} at the school that describes it.",
        fact="The {n} is described at {v}.",
        question="At which of the two do people learn of the {n}?",
        told="people learn of the {n} at {v}",
    ),
    Frame(
        pool="deaths",
        label="DATE",
        law="A {k} is named in the year in which it is found.",
        fact="The {n} was found in the year {v}.",
        question="In which of the two was the {n} named?",
        told="the {n} was named in the year {v}",
    ),
)
NAMING = {
    "towns": (
        *SITUATIONS[HOME.name],
        "There is a road from {a} to {b}.",
        "A letter from {a} came to {b}.",
        "One town is {a}, the other is {b}.",
        "The teacher lived in {a}, the writer lived in {b}.",
    ),
    "teachers": (
        *SITUATIONS[DESCRIBER.name],
        "{a} wrote a letter to {b}.",
        "{a} and {b} went to school in one town.",
        "One writer was called {a}, the other was called {b}.",
        "The first house is that of {a}, the other is that of {b}.",
    ),
    "rivers": (
        "The town is on the banks of the {a} and of the {b}.",
        "People went from the {a} to the {b}.",
        "One river is the {a}, the other is the {b}.",
        "The teacher lived beside the {a}, the writer lived beside the {b}.",
    ),
    "companies": (
        "One employer was {a}, the other was {b}.",
        "The teacher worked for {a}, the writer worked for {b}.",
        "A letter from {a} came to {b}.",
        "The first house is that of {a}, the other is that of {b}.",
    ),
    "schools": (
        "The first school is {a}, the other is {b}.",
        "The teacher was educated at {a}, the writer was educated at {b}.",
        "People went from {a} to {b}.",
        "A letter from {a} came to {b}.",
    ),
    "deaths": (
        "The first letter came in the year {a}, the other came in the year {b}.",
        "The teacher died in the year {a}, the writer died in the year {b}.",
        "One year was {a}, the other was {b}.",
        "The first award is of the year {a}, the other is of the year {b}.",
    ),
}
"""By pool, the sentences that name two of its values, {a} and {b}; ROPES' own are among them."""
TWO_FACTS = 0.5  # share of the backgrounds that say something else of the subject too


def situations(settings: Settings, part: Part, count: int) -> Iterator[Entry]:
    """Yield `count` situations of a part of the world, each about a subject of its own.

    No two parts share a subject. Both values are drawn alike: only the text tells which is meant.
    """
    pools = build(settings)
    names = Names(np.random.default_rng([settings.seed, 18])).draw("thing", count * len(PARTS))
    turn = PARTS.index(part)
    for number, name in enumerate(names[turn :: len(PARTS)]):
        rng = np.random.default_rng([settings.seed, 19, turn, number])
        yield _situation(f"{part}-situation-{number}", name.lower(), pools, rng)


def _situation(id: str, name: str, pools: Pools, rng: np.random.Generator) -> Entry:
    frame = draw(FRAMES, 0, rng)
    frames = [frame]
    if rng.random() < TWO_FACTS:
        frames.append(draw([other for other in FRAMES if other.pool != frame.pool], 0, rng))
    two = rng.choice([value.text for value in pools.values[frame.pool]], 2, replace=False).tolist()
    right = two[int(rng.integers(2))]
    values = [right, *(draw(pools.values[other.pool], 0, rng).text for other in frames[1:])]
    about = {"n": name, "k": draw(NOUNS, 0, rng)}
    text = _Text()
    background = [(frames[i], values[i]) for i in rng.permutation(len(frames)).tolist()]
    form = int(rng.integers(3))
    if form == 0:  # the order of a source of the task ROPES
        text.say(frame.question, about, frame.label)
    if form == 1:
        text.tell(background, about)
    naming = about | {"a": two[0], "b": two[1]}
    text.say(draw(NAMING[frame.pool], 0, rng), naming, frame.label)
    if form != 1:
        text.tell(background, about)
    told = f"So {frame.told}." if rng.integers(2) else f"{frame.told[0].upper()}{frame.told[1:]}."
    text.say(told, about | {"v": right}, frame.label)
    return Entry(id, name, text.text, tuple(text.entities), (), {})


class _Text:
    """Sentences with their gold entities: the values of the slots {a}, {b} and {v}."""

    def __init__(self) -> None:
        self.text = ""
        self.entities: list[tuple[int, int, str]] = []

    def say(self, wording: str, slots: dict[str, str], label: str) -> None:
        """Append a sentence."""
        self.text += " " if self.text else ""
        for before, slot, _, _ in Formatter().parse(wording):
            self.text += before
            if slot is not None:
                start = len(self.text)
                self.text += slots[slot]
                if slot in "abv":
                    self.entities.append((start, len(self.text), label))

    def tell(self, background: Sequence[tuple[Frame, str]], about: dict[str, str]) -> None:
        """Append the law and the fact of each frame."""
        for frame, value in background:
            self.say(frame.law, about, frame.label)
            self.say(frame.fact, about | {"v": value}, frame.label)
