"""The settings of the embedded world and how they are checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, TypeAlias, get_args

from maskpolicy.core import schema
from maskpolicy.core.errors import ConfigError, unknown
from maskpolicy.core.schema import Count, Range, Share, Steps, omitted

ASKED = (
    *("place of birth", "year of birth", "place of death"),
    *("year of death", "employer", "school"),
)
"""The relations of people that tasks ask for; `data.world.subject_kinds` words them."""
NEVER = ("teacher", "river", "award", "date of marriage")
"""The relations of people that no task asks for."""
HELD_OUT = ("place of death", "school", "year of discovery")
"""The relations that zsRE asks for only in its dev file, by default."""
RECORD = "world.json"  # beside the tasks of a written world: its settings
GOLD = {"gold_entities": "entities", "asked": "asked"}  # columns of its corpora: keys of their rows
NEEDS_VALUES = ("wow",)  # tasks whose rows have a short answer only with `wow_values`
WITH_ERRORS = "entities_with_errors"  # a further column, and its key
Kind: TypeAlias = Literal["people", "writers", "birds", "salts"]
SUBJECT_KINDS: tuple[Kind, ...] = get_args(Kind)
"""Kinds of subjects; docs/development/world.md says which task needs which."""
AtLeast4: TypeAlias = Annotated[int, Range(ge=4)]
Years: TypeAlias = Annotated[int, Range(ge=1, le=60)]
"""Years in a pool: few enough that people die after their birth, and not at 150."""


@dataclass(frozen=True)
class EntityErrors:
    """The errors of the column `entities_with_errors`, which exists if any share is not 0."""

    # share of the gold entities that the additional column entities_with_errors lacks
    dropped: Share = 0.0
    wrong: Share = 0.0  # share that this column replaces by as many other words


@dataclass(frozen=True)
class Settings:
    """Everything that the world depends on: the same settings give the same bytes."""

    seed: Steps = 0  # seed of everything that is drawn
    kinds: tuple[Kind, ...] = ("people",)  # kinds of subjects, each with tasks; people among them
    people: AtLeast4 = 150  # subjects of the tasks' corpus, half of them in the train files
    general_people: Count = 250  # subjects of the general corpus, all others
    writers: AtLeast4 = 80  # subjects of the tasks' corpus, if `kinds` names them
    birds: AtLeast4 = 80  # subjects of the tasks' corpus, if `kinds` names them
    salts: AtLeast4 = 100  # subjects of the tasks' corpus, if `kinds` names them
    # differently worded entries for each person, at least 6 by default; others have as many per
    # fact, salts twice
    entries: Count = 18
    facts: Steps = 1  # facts that an entry states; 0: all facts of its subject
    asked: Count = 5  # relations of each person that tasks ask for
    never: Steps = 1  # relations of each person that no task asks for
    relations: tuple[str, ...] = ()  # names of the relations to ask for; empty: all
    others: tuple[str, ...] = ()  # names of the relations that no task asks for; empty: all
    questions: Count = 1  # TriviaQA wordings for each fact
    # a pool's value of rank r is drawn in proportion to r ** -skew
    skew: Annotated[float, Range(ge=0, le=5)] = 0.0
    # share of the tasks' subjects in the train files
    train_share: Annotated[float, Range(gt=0, lt=1)] = 0.5
    name_parts: Steps = 0  # given names and surnames each; 0: four full names for each subject
    towns: Annotated[int, Range(ge=2)] = 40  # towns in the pool that facts are drawn from
    companies: Count = 30  # employers in the pool
    schools: Count = 20  # schools in the pool
    years: Years = 40  # years of birth in the pool, and as many years of death
    rivers: Count = 20  # rivers in the pool; no task asks for them
    prizes: Count = 20  # prizes in the pool; no task asks for them
    teachers: Count = 40  # teachers in the pool; no task asks for them
    dates: Count = 60  # dates in the pool; no task asks for them
    evidence: bool = True  # write TriviaQA's evidence, one file for each subject
    # share of situations in the general corpus; situations.jsonl has as many about other subjects
    situations: Annotated[float, Range(ge=0, lt=1)] = omitted(0.0)
    entity_errors: EntityErrors = omitted(EntityErrors())
    # relations of people that zsRE's train file lacks; empty: place of death and school, and
    # the year of discovery of birds
    heldout: tuple[str, ...] = omitted(())
    # share of the entries that continue after the fact, so that they do not end with its value
    endings: Share = omitted(0.0)
    # of the corpora: entries about one subject, or prose about several
    text: Literal["entries", "prose"] = omitted("entries")
    # whether all tasks of a kind ask about all its subjects; false: one task about each
    shared_subjects: bool = omitted(True)
    wow_values: bool = omitted(False)  # wow's rows name the value of their fact, for `contains`
    # what wow's answers tell: one fact, or all that tasks ask for
    wow_answers: Literal["fact", "all"] = omitted("fact")

    def general(self, kind: str) -> int:
        """Return the number of subjects of a kind in the general corpus: the same share of each."""
        if kind == "people":
            return self.general_people
        share = self.general_people / self.people
        if kind == "writers":  # not too many namesakes, because both corpora share the surnames
            share = min(share, 5)
        return max(1, round(int(getattr(self, kind)) * share))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of its corpora."""
        return (*GOLD, *([WITH_ERRORS] if self.entity_errors != EntityErrors() else []))

    @property
    def of_corpora(self) -> Settings:
        """The settings that decide the corpora: tasks alone may differ in the others."""
        return replace(self, heldout=(), wow_values=False, wow_answers="fact", shared_subjects=True)

    def holds_out(self, relation: str) -> bool:
        """Return whether zsRE asks for a relation only in its dev file."""
        return relation in (self.heldout or HELD_OUT)

    def count(self, kind: str) -> int:
        """Return the number of subjects of a kind in both corpora together."""
        return self.general(kind) + int(getattr(self, kind))


def make(options: Mapping[str, Any], where: str = "world") -> Settings:
    """Return the checked settings in the block of an experiment at `where`; raises ConfigError."""
    settings = Settings(**schema.block(Settings, options, where))
    for key in ("kinds", "relations", "others", "heldout"):
        names = getattr(settings, key)
        for index, name in enumerate(names):
            if name in names[:index]:
                raise ConfigError(f"{where}.{key}[{index}]: {name} is named twice: remove one")
    if "people" not in settings.kinds:
        raise ConfigError(f"{where}.kinds: must name people, whose towns and names others share")
    asked = _in_use(settings.relations, ASKED, f"{where}.relations")
    never = _in_use(settings.others, NEVER, f"{where}.others")
    for key, count, chosen in (("relations", "asked", asked), ("others", "never", never)):
        if getattr(settings, count) > len(chosen):
            raise ConfigError(
                f"{where}.{key}: needs {getattr(settings, count)} or more, only {len(chosen)} in "
                f"use: name more, or set world.{count}: {len(chosen)}"
            )
    _in_use(settings.heldout, asked, f"{where}.heldout")
    if len({settings.holds_out(relation) for relation in asked}) < 2:
        key, do = "relations", "keep place of death or school, and one of the others"
        if settings.heldout:
            key, do = "heldout", "name fewer"
        raise ConfigError(
            f"{where}.{key}: zsRE needs a relation of its train file and one of its dev file: {do}"
        )
    chosen = ("companies", "rivers", "schools", "teachers", "years") if settings.situations else ()
    for key in (*chosen, *(["teachers"] if "birds" in settings.kinds else [])):
        if getattr(settings, key) < 2:
            raise ConfigError(f"{where}.{key}: situations name two of these: set 2 or more")
    if settings.text == "prose" and (settings.facts != 1 or settings.endings):
        raise ConfigError(
            f"{where}.text: a sentence of prose states one fact and ends anywhere: leave "
            "world.facts and world.endings out"
        )
    if settings.wow_answers == "all" and settings.wow_values:
        raise ConfigError(
            f"{where}.wow_values: an answer with all facts has no one value: set false"
        )
    if settings.entity_errors.dropped + settings.entity_errors.wrong > 1:
        raise ConfigError(
            f"{where}.entity_errors: dropped and wrong together are more than 1: lower one of them"
        )
    return settings


def _in_use(names: Sequence[str], known: Sequence[str], where: str) -> tuple[str, ...]:
    """Return the relations in the setting at `where`, or all; raises ConfigError."""
    for index, name in enumerate(names):
        if name not in known:
            raise ConfigError(f"{where}[{index}]: {unknown('relation', name, known)}")
    return tuple(name for name in known if not names or name in names)
