"""The people of the world and each person's facts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from maskpolicy.world.pools import Pools, draw
from maskpolicy.world.settings import Settings
from maskpolicy.world.subjects import HE, SHE, Fact, Relation, Subject
from maskpolicy.world.wordings import ASKED, NEVER, OPENERS, in_use


def person(settings: Settings, pools: Pools, index: int, page: int) -> Subject:
    """Return person number `index` of the whole world, a function of the settings alone."""
    rng = np.random.default_rng([settings.seed, 1, index])
    title, woman = pools.names.at(index)
    relations = [
        *_some(in_use("relations", settings.relations, ASKED), settings.asked, rng),
        *_some(in_use("others", settings.others, NEVER), settings.never, rng),
    ]
    return Subject(
        page=page,
        title=title,
        label="PERSON",
        noun="person",
        pronouns=SHE if woman else HE,
        openers=OPENERS,
        facts=facts(relations, settings, pools, rng),
    )


def facts(
    relations: Sequence[Relation], settings: Settings, pools: Pools, rng: np.random.Generator
) -> tuple[Fact, ...]:
    """Draw a value for each relation; relations of one pool get different values."""
    made: list[Fact] = []
    taken: set[str] = set()
    for relation in relations:
        pool = pools.values[relation.pool]
        value = draw(pool, settings.skew, rng)
        while value.text in taken:
            value = draw(pool, settings.skew, rng)
        taken.add(value.text)
        made.append(Fact(relation, value))
    return tuple(made)


def _some(
    relations: Sequence[Relation], count: int, rng: np.random.Generator
) -> Sequence[Relation]:
    chosen = sorted(rng.permutation(len(relations))[:count].tolist())
    return [relations[i] for i in chosen]
