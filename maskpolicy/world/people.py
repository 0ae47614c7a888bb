"""The people of the world and each person's facts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from maskpolicy.world.pools import Pools
from maskpolicy.world.settings import Settings
from maskpolicy.world.subjects import Fact, Pronouns, Relation, Subject
from maskpolicy.world.wordings import ASKED, NEVER, NOUNS, OPENERS, in_use

_SHE = Pronouns("she", "her", "her")
_HE = Pronouns("he", "his", "him")


def people(settings: Settings, pools: Pools, corpus: str) -> Iterable[Subject]:
    """Yield the subjects of the "general" or the "intermediate" corpus, one at a time."""
    first, count = (
        (0, settings.general_people)
        if corpus == "general"
        else (settings.general_people, settings.people)
    )
    for index in range(first, first + count):
        yield person(settings, pools, index)


def person(settings: Settings, pools: Pools, index: int) -> Subject:
    """Return person number `index` of the whole world, a function of the settings alone."""
    rng = np.random.default_rng([settings.seed, 1, index])
    title, woman = pools.names.at(index)
    relations = [
        *_some(in_use("relations", settings.relations, ASKED), settings.asked, rng),
        *_some(in_use("others", settings.others, NEVER), settings.never, rng),
    ]
    return Subject(
        page=index + 1,
        title=title,
        label="PERSON",
        noun=NOUNS[int(rng.integers(len(NOUNS)))],
        pronouns=_SHE if woman else _HE,
        openers=OPENERS,
        facts=_facts(relations, pools, rng),
    )


def _facts(
    relations: Sequence[Relation], pools: Pools, rng: np.random.Generator
) -> tuple[Fact, ...]:
    """Draw a value for each relation; relations of one pool get different values."""
    facts: list[Fact] = []
    taken: set[str] = set()
    for relation in relations:
        pool = pools.values[relation.pool]
        value = pool[int(rng.integers(len(pool)))]
        while value.text in taken:
            value = pool[int(rng.integers(len(pool)))]
        taken.add(value.text)
        facts.append(Fact(relation, value))
    return tuple(facts)


def _some(
    relations: Sequence[Relation], count: int, rng: np.random.Generator
) -> Sequence[Relation]:
    chosen = sorted(rng.permutation(len(relations))[:count].tolist())
    return [relations[i] for i in chosen]
