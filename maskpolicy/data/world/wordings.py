"""How the world words what it knows of its subjects, and the parts of speech of those words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

import yaml

from maskpolicy.data.world.entries import Relation


@dataclass(frozen=True)
class Frame:
    """What a situation may say of a subject.

    `law` tells from the fact what `question` asks for, and `told` answers it.
    """

    pool: str  # of the values
    label: str  # of the values, one of spaCy's
    law: str
    fact: str
    question: str
    told: str  # without a capital and a full stop


_WORDINGS = yaml.safe_load(
    resources.files(__package__).joinpath("wordings.yaml").read_text("utf-8")
)
OPENERS: Mapping[str, tuple[str, ...]] = {
    kind: tuple(_WORDINGS[kind]["openers"]) for kind in ("people", "writers", "birds", "salts")
}
"""By kind of subjects, the first sentences of entries."""
RELATIONS: Mapping[str, tuple[Relation, ...]] = {
    kind: tuple(
        Relation(
            name=name,
            pool=of.get("pool", ""),
            label=of.get("label", ""),
            phrasings=tuple(of["phrasings"]),
            asked=of.get("asked", False),
            questions=tuple(of.get("questions", ())),
            ask=tuple(of.get("ask", ("", ""))),
            clause=of.get("clause", ""),
        )
        for name, of in _WORDINGS[kind]["relations"].items()
    )
    for kind in OPENERS
}
ASKED = tuple(relation for relation in RELATIONS["people"] if relation.asked)
NEVER = tuple(relation for relation in RELATIONS["people"] if not relation.asked)
(FULL_NAME,) = RELATIONS["writers"]
HOME, DESCRIBER, DISCOVERY = RELATIONS["birds"]
STEEL, WHEAT = RELATIONS["salts"]
EFFECTS = {STEEL: ("harder", "softer"), WHEAT: ("more", "less", "equal")}
FRAMES = tuple(Frame(**frame) for frame in _WORDINGS["frames"])
NAMING: Mapping[str, tuple[str, ...]] = {
    pool: tuple(sentences) for pool, sentences in _WORDINGS["naming"].items()
}
LEXICON: dict[str, str] = {
    word: tag for tag, words in _WORDINGS["parts_of_speech"].items() for word in words.split()
}
_POSSESSIVE = ("her", "his", "its")


def tag(words: Sequence[str], is_name: Sequence[bool]) -> list[str]:
    """Return the Universal Dependencies tag of each word of an entry.

    `is_name` says which words lie in a gold entity. A word outside of them that no wording has is
    the common noun of a bird or a salt.
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
    """Return the tag of a word of the wordings; a few depend on their neighbours."""
    if word == "to":
        return "PART" if after in ("describe", "find", "swim") else "ADP"
    if word == "is":
        return "VERB" if before == "there" else "AUX"
    if word == "only" and before in _POSSESSIVE:
        return "ADJ"
    if word == "first" and before == "was":
        return "ADV"
    return LEXICON.get(word, "NOUN")
