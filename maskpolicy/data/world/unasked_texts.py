"""Text without questions of tasks: entries for analyses, situations, and held-out text.

As in ROPES, a background states a fact of a subject, and a situation names two places, people or
other values. It ends with the one that follows from the background, so pre-training teaches models
to find it there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Literal, TypeAlias, get_args

import numpy as np

from maskpolicy.core.errors import ConfigError
from maskpolicy.data.world import subject_kinds
from maskpolicy.data.world.choice_tasks import SITUATIONS
from maskpolicy.data.world.entries import Entry, Subject, Text, entries
from maskpolicy.data.world.pools import Names, Pools, build, draw
from maskpolicy.data.world.prose import passages, prose
from maskpolicy.data.world.subject_kinds import (
    DESCRIBER,
    FRAMES,
    HOME,
    described,
    person,
    subjects,
)
from maskpolicy.experiment.world_settings import Settings

MASK = "<mask>"
Part: TypeAlias = Literal["train", "dev", "test"]
SHARERS = 3  # the fewest people with a shared value: it must be in more than one part
_PARTS = 3  # the fewest people, and the fewest facts of each


@dataclass(frozen=True)
class Blank:
    """A passage of the tasks' corpus with one asked value masked."""

    kind: str  # of the subject
    relation: str  # of the masked value
    entry: str  # id of the entry
    text: str  # with MASK for the value
    value: str
    name: tuple[int, int]  # the place of the subject's name in `text`
    other: str  # another subject's name, of the same kind and with the same pronouns

    @property
    def renamed(self) -> str:
        """The text about the other subject."""
        return self.with_name(self.other)

    def with_name(self, name: str) -> str:
        """Return the text with `name` instead of the subject's."""
        start, end = self.name
        return self.text[:start] + name + self.text[end:]


def blanks(settings: Settings) -> Iterator[Blank]:
    """Yield a Blank for each asked value of each passage about the tasks' subjects."""
    pools = build(settings)
    everybody = {
        kind: list(subjects(settings, pools, kind, "intermediate")) for kind in settings.kinds
    }
    kinds = {subject.page: kind for kind, those in everybody.items() for subject in those}
    found: Iterable[Entry] = prose(settings, pools, "intermediate")
    if settings.text == "entries":
        everyone = chain.from_iterable(everybody.values())
        found = chain.from_iterable(described(settings, subject) for subject in everyone)
    others: dict[int, tuple[list[str], np.random.Generator]] = {}
    for entry in found:
        for (start, end, relation), (subject, name) in zip(entry.asked, entry.told, strict=True):
            kind = kinds[subject.page]
            if subject.page not in others:
                names = [
                    one.called
                    for one in everybody[kind]
                    if one.pronouns == subject.pronouns and one.page != subject.page
                ]
                rng = np.random.default_rng([settings.seed, 17, subject.page])
                others[subject.page] = (names, rng)
            names, rng = others[subject.page]
            if not names:
                continue
            shift = len(MASK) - (end - start) if start < name[0] else 0
            yield Blank(
                kind=kind,
                relation=relation,
                entry=entry.id,
                text=f"{entry.text[:start]}{MASK}{entry.text[end:]}",
                value=entry.text[start:end],
                name=(name[0] + shift, name[1] + shift),
                other=names[int(rng.integers(len(names)))],
            )


def majority(found: Sequence[Blank]) -> float:
    """Return the share of blanks whose value is the most frequent one of their relation."""
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for blank in found:
        counts[blank.kind, blank.relation][blank.value] += 1
    return sum(max(counter.values()) for counter in counts.values()) / len(found)


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
    by_fact: Part  # all entries of one fact are in one part, and each person is in every part
    by_person: Part  # all entries about one person are in one part


def probed_entries(settings: Settings, people: int, seed: int) -> list[ProbedEntry]:
    """Return the entries about the first `people` people of the tasks' corpus.

    `seed` draws the parts. Raises ConfigError if entries state several facts, or if there are too
    few people or facts for three parts.
    """
    if settings.facts != 1 or settings.text != "entries":
        raise ConfigError(
            "probe: needs entries that state one fact each: leave world.facts and world.text out"
        )
    if settings.asked + settings.never < _PARTS:
        raise ConfigError(f"probe: needs people with {_PARTS} facts: raise world.asked")
    if people < _PARTS:
        raise ConfigError(f"probe: needs {_PARTS} people: raise people")
    every = subjects(settings, build(settings), "people", "intermediate")
    chosen = list(islice(every, people))
    pairs = zip(chosen, _parts(len(chosen), seed), strict=True)
    return [entry for subject, part in pairs for entry in _of(subject, settings, part, seed)]


def shared_values(entries: Sequence[ProbedEntry]) -> set[str]:
    """Return the values of at least SHARERS people."""
    people: dict[str, set[str]] = defaultdict(set)
    for entry in entries:
        people[entry.value].add(entry.person)
    return {value for value, owners in people.items() if len(owners) >= SHARERS}


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
    """Yield the entries about a person; one fact is in dev, another in test."""
    drawn = np.random.default_rng([seed, 2, subject.page]).permutation(len(subject.facts))
    values = {fact.relation.name: fact.value.text for fact in subject.facts}
    names = [*values]
    parts: dict[str, Part] = dict.fromkeys(names, "train")
    parts |= {names[int(drawn[0])]: "test", names[int(drawn[1])]: "dev"}
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
            stated=next((a, b) for a, b, _ in entry.entities if a >= statement[0]),
            by_fact=parts[relation],
            by_person=by_person,
        )


WorldPart: TypeAlias = Literal["general", "situations", "held-out"]
PARTS: tuple[WorldPart, ...] = get_args(WorldPart)
NOUNS = ("bird", "fish", "flower", "tree")


_OF_ROPES = {"towns": SITUATIONS[HOME.name], "teachers": SITUATIONS[DESCRIBER.name]}
NAMING = {
    pool: (*_OF_ROPES.get(pool, ()), *sentences) for pool, sentences in subject_kinds.NAMING.items()
}
"""By pool, the sentences with two of its values, {a} and {b}, including those of ROPES."""
TWO_FACTS = 0.5  # share of the backgrounds with a second fact


def situations(settings: Settings, part: WorldPart, count: int) -> Iterator[Entry]:
    """Yield `count` situations of a part of the world, each about another subject.

    Parts share no subject. Both values are drawn uniformly, so only the text decides between them.
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
    background = [
        (wording, {"v": values[i]}, frames[i].label)
        for i in rng.permutation(len(frames)).tolist()
        for wording in (frames[i].law, frames[i].fact)
    ]
    form = int(rng.integers(3))
    naming = (draw(NAMING[frame.pool], 0, rng), {"a": two[0], "b": two[1]}, frame.label)
    told = f"So {frame.told}." if rng.integers(2) else f"{frame.told[0].upper()}{frame.told[1:]}."
    sentences = [*background, naming] if form == 1 else [naming, *background]
    if form == 0:  # the order of a source of the task ROPES
        sentences = [(frame.question, {}, frame.label), *sentences]
    text = Text()
    for wording, slots, label in (*sentences, (told, {"v": right}, frame.label)):
        text.say(wording, about | slots, dict.fromkeys("abv", label))
    return Entry(id, name, text.text, tuple(text.entities), (), {})


def held_out(settings: Settings, count: int) -> Iterator[Entry]:
    """Yield `count` passages about people who occur in no other text, one entry about each.

    Their names have the same parts, and their values come from the same pools: as in the general
    corpus, only the facts are new. The number of full names is a limit. If the general corpus has
    situations, the same share of the `count` are situations, at the end.
    """
    pools = build(settings)
    others = round(count * settings.situations)
    taken = settings.people + settings.general_people + settings.teachers
    page = 1 + sum(settings.count(kind) for kind in settings.kinds)
    people = (
        person(settings, pools, taken + number, page + number)
        for number in range(min(count - others, len(pools.names) - taken))
    )
    text: Iterable[Entry] = passages(settings, people, "held-out")
    if settings.text == "entries":
        of_each = (1, settings.facts, settings.seed, settings.endings)
        text = (entries(subject, *of_each)[0] for subject in people)
    yield from islice(text, count - others)
    yield from situations(settings, "held-out", others)
