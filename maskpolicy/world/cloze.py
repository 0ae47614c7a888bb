"""Entries with one asked value hidden, to test whether only the name tells the value."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log

import numpy as np

from maskpolicy.world.entries import Entry
from maskpolicy.world.kinds import described, subjects
from maskpolicy.world.pools import build
from maskpolicy.world.settings import Settings
from maskpolicy.world.subjects import Subject

MASK = "<mask>"


@dataclass(frozen=True)
class Blank:
    """An entry of the tasks' corpus in which one asked value is hidden."""

    kind: str  # of the subject
    relation: str  # of the hidden value
    entry: str  # id of the entry
    text: str  # with MASK for the value
    value: str
    name: tuple[int, int]  # where `text` names the subject
    other: str  # another subject's name, of the same kind and with the same pronouns

    @property
    def renamed(self) -> str:
        """The text about the other subject."""
        return self.with_name(self.other)

    def with_name(self, name: str) -> str:
        """Return the text with `name` in the place of the subject's."""
        start, end = self.name
        return self.text[:start] + name + self.text[end:]


def blanks(settings: Settings) -> Iterator[Blank]:
    """Yield each asked value of each entry about the tasks' subjects, hidden alone."""
    pools = build(settings)
    for kind in settings.kinds:
        known = list(subjects(settings, pools, kind, "intermediate"))
        for subject in known:
            rng = np.random.default_rng([settings.seed, 17, subject.page])
            others = [
                one for one in known if one.pronouns == subject.pronouns and one is not subject
            ]
            for entry in described(settings, subject) if others else ():
                for start, end, relation in entry.asked:
                    other = others[int(rng.integers(len(others)))]
                    yield _blank(kind, subject, entry, (start, end), relation, other)


def _blank(
    kind: str,
    subject: Subject,
    entry: Entry,
    hidden: tuple[int, int],
    relation: str,
    other: Subject,
) -> Blank:
    start, end = hidden
    at = entry.text.index(subject.called)
    return Blank(
        kind=kind,
        relation=relation,
        entry=entry.id,
        text=f"{entry.text[:start]}{MASK}{entry.text[end:]}",
        value=entry.text[start:end],
        name=(at, at + len(subject.called)),
        other=other.called,
    )


def majority(found: Sequence[Blank]) -> float:
    """Return the share of blanks that the most frequent value of their relation fills in right."""
    counts = _values(found)
    return sum(max(counter.values()) for counter in counts.values()) / len(found)


def nameless(found: Sequence[Blank]) -> float:
    """Return the share of blanks that a naive Bayes classifier fills in right without the name.

    It sees every other word of the entry, with the words before and after, and has learnt from all
    other entries, those about the same subject too.
    """
    priors = _values(found)
    features = [_features(blank) for blank in found]
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for blank, seen in zip(found, features, strict=True):
        for feature in seen:
            counts[blank.kind + blank.relation, feature][blank.value] += 1
    right = 0
    for blank, seen in zip(found, features, strict=True):
        about = blank.kind + blank.relation
        scores = {
            value: _score(value, count, seen, about, counts, own=value == blank.value)
            for value, count in priors[about].items()
        }
        right += max(scores, key=scores.__getitem__) == blank.value
    return right / len(found)


def _score(
    value: str,
    count: int,
    seen: frozenset[str],
    about: str,
    counts: dict[tuple[str, str], Counter[str]],
    *,
    own: bool,
) -> float:
    """Return the log probability of a value, the blank itself left out of all counts."""
    left = count - own
    if not left:
        return -float("inf")
    each = (log((counts[about, one][value] - own + 0.1) / (left + 0.2)) for one in seen)
    return log(left) + sum(each)


def _values(found: Sequence[Blank]) -> dict[str, Counter[str]]:
    values: dict[str, Counter[str]] = defaultdict(Counter)
    for blank in found:
        values[blank.kind + blank.relation][blank.value] += 1
    return values


def _features(blank: Blank) -> frozenset[str]:
    words = blank.with_name("NAME").split()
    pairs = {f"{a} {b}" for a, b in pairwise(words)}
    return frozenset(words) | pairs
