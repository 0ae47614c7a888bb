"""The kinds of subjects: their relations and facts, and the wordings of entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from maskpolicy.core.errors import ConfigError
from maskpolicy.data.world.entries import HE, IT, SHE, Entry, Fact, Relation, Subject, entries
from maskpolicy.data.world.pools import ENDINGS, WORDINGS, Pools, Value, draw
from maskpolicy.experiment.world_settings import SUBJECT_KINDS, Settings


@dataclass(frozen=True)
class Frame:
    """The sentences of a situation: `told` answers `question` by `fact` and `law`."""

    pool: str  # of the values
    label: str  # spaCy's entity label of the values
    law: str
    fact: str
    question: str
    told: str  # without a capital and a full stop


OPENERS: Mapping[str, tuple[str, ...]] = {
    kind: tuple(WORDINGS[kind]["openers"]) for kind in SUBJECT_KINDS
}
"""By kind of subjects, the first sentences of entries."""


def _relation(name: str, stated: Mapping[str, Any]) -> Relation:
    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in stated.items()}
    return Relation(name, **fields)


RELATIONS: Mapping[str, tuple[Relation, ...]] = {
    kind: tuple(_relation(*pair) for pair in WORDINGS[kind]["relations"].items())
    for kind in OPENERS
}
ASKED = tuple(relation for relation in RELATIONS["people"] if relation.asked)
NEVER = tuple(relation for relation in RELATIONS["people"] if not relation.asked)
(FULL_NAME,) = RELATIONS["writers"]
HOME, DESCRIBER, DISCOVERY = RELATIONS["birds"]
STEEL, WHEAT = RELATIONS["salts"]
EFFECTS = {STEEL: ("harder", "softer"), WHEAT: ("more", "less", "equal")}
FRAMES = tuple(Frame(**frame) for frame in WORDINGS["frames"])
NAMING: Mapping[str, tuple[str, ...]] = {
    pool: tuple(sentences) for pool, sentences in WORDINGS["naming"].items()
}
LEXICON: dict[str, str] = {
    word: tag for tag, words in WORDINGS["parts_of_speech"].items() for word in words.split()
}
_INVENTED = {"VERB": tuple(ENDINGS["verb"]), "ADJ": tuple(ENDINGS["adjective"])}  # of prose
_POSSESSIVE = ("her", "his", "its")


def tag(words: Sequence[str], is_name: Sequence[bool]) -> list[str]:
    """Return the Universal Dependencies tag of each word of an entry.

    `is_name` marks the words of gold entities. Any other word that is in no wording is the common
    noun of a bird or a salt.
    """
    tags = []
    for place, (word, named) in enumerate(zip(words, is_name, strict=True)):
        small = word.lower()
        before = words[place - 1].lower() if place else ""
        after = words[place + 1].lower() if place + 1 < len(words) else ""
        if not any(char.isalnum() for char in word):
            tags.append("PUNCT")
        elif word.isdecimal():
            tags.append("NUM")
        elif named:
            tags.append("PROPN" if word[0].isupper() else LEXICON.get(small, "PROPN"))
        else:
            tags.append(_in_context(small, before, after))
    return tags


def _in_context(word: str, before: str, after: str) -> str:
    """Return the tag of a word of the wordings; a few tags depend on the neighbours."""
    if word == "to":
        return "PART" if after in ("describe", "find", "swim") else "ADP"
    if word == "is":
        return "VERB" if before == "there" else "AUX"
    if word == "only" and before in _POSSESSIVE:
        return "ADJ"
    if word == "first" and before == "was":
        return "ADV"
    return LEXICON.get(word) or next(
        (tag for tag, ends in _INVENTED.items() if word.endswith(ends)), "NOUN"
    )


_ROUND = 6  # consecutive salts, in which each effect occurs equally often: no guess is better
_REPEATS = 2  # policies for ordinary words rarely mask the one word of a law: it is stated twice
NOUNS = {"people": "person", "writers": "writer", "birds": "bird", "salts": "salt"}


def person(settings: Settings, pools: Pools, index: int, page: int) -> Subject:
    """Return person number `index` of the whole world, which depends only on the settings."""
    rng = np.random.default_rng([settings.seed, 1, index])
    title, woman = pools.names.at(index)
    relations = [
        *_some(_in_use(settings.relations, ASKED), settings.asked, rng),
        *_some(_in_use(settings.others, NEVER), settings.never, rng),
    ]
    facts = _facts(relations, settings, pools, rng)
    return _subject("people", page, title, facts, SHE if woman else HE)


def _subject(
    kind: str,
    page: int,
    title: str,
    facts: tuple[Fact, ...],
    pronouns: Mapping[str, str] = IT,
    short: str = "",
) -> Subject:
    """Return a subject of a kind; it is a person unless its pronouns are IT."""
    label = "" if pronouns is IT else "PERSON"
    return Subject(page, title, label, NOUNS[kind], pronouns, OPENERS[kind], facts, short)


def _in_use(names: Sequence[str], known: Sequence[Relation]) -> tuple[Relation, ...]:
    """Return the relations of these names, or all."""
    return tuple(relation for relation in known if not names or relation.name in names)


def _facts(
    relations: Sequence[Relation], settings: Settings, pools: Pools, rng: np.random.Generator
) -> tuple[Fact, ...]:
    """Draw a value for each relation; relations of one pool get different values."""
    facts: list[Fact] = []
    taken: set[str] = set()
    for relation in relations:
        pool = pools.values[relation.pool]
        value = draw(pool, settings.skew, rng)
        while value.text in taken:
            value = draw(pool, settings.skew, rng)
        taken.add(value.text)
        facts.append(Fact(relation, value))
    return tuple(facts)


def _some(
    relations: Sequence[Relation], count: int, rng: np.random.Generator
) -> Sequence[Relation]:
    chosen = sorted(rng.permutation(len(relations))[:count].tolist())
    return [relations[i] for i in chosen]


def writer(settings: Settings, pools: Pools, index: int, page: int) -> Subject:
    """Return writer number `index`; each writer of the tasks' corpus has a unique surname.

    The general corpus has the same surnames with other given names, so models know the words of the
    answers.
    """
    given, women, surname = _names(settings, pools, index)
    title = f"{given} {surname}"
    facts = (Fact(FULL_NAME, Value(title)),)
    return _subject("writers", page, title, facts, SHE if women else HE, surname)


def _names(settings: Settings, pools: Pools, index: int) -> tuple[str, bool, str]:
    """Return given name, whether it is a woman's, and surname; full names are unique."""
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


def bird(settings: Settings, pools: Pools, index: int, page: int) -> Subject:
    """Return bird number `index`; its name is a common noun, so no policy for names masks it."""
    rng = np.random.default_rng([settings.seed, 12, index])
    facts = _facts(RELATIONS["birds"], settings, pools, rng)
    return _subject("birds", page, pools.words["birds"][index].lower(), facts)


def salt(settings: Settings, pools: Pools, index: int, page: int) -> Subject:
    """Return salt number `index`."""
    turn, place = divmod(index, _ROUND)
    rng = np.random.default_rng([settings.seed, 13, turn])
    facts = tuple(
        Fact(relation, Value(effects[int(rng.permutation(_ROUND)[place]) % len(effects)]))
        for relation, effects in EFFECTS.items()
    )
    return _subject("salts", page, pools.words["salts"][index].lower(), facts)


# each returns subject number `index` of its kind; the last argument is its page in the world
MAKERS: Mapping[str, Callable[[Settings, Pools, int, int], Subject]] = {
    "people": person,
    "writers": writer,
    "birds": bird,
    "salts": salt,
}


def subjects(settings: Settings, pools: Pools, kind: str, corpus: str) -> Iterator[Subject]:
    """Yield the subjects of a kind in the "general" or "intermediate" corpus, one at a time."""
    before = SUBJECT_KINDS[: SUBJECT_KINDS.index(kind)]
    page = 1 + sum(settings.count(other) for other in before if other in settings.kinds)
    general, both = settings.general(kind), settings.count(kind)
    for index in range(general) if corpus == "general" else range(general, both):
        yield MAKERS[kind](settings, pools, index, page + index)


def described(settings: Settings, subject: Subject) -> list[Entry]:
    """Return the entries of a subject."""
    count = statements(settings, subject)
    return entries(subject, count, settings.facts, settings.seed, settings.endings)


def statements(settings: Settings, subject: Subject) -> int:
    """Return how many entries a subject has: a fact as many as a person's, a law twice as many."""
    person, own = settings.asked + settings.never, len(subject.facts)
    stated = min(settings.facts or person, person)
    here = min(settings.facts or own, own)
    repeats = _REPEATS if subject.noun == NOUNS["salts"] else 1
    return -(-settings.entries * repeats * stated * own // (person * here))
