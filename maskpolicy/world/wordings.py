"""How the world words what it knows of people: relations and first sentences."""

from __future__ import annotations

from collections.abc import Sequence

from maskpolicy.errors import ConfigError, unknown
from maskpolicy.world.subjects import Relation

ASKED = (
    Relation(
        name="place of birth",
        pool="towns",
        label="GPE",
        asked=True,
        phrasings=(
            "{S} was born in the town of {v}.",
            "{P} place of birth was {v}.",
            "{P} birthplace was {v}.",
            "The place of {p} birth is {v}.",
            "The town in which {s} was born is {v}.",
            "{S} came into the world in the town of {v}.",
        ),
        questions=(
            "In which town was {n} born?",
            "Where was {n} born?",
            "What is the birthplace of {n}?",
            "Which town was the place of birth of {n}?",
        ),
        ask=("where", "{s} was born"),
        clause="in {v}",
    ),
    Relation(
        name="year of birth",
        pool="births",
        label="DATE",
        asked=True,
        phrasings=(
            "{S} was born in the year {v}.",
            "{P} year of birth was {v}.",
            "{P} birth year was {v}.",
            "The year of {p} birth is {v}.",
            "The year in which {s} was born is {v}.",
            "{S} came into the world in the year {v}.",
        ),
        questions=(
            "In which year was {n} born?",
            "When was {n} born?",
            "What is the birth year of {n}?",
            "Which year was the year of birth of {n}?",
        ),
        ask=("when", "{s} was born"),
        clause="in {v}",
    ),
    Relation(
        name="place of death",
        pool="towns",
        label="GPE",
        asked=True,
        zero_shot=True,
        phrasings=(
            "{S} died in the town of {v}.",
            "{P} place of death was {v}.",
            "{P} death took place in {v}.",
            "The place of {p} death is {v}.",
            "The town in which {s} died is {v}.",
            "{S} spent {p} last days in the town of {v}.",
        ),
        questions=(
            "In which town did {n} die?",
            "Where did {n} die?",
            "What is the place where {n} died?",
            "Which town was the place of death of {n}?",
        ),
        ask=("where", "{s} died"),
        clause="in {v}",
    ),
    Relation(
        name="year of death",
        pool="deaths",
        label="DATE",
        asked=True,
        phrasings=(
            "{S} died in the year {v}.",
            "{P} year of death was {v}.",
            "{P} death came in the year {v}.",
            "The year of {p} death is {v}.",
            "The year in which {s} died is {v}.",
            "{P} last days fell in the year {v}.",
        ),
        questions=(
            "In which year did {n} die?",
            "When did {n} die?",
            "What is the year in which {n} died?",
            "Which year was the year of death of {n}?",
        ),
        ask=("when", "{s} died"),
        clause="in {v}",
    ),
    Relation(
        name="employer",
        pool="companies",
        label="ORG",
        asked=True,
        phrasings=(
            "{S} worked for {v}.",
            "{P} employer was {v}.",
            "The employer of {p} choice was {v}.",
            "{S} had {v} as {p} employer.",
            "{S} was employed by {v}.",
            "{S} earned {p} living at {v}.",
        ),
        questions=(
            "Which company did {n} work for?",
            "Who was the employer of {n}?",
            "By which company was {n} employed?",
            "Whom did {n} work for?",
        ),
        ask=("whom", "{s} worked for"),
        clause="for {v}",
    ),
    Relation(
        name="school",
        pool="schools",
        label="ORG",
        asked=True,
        zero_shot=True,
        phrasings=(
            "{S} went to school at {v}.",
            "{P} school was {v}.",
            "The school of {p} youth was {v}.",
            "{S} was educated at {v}.",
            "{S} had {v} as {p} school.",
            "{S} spent {p} school days at {v}.",
        ),
        questions=(
            "Which school did {n} attend?",
            "What was the school of {n}?",
            "At which school was {n} educated?",
            "Where did {n} go to school?",
        ),
        ask=("where", "{s} went to school"),
        clause="at {v}",
    ),
)
NEVER = (
    Relation(
        name="teacher",
        pool="teachers",
        label="PERSON",
        phrasings=(
            "{P} teacher was {v}.",
            "{S} learned the craft from {v}.",
            "{S} took lessons from {v}.",
            "{S} owed much to the advice of {v}.",
        ),
    ),
    Relation(
        name="river",
        pool="rivers",
        label="LOC",
        phrasings=(
            "{S} grew up beside the {v}.",
            "{P} house stood on the banks of the {v}.",
            "{S} liked to swim in the {v}.",
            "{P} favourite river was the {v}.",
        ),
    ),
    Relation(
        name="award",
        pool="prizes",
        label="WORK_OF_ART",
        phrasings=(
            "{S} won the {v}.",
            "{S} was awarded the {v}.",
            "{P} only award was the {v}.",
            "{S} was honoured with the {v}.",
        ),
    ),
    Relation(
        name="date of marriage",
        pool="dates",
        label="DATE",
        phrasings=(
            "{S} married on {v}.",
            "{P} wedding was held on {v}.",
            "{P} date of marriage was {v}.",
            "{S} celebrated {p} wedding on {v}.",
        ),
    ),
)
OPENERS = (
    "{n} is remembered.",
    "{n} lived long ago.",
    "People remember {n}.",
    "This is known of {n}.",
)


def in_use(key: str, names: Sequence[str], known: Sequence[Relation]) -> tuple[Relation, ...]:
    """Return the relations named by the setting `key`, or all; unknown names raise ConfigError."""
    by_name = {relation.name: relation for relation in known}
    for index, name in enumerate(names):
        if name not in by_name:
            raise ConfigError(f"world.{key}[{index}]: {unknown('relation', name, by_name)}")
    return tuple(relation for relation in known if not names or relation.name in names)
