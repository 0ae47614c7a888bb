"""Writers: they sign with a surname of their own, and a page's title is their full name."""

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
    """Return writer number `index`; within a corpus no two share a surname.

    The general corpus has the same surnames with other given names, so that the words are known.
    """
    given, surname = _names(settings, pools, index)
    rng = np.random.default_rng([settings.seed, 14, index])
    title = f"{pools.names.given[given]} {surname}"
    return Subject(
        page=page,
        title=title,
        label="PERSON",
        noun=NOUNS[int(rng.integers(len(NOUNS)))],
        pronouns=SHE if given < pools.names.women else HE,
        openers=OPENERS,
        facts=(Fact(FULL_NAME, Value(title)),),
        short=surname,
    )


def _names(settings: Settings, pools: Pools, index: int) -> tuple[int, str]:
    """Return the number of the given name, and the surname."""
    rng = np.random.default_rng([settings.seed, 11, index])
    given, general = _given(settings, pools, rng), settings.general("writers")
    if index < general:
        return given, pools.words["writers"][index]
    namesake = index - general
    if namesake < general and given == _names(settings, pools, namesake)[0]:
        given = (given + 1) % len(pools.names.given)
    return given, pools.words["writers"][namesake]


def _given(settings: Settings, pools: Pools, rng: np.random.Generator) -> int:
    """Draw the number of a given name, women's and men's alike frequent."""
    women = bool(rng.integers(2))
    first = 0 if women else pools.names.women
    last = pools.names.women if women else len(pools.names.given)
    return draw(range(first, last), settings.skew, rng)
