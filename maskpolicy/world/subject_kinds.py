"""The kinds of subjects: who they are, and how many entries each has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from maskpolicy.world import birds, people, salts, writers
from maskpolicy.world.entries import Entry, entries
from maskpolicy.world.pools import Pools
from maskpolicy.world.settings import SUBJECT_KINDS, Settings
from maskpolicy.world.subjects import Subject

# each returns subject number `index` of its kind; the last argument is its page in the world
MAKERS: Mapping[str, Callable[[Settings, Pools, int, int], Subject]] = {
    "people": people.person,
    "writers": writers.writer,
    "birds": birds.bird,
    "salts": salts.salt,
}


def subjects(settings: Settings, pools: Pools, kind: str, corpus: str) -> Iterator[Subject]:
    """Yield the subjects of a kind in the "general" or "intermediate" corpus, one at a time."""
    before = SUBJECT_KINDS[: SUBJECT_KINDS.index(kind)]
    page = 1 + sum(settings.count(other) for other in before if other in settings.kinds)
    general, both = settings.general(kind), settings.count(kind)
    for index in range(general) if corpus == "general" else range(general, both):
        yield MAKERS[kind](settings, pools, index, page + index)


def described(settings: Settings, subject: Subject) -> list[Entry]:
    """Return the entries of a subject: its facts are stated as often as a person's, laws twice."""
    person, own = settings.asked + settings.never, len(subject.facts)
    stated = min(settings.facts or person, person)
    here = min(settings.facts or own, own)
    repeats = salts.REPEATS if subject.noun == salts.NOUN else 1
    count = -(-settings.entries * repeats * stated * own // (person * here))
    return entries(subject, count, settings.facts, settings.seed, settings.endings)
