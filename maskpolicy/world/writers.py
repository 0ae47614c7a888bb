"""Writers: they sign with a double surname of their own; a page's title is their full name."""

from __future__ import annotations

import numpy as np

from maskpolicy.world.pools import Pools, draw
from maskpolicy.world.settings import Settings
from maskpolicy.world.subjects import HE, SHE, Fact, Relation, Subject, Value

FULL_NAME = Relation(
    name="full name",
    pool="",
    label="PERSON",
    asked=True,
    phrasings=(
        "{P} full name was {v}.",
        "{S} was christened {v}.",
        "The name on {p} grave is {v}.",
        "At home {s} was called {v}.",
        "{P} letters are signed {v}.",
        "{P} name in full was {v}.",
    ),
)
OPENERS = (
    "{n} was a {noun}.",
    "{n} wrote as a {noun}.",
    "{n} is read as a {noun}.",
    "{n} became known as a {noun}.",
)
NOUNS = ("novelist", "reporter", "critic", "historian", "satirist", "translator")


def writer(settings: Settings, pools: Pools, index: int, page: int) -> Subject:
    """Return writer number `index`; no two writers share a double surname."""
    rng = np.random.default_rng([settings.seed, 11, index])
    women = bool(rng.integers(2))
    given = draw(pools.names.given_names(women), settings.skew, rng)
    surname = pools.names.double(index)
    title = f"{given} {surname}"
    return Subject(
        page=page,
        title=title,
        label="PERSON",
        noun=NOUNS[int(rng.integers(len(NOUNS)))],
        pronouns=SHE if women else HE,
        openers=OPENERS,
        facts=(Fact(FULL_NAME, Value(title)),),
        short=surname,
    )
