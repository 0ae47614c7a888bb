"""The settings of the embedded world and how they are checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias, get_args

from maskpolicy.errors import ConfigError, unknown
from maskpolicy.world.wordings import ASKED, NEVER, in_use

RECORD = "world.json"  # beside the tasks of a written world: its settings
Kind: TypeAlias = Literal["people", "writers", "birds", "salts"]
KINDS: tuple[Kind, ...] = get_args(Kind)  # of subjects; docs/world.md says which task needs which
YEARS = 60  # most years in a pool: people still die after they were born, and not at 150


@dataclass(frozen=True)
class Settings:
    """Everything the world depends on: the same settings give the same bytes."""

    seed: int = 0  # of all that is drawn
    kinds: tuple[Kind, ...] = ("people",)  # kinds of subjects; their tasks are written with them
    people: int = 150  # subjects of the tasks' corpus, half of them in the train files
    general_people: int = 250  # subjects of the general corpus, all others
    writers: int = 80  # subjects of the tasks' corpus, if `kinds` names them
    birds: int = 80  # subjects of the tasks' corpus, if `kinds` names them
    salts: int = 100  # subjects of the tasks' corpus, if `kinds` names them
    entries: int = 18  # differently worded entries for each person; others have as many per fact
    facts: int = 1  # facts that an entry states; 0: all of its subject's
    asked: int = 5  # asked relations of each person
    never: int = 1  # never-asked relations of each person
    relations: tuple[str, ...] = ()  # asked relations in use; none given: all
    others: tuple[str, ...] = ()  # never-asked relations in use; none given: all
    questions: int = 1  # TriviaQA wordings for each fact
    skew: float = 0.0  # a pool's value of rank r is drawn in proportion to r ** -skew
    train_share: float = 0.5  # share of the tasks' subjects in the train files
    name_parts: int = 0  # given names and surnames each; 0: four full names for each subject
    towns: int = 40  # in the pool that facts are drawn from
    companies: int = 30  # employers in the pool
    schools: int = 20  # in the pool
    years: int = 40  # years of birth, and as many of death
    rivers: int = 20  # in the pool; nobody asks for them
    prizes: int = 20  # in the pool; nobody asks for them
    teachers: int = 40  # in the pool; nobody asks for them
    dates: int = 60  # in the pool; nobody asks for them
    evidence: bool = True  # write TriviaQA's evidence, one file for each subject

    def general(self, kind: str) -> int:
        """Return the number of the general corpus's subjects of a kind: a like share of each."""
        if kind == "people":
            return self.general_people
        share = self.general_people / self.people
        if kind == "writers":  # they share the surnames of the others: not too many namesakes
            share = min(share, 5)
        return max(1, round(getattr(self, kind) * share))

    def count(self, kind: str) -> int:
        """Return the number of subjects of a kind in both corpora together."""
        return self.general(kind) + int(getattr(self, kind))


def make(options: Mapping[str, Any]) -> Settings:
    """Return checked settings from the `world:` block of an experiment; raises ConfigError."""
    known = {field.name: field for field in fields(Settings)}
    values: dict[str, Any] = {}
    for key, value in options.items():
        if key not in known:
            raise ConfigError(f"world: {unknown('setting', key, known)}")
        default = known[key].default
        values[key] = _typed(key, value, default)
    settings = Settings(**values)
    check(settings)
    return settings


def _typed(key: str, value: Any, default: Any) -> Any:
    """Return `value` in the type of the setting's default, or raise ConfigError."""
    if isinstance(default, tuple):
        if isinstance(value, (list, tuple)) and all(isinstance(name, str) for name in value):
            return tuple(value)
        raise ConfigError(f"world.{key}: expected a list of names, not {value!r}")
    if isinstance(default, float) and type(value) is int:
        return float(value)
    if type(value) is not type(default):
        raise ConfigError(f"world.{key}: expected {type(default).__name__}, not {value!r}")
    return value


def check(settings: Settings) -> None:
    """Raise ConfigError unless a world can be made with these settings."""
    for key, least in LEAST.items():
        if getattr(settings, key) < least:
            raise ConfigError(f"world.{key}: must be at least {least}")
    for kind in settings.kinds:
        if kind not in KINDS:
            raise ConfigError(f"world.kinds: {unknown('kind', kind, KINDS)}")
    if "people" not in settings.kinds:
        raise ConfigError("world.kinds: must name people, whose towns and names the others share")
    if settings.skew < 0:
        raise ConfigError("world.skew: must be at least 0")
    if settings.years > YEARS:
        raise ConfigError(f"world.years: must be at most {YEARS}")
    if not 0 < settings.train_share < 1:
        raise ConfigError("world.train_share: must lie between 0 and 1")
    asked = in_use("relations", settings.relations, ASKED)
    never = in_use("others", settings.others, NEVER)
    for key, number, chosen in (
        ("relations", settings.asked, asked),
        ("others", settings.never, never),
    ):
        if number > len(chosen):
            raise ConfigError(f"world.{key}: needs {number} or more, only {len(chosen)} in use")
    if len({relation.zero_shot for relation in asked}) < 2:
        raise ConfigError(
            "world.relations: zsRE needs a relation of its train file and one of its dev file: "
            "keep place of death or school, and one of the others"
        )


LEAST = {  # what a setting must be, or more
    "seed": 0,
    "people": 4,
    "general_people": 1,
    "writers": 4,
    "birds": 4,
    "salts": 4,
    "entries": 1,
    "facts": 0,
    "asked": 1,
    "never": 0,
    "questions": 1,
    "name_parts": 0,
    "towns": 2,
    "companies": 1,
    "schools": 1,
    "years": 1,
    "rivers": 1,
    "prizes": 1,
    "teachers": 1,
    "dates": 1,
}
