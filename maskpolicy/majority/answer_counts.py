"""Counts of answers, and the best guess that they give."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from statistics import fmean

from maskpolicy import metrics
from maskpolicy.types import Example

_CANDIDATES, _SAMPLE = 20, 100  # answers tried, and examples that each is tried on


class AnswerCounts:
    """Counts the answers of examples that share a key, and returns the best guess for a key.

    That is the answer that is right for most examples. Where answers can be partly right (F1), it
    is the one of the most frequent answers with the highest mean score on the key's examples.
    """

    def __init__(self, metric: str) -> None:
        """Begin without examples."""
        self._metric = metrics.metric(metric)
        self._counts: dict[Hashable, Counter[str]] = defaultdict(Counter)
        self._examples: dict[Hashable, list[Example]] = defaultdict(list)
        self._found: dict[Hashable, str] = {}

    def add(self, key: Hashable, example: Example) -> None:
        """Count the answers of one example: each acceptable answer once."""
        self._counts[key].update(dict.fromkeys(example.targets, 1))
        if self._metric.graded and len(self._examples[key]) < _SAMPLE:
            self._examples[key].append(example)

    def counts(self, key: Hashable) -> Counter[str]:
        """Return how many examples of a key accept each answer; not to be changed."""
        return self._counts.get(key, Counter())

    def best(self, key: Hashable, choices: Sequence[str] = ()) -> str:
        """Return the best guess for a key, "" for an unknown one.

        With choices, it is the one that is most frequent as an answer, or else the first.
        """
        counts = self.counts(key)
        if choices:
            return max(choices, key=lambda choice: counts[choice])
        if key not in self._found:
            self._found[key] = self._choose(key) if counts else ""
        return self._found[key]

    def _choose(self, key: Hashable) -> str:
        candidates = [answer for answer, _ in self._counts[key].most_common(_CANDIDATES)]
        if not self._metric.graded:
            return candidates[0]
        examples = self._examples[key]

        def mean(answer: str) -> float:
            return fmean(self._metric.score(answer, one.targets) for one in examples)

        return max(candidates, key=mean)
