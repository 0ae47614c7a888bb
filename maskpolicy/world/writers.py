"""Writers: they sign with a surname of their own; a page's title is their full name."""

from __future__ import annotations

import numpy as np

from maskpolicy.errors import ConfigError
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
    "{n} was a writer.",
    "{n} wrote long ago.",
    "People read {n}.",
    "One writer is {n}.",
)


def writer(settings: Settings, pools: Pools, index: int, page: int) -> Subject:
    """Return writer number `index`; no two of the tasks' corpus share a surname.

    The general corpus has the same surnames with other given names: an answer holds the surname,
    so that the word must be known.
    """
    given, women, surname = _names(settings, pools, index)
    title = f"{given} {surname}"
    return Subject(
        page=page,
        title=title,
        label="PERSON",
        noun="writer",
        pronouns=SHE if women else HE,
        openers=OPENERS,
        facts=(Fact(FULL_NAME, Value(title)),),
        short=surname,
    )


def _names(settings: Settings, pools: Pools, index: int) -> tuple[str, bool, str]:
    """Return given name, whether it is a woman's, and surname; no two writers share both names."""
    surnames, general = pools.words["writers"], settings.general("writers")
    number = (index if index < general else index - general) % len(surnames)
    before = range(number, min(index, general), len(surnames))
    taken = {_names(settings, pools, namesake)[0] for namesake in before}
    if not set(pools.names.given) - taken:
        raise ConfigError("world.writers: too few given names for all namesakes: raise it")
    rng = np.random.default_rng([settings.seed, 11, index])
    while True:
        women = bool(rng.integers(2))
        given = draw(pools.names.given_names(women), settings.skew, rng)
        if given not in taken:
            return given, women, surnames[number]
