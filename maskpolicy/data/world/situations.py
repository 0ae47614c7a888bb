"""Text that no task asks about: situations, and text that no corpus holds.

A situation names two values and tells which one is meant. As ROPES does, a background says
something of a subject, and a situation names two places, people or others of one kind. What follows
is stated, so that the objective of pre-training teaches to read it off the background.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from string import Formatter
from typing import Literal, TypeAlias, get_args

import numpy as np

from maskpolicy.data.world import wordings
from maskpolicy.data.world.choice_tasks import SITUATIONS
from maskpolicy.data.world.entries import Entry, entries
from maskpolicy.data.world.pools import Names, Pools, build, draw
from maskpolicy.data.world.subject_kinds import person
from maskpolicy.data.world.wordings import DESCRIBER, FRAMES, HOME, Frame
from maskpolicy.experiment.world_settings import Settings

Part: TypeAlias = Literal["general", "situations", "held-out"]
PARTS: tuple[Part, ...] = get_args(Part)
NOUNS = ("bird", "fish", "flower", "tree")


_OF_ROPES = {"towns": SITUATIONS[HOME.name], "teachers": SITUATIONS[DESCRIBER.name]}
NAMING = {
    pool: (*_OF_ROPES.get(pool, ()), *sentences) for pool, sentences in wordings.NAMING.items()
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


def held_out(settings: Settings, count: int) -> Iterator[Entry]:
    """Yield one entry about each of at most `count` people whom no other text mentions.

    Their names are put together from the same parts, their facts' values come from the same pools:
    as in the general corpus, only the facts are new. There are as many as there are full names. If
    the general corpus has situations, a like share of the `count` are situations, at the end.
    """
    pools = build(settings)
    others = round(count * settings.situations)
    taken = settings.people + settings.general_people + settings.teachers
    page = 1 + sum(settings.count(kind) for kind in settings.kinds)
    for number in range(min(count - others, len(pools.names) - taken)):
        subject = person(settings, pools, taken + number, page + number)
        yield entries(subject, 1, settings.facts, settings.seed, settings.endings)[0]
    yield from situations(settings, "held-out", others)
