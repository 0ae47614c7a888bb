"""Invented names by combination of syllables: as many as a world of any size needs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

ONSETS = (*"bdfghjklmnprstvz", "br", "dr", "gr", "kl", "st", "tr")
VOWELS = tuple("aeiou")
MIDDLES = (*"lnrsmvdk", "nd", "lk", "rn", "st", "lv", "rm")
ENDINGS = {
    "female": ("a", "ia", "ina", "eth", "isa", "ela"),
    "male": ("o", "en", "ar", "us", "ik", "an"),
    "surname": ("sen", "dal", "ovan", "ard", "ell", "eck", "ott", "aris", "ulin"),
    "town": ("by", "ford", "holm", "wick", "ton", "mere", "haven", "stad"),
    "company": ("ix", "ex", "atek", "onda", "oro"),
    "school": ("ley", "hurst", "combe"),
    "river": ("urn", "ova", "iss"),
    "prize": ("ius", "em", "all"),
    "bird": ("finch", "wing", "bill", "crest"),  # birds and salts are written in small letters
    "salt": ("ite", "ine", "ium", "ose"),
    "thing": ("ock", "ild", "ump", "esk"),  # the subjects of situations, in small letters too
}
# ordinary words that the syllables give: at the start of a sentence they would not be names
_WORDS = frozenset(
    (
        *("drama", "lava", "mania", "marina", "media", "nova", "para", "soda", "stoma", "visa"),
        *("bonus", "broken", "demo", "driven", "genus", "german", "given", "golem", "halo"),
        *("haven", "helix", "hero", "human", "laden", "lessen", "linen", "listen", "lunar"),
        *("minus", "molar", "polar", "ponton", "radar", "radius", "raven", "risen", "roman"),
        *("sedan", "seven", "sinus", "siren", "solar", "solo", "sonar", "stamen", "standard"),
        *("standby", "taken", "token", "valley", "venus", "virus", "zero"),
    )
)


class Names:
    """Draws capitalised names, each of them once, whatever their kind."""

    def __init__(self, rng: np.random.Generator) -> None:
        """Draw from `rng`; the same generator gives the same names."""
        self._rng = rng
        self._used: set[str] = set()

    def draw(self, kind: str, count: int) -> list[str]:
        """Return `count` new names of a kind of ENDINGS, longer ones when the short run out."""
        names: list[str] = []
        syllables, failures = 1, 0
        while len(names) < count:
            word = self._word(kind, syllables)
            if word in self._used or word.lower() in _WORDS:
                failures += 1
                if failures > 50:
                    syllables, failures = syllables + 1, 0
                continue
            failures = 0
            self._used.add(word)
            names.append(word)
        return names

    def _word(self, kind: str, syllables: int) -> str:
        parts = [self._one(ONSETS)]
        for _ in range(syllables):
            parts += [self._one(VOWELS), self._one(MIDDLES)]
        return "".join([*parts, self._one(ENDINGS[kind])]).capitalize()

    def _one(self, choices: Sequence[str]) -> str:
        return choices[int(self._rng.integers(len(choices)))]


class FullNames:
    """All pairs of a given name and a surname in a scattered order, without a list of them."""

    def __init__(self, names: Names, parts: int, offset: int) -> None:
        """Draw `parts` given names (half of them female) and `parts` surnames from `names`."""
        self.given = names.draw("female", parts // 2) + names.draw("male", parts - parts // 2)
        self.surnames = names.draw("surname", parts)
        self._women = parts // 2
        self._offset = offset
        # a step near the golden section that shares no factor with the number of pairs
        step = round(0.6180339887 * len(self)) or 1
        while math.gcd(step, len(self)) != 1:
            step += 1
        self._step = step

    def __len__(self) -> int:
        """Return the number of full names."""
        return len(self.given) * len(self.surnames)

    def at(self, index: int) -> tuple[str, bool]:
        """Return full name number `index` (no two are equal) and whether it is a woman's."""
        place = (self._offset + index * self._step) % len(self)
        given, surname = divmod(place, len(self.surnames))
        return f"{self.given[given]} {self.surnames[surname]}", given < self._women

    def given_names(self, women: bool) -> Sequence[str]:
        """Return the given names of women or of men."""
        return self.given[: self._women] if women else self.given[self._women :]


def parts_for(subjects: int) -> int:
    """Return how many given names and surnames give four full names for each subject."""
    return max(20, math.ceil(2 * math.sqrt(subjects)))
