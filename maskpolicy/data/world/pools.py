"""The wordings of the world, invented names, and pools of values for all corpora and tasks.

Names are combinations of syllables, so there are enough for a world of any size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import cycle
from typing import Any, TypeVar

import numpy as np
import yaml

from maskpolicy.core.errors import ConfigError
from maskpolicy.experiment.world_settings import Settings

T = TypeVar("T")
WORDINGS: Mapping[str, Any] = yaml.safe_load(
    resources.files(__package__).joinpath("wordings.yaml").read_text("utf-8")
)
"""By kind of subjects, by task and for all: texts with slots, and the parts of names."""
MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
FIRMS = ("", " Works", " Mills", " Company", " Brothers", " Limited")
SCHOOLS = (" Academy", " College", " University")
PRIZES = (" Prize", " Medal", " Award")
ENDING = {"writers": "surname", "birds": "bird", "salts": "salt"}  # of the names of a kind
# births, marriages and deaths have separate years
BORN_BEFORE, MARRIED_FROM, DIED_FROM = 1866, 1886, 1896
_PARTS: Mapping[str, Any] = WORDINGS["names"]
ONSETS, VOWELS, MIDDLES = (_PARTS[part].split() for part in ("onsets", "vowels", "middles"))
ENDINGS = {kind: endings.split() for kind, endings in _PARTS["endings"].items()}
_WORDS = frozenset(_PARTS["taken"].split())


@dataclass(frozen=True)
class Value:
    """The value of a fact: an entity from a pool that all subjects share."""

    text: str
    aliases: tuple[str, ...] = ()


class Names:
    """Draws capitalised names, each of them once, whatever their kind."""

    def __init__(self, rng: np.random.Generator) -> None:
        """Draw from `rng`; the same generator gives the same names."""
        self._rng = rng
        self._used: set[str] = set()

    def draw(self, kind: str, count: int) -> list[str]:
        """Return `count` new names of a kind of ENDINGS, longer ones once short ones run out."""
        names: list[str] = []
        syllables, failures = 1, 0
        while len(names) < count:
            word = self.word(kind, syllables)
            if word in self._used or word.lower() in _WORDS:
                failures += 1
                if failures > 50:
                    syllables, failures = syllables + 1, 0
                continue
            failures = 0
            self._used.add(word)
            names.append(word)
        return names

    def word(self, kind: str, syllables: int) -> str:
        """Return a word that may have been drawn before."""
        parts = [self._one(ONSETS)]
        for _ in range(syllables):
            parts += [self._one(VOWELS), self._one(MIDDLES)]
        return "".join([*parts, self._one(ENDINGS[kind])]).capitalize()

    def _one(self, choices: Sequence[str]) -> str:
        return choices[int(self._rng.integers(len(choices)))]


class FullNames:
    """All pairs of a given name and a surname in a scattered order, computed one by one."""

    def __init__(self, names: Names, parts: int, offset: int) -> None:
        """Draw `parts` given names (half of them female) and `parts` surnames from `names`."""
        self.given = names.draw("female", parts // 2) + names.draw("male", parts - parts // 2)
        self.surnames = names.draw("surname", parts)
        self._women = parts // 2
        self._offset = offset
        # a step near the golden section, coprime to the number of pairs
        step = round(0.6180339887 * len(self)) or 1
        while math.gcd(step, len(self)) != 1:
            step += 1
        self._step = step

    def __len__(self) -> int:
        """Return the number of full names."""
        return len(self.given) * len(self.surnames)

    def at(self, index: int) -> tuple[str, bool]:
        """Return the unique full name number `index`, and whether it is a woman's."""
        place = (self._offset + index * self._step) % len(self)
        given, surname = divmod(place, len(self.surnames))
        return f"{self.given[given]} {self.surnames[surname]}", given < self._women

    def given_names(self, women: bool) -> Sequence[str]:
        """Return the given names of women or of men."""
        return self.given[: self._women] if women else self.given[self._women :]


@dataclass(frozen=True)
class Pools:
    """The values of each pool, the full names of people by number, and the names of other kinds."""

    values: Mapping[str, tuple[Value, ...]]
    names: FullNames
    words: Mapping[str, tuple[str, ...]]  # by kind: surnames of writers, birds, salts


def build(settings: Settings) -> Pools:
    """Return the pools of a world; raises ConfigError if name_parts gives too few full names."""
    rng = np.random.default_rng([settings.seed, 0])
    names = Names(rng)
    subjects = settings.people + settings.general_people
    everybody = subjects + settings.teachers
    values = {
        "towns": _plain(names.draw("town", settings.towns)),
        "companies": _suffixed(names.draw("company", settings.companies), FIRMS),
        "schools": _schools(names.draw("school", settings.schools)),
        "births": _years(BORN_BEFORE - settings.years, settings.years),
        "deaths": _years(DIED_FROM, settings.years),
        "rivers": _plain([f"River {name}" for name in names.draw("river", settings.rivers)]),
        "prizes": _suffixed(names.draw("prize", settings.prizes), PRIZES),
        "dates": _dates(settings.dates, rng),
    }
    parts = max(20, math.ceil(2 * math.sqrt(everybody)))  # four full names for each
    full = FullNames(names, settings.name_parts or parts, int(rng.integers(2**31)))
    if len(full) < everybody:
        raise ConfigError(
            f"world.name_parts: {len(full)} full names for {everybody} people: raise it, or set 0"
        )
    values["teachers"] = _plain([full.at(i)[0] for i in range(subjects, everybody)])
    words: dict[str, tuple[str, ...]] = {
        # the writers of both corpora have the same surnames
        kind: tuple(
            names.draw(ending, settings.writers if kind == "writers" else settings.count(kind))
        )
        for kind, ending in ENDING.items()
        if kind in settings.kinds
    }
    return Pools(values, full, words)


def draw(pool: Sequence[T], skew: float, rng: np.random.Generator) -> T:
    """Draw a value with a probability proportional to r ** -skew for rank r (0: uniformly)."""
    if not skew:
        return pool[int(rng.integers(len(pool)))]
    weights = np.arange(1, len(pool) + 1) ** -skew
    return pool[int(rng.choice(len(pool), p=weights / weights.sum()))]


def _plain(texts: list[str]) -> tuple[Value, ...]:
    return tuple(Value(text) for text in texts)


def _suffixed(stems: list[str], endings: tuple[str, ...]) -> tuple[Value, ...]:
    """Give the stems the endings in turn; the bare stem is an alias."""
    pairs = zip(stems, cycle(endings), strict=False)
    return tuple(Value(stem + end, (stem,) if end else ()) for stem, end in pairs)


def _schools(stems: list[str]) -> tuple[Value, ...]:
    """Name schools; "University of STEM" has the alias "STEM University"."""
    return tuple(
        Value(f"University of {value.aliases[0]}", (value.text, value.aliases[0]))
        if value.text.endswith("University")
        else value
        for value in _suffixed(stems, SCHOOLS)
    )


def _years(first: int, count: int) -> tuple[Value, ...]:
    return _plain([str(year) for year in range(first, first + count)])


def _dates(count: int, rng: np.random.Generator) -> tuple[Value, ...]:
    """Draw `count` different dates of ten years; raises ConfigError if there are too few."""
    span = 28 * 12 * (DIED_FROM - MARRIED_FROM)
    if count > span:
        raise ConfigError(f"world.dates: must be at most {span}")
    dates = []
    for number in rng.permutation(span)[:count].tolist():
        month, day = divmod(number, 28)
        year, month = divmod(month, 12)
        dates.append(f"{day + 1} {MONTHS[month]} {MARRIED_FROM + year}")
    return _plain(dates)
