"""Prose: passages of several sentences about several subjects.

A clause states one fact and names its subject, in the wordings of entries, or states none: it is
made of function words, invented words and fixed expressions, all as unequally frequent as in real
text. Of the statements of a fact, a third each have its value at the start of the clause, in its
middle and at its end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from string import Formatter
from typing import NamedTuple

import numpy as np

from maskpolicy.data.world.entries import Entry, Fact, Subject, Text
from maskpolicy.data.world.pools import WORDINGS, Names, Pools, draw
from maskpolicy.data.world.subject_kinds import NOUNS, statements, subjects
from maskpolicy.experiment.world_settings import SUBJECT_KINDS, Settings

WORDS = (60, 100)  # of a passage
FACTS = (4, 7)  # of a passage, each of another subject
_GRAMMAR = WORDINGS["prose"]
_NAMED = {NOUNS["birds"]: "the {n}", NOUNS["salts"]: "the salt {n}"}  # others by their name alone
_SENTENCE = 0.45  # how often a sentence ends after a clause
_ASIDES = 0.5  # how often a clause whose value is not in its middle has an aside, too
_BLOCK = 2000  # subjects that passages are mixed from: a world of any size fits in memory
_LEXICON, _EXPRESSIONS = 3_000, 300  # how many words of each class, and expressions
_EXPONENT = 0.5  # of their frequencies; the words of facts are far more unequal
_SHORT = 300  # words of one syllable, the most frequent ones


class _Told(NamedTuple):
    """A clause; one with a fact has the slots {n}, the name of its subject, and {v}, the value."""

    wording: str
    of: tuple[Subject, Fact] | None = None


def prose(settings: Settings, pools: Pools, corpus: str) -> Iterator[Entry]:
    """Yield the passages of the "general" or "intermediate" corpus, with subjects of all kinds."""
    kinds = [kind for kind in SUBJECT_KINDS if kind in settings.kinds]
    everybody = (one for kind in kinds for one in subjects(settings, pools, kind, corpus))
    return passages(settings, everybody, corpus)


def passages(settings: Settings, about: Iterable[Subject], corpus: str) -> Iterator[Entry]:
    """Yield passages that state each fact of each subject as often as its entries do.

    If there are subjects enough, no two of them are in one passage twice: a fact must not be told
    by whom else its passages are about.
    """
    number = 0
    left = iter(about)
    while block := list(islice(left, _BLOCK)):
        rng = np.random.default_rng([settings.seed, 22, block[0].page])
        told = [_statements(settings, subject, rng) for subject in block]
        met: list[set[int]] = [set() for _ in block]
        for turn in range(max(map(len, told))):
            now = [i for i in rng.permutation(len(block)).tolist() if turn < len(told[i])]
            while now:
                low, high = FACTS
                size = len(now)
                if size > high:  # leave enough for another passage
                    size = int(rng.integers(low, min(high, size - low) + 1))
                some: list[int] = []
                for _ in range(size):
                    strangers = (i for i in now if not met[i].intersection(some))
                    some.append(next(strangers, now[0]))
                    now.remove(some[-1])
                for i in some:
                    met[i].update(some)
                number += 1
                facts = [told[i][turn] for i in some]
                yield _passage(f"{corpus}-{number}", facts, settings.seed, rng)


def _statements(settings: Settings, subject: Subject, rng: np.random.Generator) -> list[_Told]:
    """Return the clauses that state the facts of a subject, each fact once before any is twice."""
    told, facts = [], subject.facts
    first = rng.integers(3, size=len(facts)).tolist()  # place of a value: start, middle or end
    forms = [(fact.relation.fronted, fact.relation.phrasings) for fact in facts]
    drawn = [[rng.permutation(wordings).tolist() for wordings in both] for both in forms]
    order: list[int] = []
    for number in range(statements(settings, subject)):
        turn = number // len(facts)
        order = order or rng.permutation(len(facts)).tolist()
        at = order.pop()
        place = (first[at] + turn) % 3
        wordings = drawn[at][place > 0]
        wording = _named(wordings[turn % len(wordings)], subject)
        if place == 1 or (place == 0 and rng.random() < _ASIDES):
            wording += " {aside}"
        elif place == 2 and rng.random() < _ASIDES:
            wording = "{aside} " + wording
        told.append(_Told(wording, (subject, facts[at])))
    return told


def _named(sentence: str, subject: Subject) -> str:
    """Return a sentence as a clause that says the name instead of the first pronoun."""
    sentence = sentence[0].lower() + sentence[1:-1]
    first = next(slot for _, slot, _, _ in Formatter().parse(sentence) if slot not in (None, "v"))
    name = _NAMED.get(subject.noun, "{n}") + ("'s" if first in "pP" else "")
    return sentence.format_map({**subject.pronouns, first: name, "v": "{v}"})


def _passage(id: str, facts: list[_Told], seed: int, rng: np.random.Generator) -> Entry:
    """Return a passage with these facts in a random order; it is drawn anew until its size fits."""
    low, high = WORDS
    while True:
        size = int(rng.integers(low, high + 1))
        clauses = [clause._replace(wording=_filled(clause.wording, seed, rng)) for clause in facts]
        while sum(len(clause.wording.split()) for clause in clauses) < size:
            clauses.append(_Told(_filled("{clause}", seed, rng)))
        entry = _entry(id, [clauses[i] for i in rng.permutation(len(clauses))], rng)
        if low <= len(entry.text.split()) <= high:
            return entry


def _entry(id: str, clauses: list[_Told], rng: np.random.Generator) -> Entry:
    text, joined = Text(), ""
    asked, told = [], []
    for clause in clauses:
        wording = f"{joined} {clause.wording}" if joined else clause.wording
        if not text.text or text.text.endswith("."):
            wording = wording[0].upper() + wording[1:]
        mark, _, joined = draw(_GRAMMAR["joins"], 0, rng).partition(" ")
        if clause is clauses[-1] or rng.random() < _SENTENCE:
            mark, joined = ".", ""
        if clause.of is None:
            text.say(wording + mark, {}, {})
            continue
        subject, fact = clause.of
        relation, slots = fact.relation, {"n": subject.called, "v": fact.value.text}
        labels = {"n": subject.label, "v": relation.label}
        places = text.say(wording + mark, slots, labels)
        if relation.asked:
            asked.append((*places["v"], relation.name))
            told.append((subject, places["n"]))
    return Entry(id, "", text.text, tuple(text.entities), tuple(asked), {}, tuple(told))


def _filled(wording: str, seed: int, rng: np.random.Generator) -> str:
    """Replace the parts of the grammar in a wording; {n} and {v} stay."""

    def part(match: re.Match[str]) -> str:
        name, own = match[1], rng
        if name not in _GRAMMAR:
            return _word(seed, name, _rank(_LEXICON, rng))
        if name == "expression":
            own = np.random.default_rng([seed, 23, _rank(_EXPRESSIONS, rng)])
        return _filled(draw(_GRAMMAR[name], 0, own), seed, own)

    return re.sub(r"\{(\w\w+)\}", part, wording)


@lru_cache(1 << 16)
def _word(seed: int, kind: str, rank: int) -> str:
    """Return the invented word of a rank; the noun and the verb of a rank share a stem."""
    rng = np.random.default_rng([seed, 24, len(kind), rank])
    return Names(rng).word(kind, 1 + (rank > _SHORT)).lower()


def _rank(size: int, rng: np.random.Generator) -> int:
    """Draw a rank from 1 to `size`, rank r about in proportion to r ** -_EXPONENT."""
    rest = 1 - _EXPONENT
    return int((1 + rng.random() * (size**rest - 1)) ** (1 / rest))
