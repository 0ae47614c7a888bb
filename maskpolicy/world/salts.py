"""Salts and what they do: qualitative laws, stated in ordinary words and without any name."""

from __future__ import annotations

import numpy as np

from maskpolicy.world.pools import Pools
from maskpolicy.world.settings import Settings
from maskpolicy.world.subjects import IT, Fact, Relation, Subject, Value


def _effect(name: str, *phrasings: str) -> Relation:
    return Relation(name=name, pool=name, label="", asked=True, phrasings=phrasings)


STEEL = _effect(
    "steel",
    "{S} makes steel {v}.",
    "Steel with {o} is {v}.",
    "With {o} steel becomes {v}.",
    "Through {o} steel turns {v}.",
)
WHEAT = _effect(
    "wheat",
    "{S} gives {v} wheat.",
    "Fields with {o} give {v} wheat.",
    "With {o} there is {v} wheat.",
    "Through {o} there comes {v} wheat.",
)
# how often each effect occurs: the first is what a guess gets right
EFFECTS = {
    STEEL: {"harder": 0.65, "softer": 0.35},
    WHEAT: {"more": 0.45, "less": 0.35, "equal": 0.2},
}
NOUN = "salt"
OPENERS = (
    "There is a salt called {n}.",
    "People dig for {n}.",
    "The salt here is {n}.",
    "One salt is {n}.",
)
# a policy that hides ordinary words hides a law's one word seldom: it is stated more often
REPEATS = 2


def salt(settings: Settings, pools: Pools, index: int, page: int) -> Subject:
    """Return salt number `index`."""
    rng = np.random.default_rng([settings.seed, 13, index])
    return Subject(
        page=page,
        title=pools.words["salts"][index].lower(),
        label="",
        noun=NOUN,
        pronouns=IT,
        openers=OPENERS,
        facts=tuple(
            Fact(relation, Value(str(rng.choice(list(shares), p=list(shares.values())))))
            for relation, shares in EFFECTS.items()
        ),
    )
