"""What the world is made of: relations, values, facts and the subjects they belong to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Relation:
    """One relation of a kind of subject and every way in which the world words it.

    Slots: {v} the value, {S} {s} {p} {P} {o} the pronouns He, he, his, His, him, {n} the name.
    """

    name: str  # zsRE's label; some of the phrasings say it in words
    pool: str  # of its values
    label: str  # of its values, one of spaCy's; "": ordinary words, no entities
    phrasings: tuple[str, ...]  # whole sentences, each with {v} once
    asked: bool = False
    zero_shot: bool = False  # zsRE asks for it in the dev file only, unless settings say else
    questions: tuple[str, ...] = ()  # TriviaQA's, or NQ's
    ask: tuple[str, str] = ("", "")  # indirect question: "where", "{s} was born"
    clause: str = ""  # answer in a dialogue: "in {v}"


@dataclass(frozen=True)
class Value:
    """What a fact says of its subject: an entity of a pool that all subjects share."""

    text: str
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fact:
    """One relation of a subject with its value."""

    relation: Relation
    value: Value


@dataclass(frozen=True)
class Pronouns:
    """Subject, possessive and object form: he, his, him."""

    subject: str
    possessive: str
    object: str

    @property
    def slots(self) -> dict[str, str]:
        """The pronouns under the names that phrasings use."""
        return {
            "s": self.subject,
            "S": self.subject.capitalize(),
            "p": self.possessive,
            "P": self.possessive.capitalize(),
            "o": self.object,
        }


IT = Pronouns("it", "its", "it")
SHE = Pronouns("she", "her", "her")
HE = Pronouns("he", "his", "him")


@dataclass(frozen=True)
class Subject:
    """Somebody or something that has a page in the encyclopaedia."""

    page: int  # unique in the world
    title: str  # the full name, unique in the world
    label: str  # of the name, one of spaCy's; "": an ordinary noun, no entity
    noun: str  # of its kind, the same for all: person, bird
    pronouns: Pronouns
    openers: tuple[str, ...]  # first sentences with {n}
    facts: tuple[Fact, ...]
    short: str = ""  # what the entries call it, where that is not the title

    @property
    def called(self) -> str:
        """The name that the entries and the questions use."""
        return self.short or self.title

    @property
    def asked(self) -> tuple[Fact, ...]:
        """The facts that some task asks for."""
        return tuple(fact for fact in self.facts if fact.relation.asked)

    @property
    def file(self) -> str:
        """The name of its evidence document."""
        return self.title.replace(" ", "_") + ".txt"
