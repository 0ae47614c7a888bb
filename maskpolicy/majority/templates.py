"""Templates of questions: their frequent words, without the names that they ask about."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from itertools import takewhile
from typing import TypeAlias

import numpy as np

from maskpolicy.formats import kilt
from maskpolicy.types import Example

FREQUENT = 0.05  # share of train's groups in which a word of a template occurs, or more
_MOST = 1000  # templates that are known of a task

Template: TypeAlias = tuple[str, ...]


class Templates:
    """The most frequent templates of a task's train questions, and the examples of each.

    A template is a question without its rare words; of one of zsRE's relations all words count.
    """

    def __init__(self, train: Sequence[Example], keep: str) -> None:
        """Learn which words are frequent, and the templates; `keep` is TaskFacts.keep."""
        self._keep = keep
        self._frequent = _frequent(train, keep)
        examples: dict[Template, list[Example]] = defaultdict(list)
        for one in train:
            examples[self._exact(one)].append(one)
        most = sorted(examples, key=lambda template: -len(examples[template]))[:_MOST]
        self.examples = {template: examples[template] for template in most}
        self._most = most
        self._columns: dict[str, int] = {}
        for word in (word for template in most for word in template):
            self._columns.setdefault(word, len(self._columns))
        self._has = np.zeros((len(most), len(self._columns)), bool)  # templates, words
        for row, template in enumerate(most):
            self._has[row, [self._columns[word] for word in template]] = True
        self._near: dict[Template, Template] = {}

    def of(self, example: Example) -> Template:
        """Return the template of an example or, where it is unknown, the most similar known one."""
        template = self._exact(example)
        if template in self.examples:
            return template
        if template not in self._near:
            self._near[template] = self._nearest(template)
        return self._near[template]

    def _exact(self, example: Example) -> Template:
        words = question(example, self._keep).split()
        whole = kilt.SEPARATOR in example.source
        return tuple(word for word in words if whole or word in self._frequent)

    def _nearest(self, template: Template) -> Template:
        """Return the known template with the largest share of common words (Jaccard).

        If there are several: the one with the longest common beginning, then the most frequent.
        """
        words = set(template)
        shared = self._has[:, [self._columns[w] for w in words if w in self._columns]].sum(axis=1)
        either = self._has.sum(axis=1) + len(words) - shared
        shares = shared / np.maximum(either, 1)
        nearest = [self._most[row] for row in np.flatnonzero(shares == shares.max()).tolist()]
        return max(nearest, key=lambda other: _alike(template, other))


def question(example: Example, keep: str = "start") -> str:
    """Return the part of a source that asks, in lower case.

    That is zsRE's relation; of a dialogue (`keep` is "end") the last sentence before any context;
    of all else the first line that is not of the context.
    """
    _, mark, relation = example.source.partition(kilt.SEPARATOR)
    given = set((example.context or "").split("\n"))
    lines = [line for line in (relation or example.source).split("\n") if line not in given]
    if not lines:
        return ""
    asked = lines[0]
    if keep == "end" and not mark:
        asked = re.split(r"(?<=[.!?])\s+", lines[-1].strip())[-1]
    return " ".join(asked.lower().split())


def _frequent(train: Sequence[Example], keep: str) -> set[str]:
    """Return the words that occur in a share of the groups, at least two: names occur in few."""
    groups: dict[str, set[str]] = defaultdict(set)
    for one in train:
        for word in question(one, keep).split():
            groups[word].add(one.group or one.id)
    least = max(2, FREQUENT * len({one.group or one.id for one in train}))
    return {word for word, members in groups.items() if len(members) >= least}


def _alike(one: Template, other: Template) -> int:
    """Return how many words two templates share at their beginnings."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
