"""Guesses without a model, a reference for the scores of a task.

Every rule learns only from the train split. Cross-validation in train and dev chooses a rule, which
is then scored on test.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, takewhile
from statistics import fmean
from typing import TypeAlias

import numpy as np

from maskpolicy.core import metrics
from maskpolicy.core.metrics.per_example import normalise
from maskpolicy.core.types import Example
from maskpolicy.data.datafiles import fields
from maskpolicy.data.taskfiles import kilt
from maskpolicy.experiment.definition import MAJORITY
from maskpolicy.experiment.task_kinds import LABEL as LABEL_KIND
from maskpolicy.experiment.task_kinds import SPAN, TAGS, TEXT

__all__ = ["FILE", "LABEL", "RULES", "SENTENCE", "Majority", "Material", "best"]

FILE = "majority.json"  # of the stage's artifact
LABEL = MAJORITY  # of the line on a leaderboard
SENTENCE = (
    "majority: the score of a guess without a model, learned from the train split alone by a "
    "simple rule that cross-validation in train and dev chooses. A score that is not above this "
    "line shows no learning beyond such a guess; being above it is necessary and not "
    "sufficient, and the line is an estimate on the same test examples"
)


@dataclass(frozen=True)
class Majority:
    """The chosen rule, its score on test, and the scores that chose it; all from 0 to 1."""

    rule: str
    score: float
    n: int  # test examples
    tried: Mapping[str, float]  # by rule


def best(
    material: Material, dev: Sequence[Example], test: Sequence[Example], kind: str
) -> Majority:
    """Choose the first rule with the highest score, and score it on test.

    The scores come from cross-validation in train and dev with folds of whole groups. If dev is
    large or there is only one group, the rules learn from train and are scored on dev. `kind` is a
    name of `experiment.task_kinds`.
    """
    rules = RULES.get(kind, COMMONEST)
    usable = {name: guess for name, learn in rules.items() if (guess := learn(material))}
    folds = _folds([*material.train, *dev]) if len(dev) < _ENOUGH else []
    if len(folds) < 2:
        guessed = {name: [(one, guess(one)) for one in dev] for name, guess in usable.items()}
    else:
        guessed = _crossed(material, {name: rules[name] for name in usable}, folds)
    scores = {name: _score(pairs, material.metric) for name, pairs in guessed.items()}
    chosen = max(scores, key=lambda name: scores[name])
    score = _score([(one, usable[chosen](one)) for one in test], material.metric)
    return Majority(chosen, score, len(test), scores)


def _folds(examples: Sequence[Example]) -> list[list[Example]]:
    """Return the examples in up to _FOLDS parts of whole groups."""
    groups = sorted({one.group for one in examples}, key=fields.digest)
    numbers = {group: number % _FOLDS for number, group in enumerate(groups)}
    folds: dict[int, list[Example]] = defaultdict(list)
    for one in examples:
        folds[numbers[one.group]].append(one)
    return list(folds.values())


def _crossed(
    material: Material, rules: Mapping[str, Learn], folds: Sequence[Sequence[Example]]
) -> dict[str, list[tuple[Example, str]]]:
    """Return the guesses of each rule for each example, learned from the other folds."""
    guessed: dict[str, list[tuple[Example, str]]] = {name: [] for name in rules}
    for fold in folds:
        others = [one for other in folds if other is not fold for one in other]
        part = replace(material, train=others)
        for name, learn in rules.items():
            guess = learn(part)
            guessed[name] += [(one, guess(one) if guess else "") for one in fold]
    return guessed


def _score(pairs: Sequence[tuple[Example, str]], metric: str) -> float:
    examples, guesses = zip(*pairs, strict=True)
    return metrics.score(metric, guesses, examples).score


_FOLDS = 5
_ENOUGH = 1000  # examples of dev, with which a rule is chosen to two points or better
_LONGEST = 10  # words of an answer that is searched for in a source
_LENGTHS = (*range(1, 11), 20, 50, 100, 200, None)  # words of a guessed span; None: the context
_SAMPLE = 1000  # examples on which the length of a guessed span is tried

Guess: TypeAlias = Callable[[Example], str]


@dataclass(frozen=True)
class Material:
    """The data that a rule learns from."""

    train: Sequence[Example]
    metric: str
    keep: str = "start"  # the end of a source at which the question is: TaskFacts.keep
    unanswerable: bool = False  # whether some contexts hold no answer

    @cached_property
    def templates(self) -> Templates:
        """The templates of train's questions, and their relations."""
        return Templates(self.train, self.keep, self.metric)


Learn: TypeAlias = Callable[[Material], Guess | None]
"""A rule; it returns None if it does not apply to a task."""


def _commonest(material: Material) -> Guess:
    """Guess the most frequent answer."""
    answers = AnswerCounts(material.metric, ((None, one) for one in material.train))
    return lambda example: answers.best(None, example.choices)


def _template(material: Material) -> Guess:
    """Guess the most frequent answer to questions of the same template."""
    templates = material.templates
    pairs = ((template, one) for template, own in templates.examples.items() for one in own)
    answers = AnswerCounts(material.metric, pairs)
    return lambda example: answers.best(templates.of(example), example.choices)


def _relation(material: Material) -> Guess:
    """Guess the most frequent answer to questions of the same relation."""
    templates = material.templates
    return lambda example: templates.answers.best(templates.relation(example), example.choices)


def _in_source(material: Material) -> Guess:
    """Guess the most frequent answer of the relation that the source holds."""
    templates = material.templates
    every = Counter(answer for one in material.train for answer in dict.fromkeys(one.targets))
    answers_of: dict[str, list[str]] = defaultdict(list)
    for answer in every:
        answers_of[normalise(answer)].append(answer)
    longest = min(_LONGEST, max(len(text.split()) for text in answers_of))

    def guess(example: Example) -> str:
        relation = templates.relation(example)
        own = templates.answers.counts(relation)
        words = normalise(example.source).split()
        mentioned = [
            answer
            for start in range(len(words))
            for end in range(start + 1, min(start + longest, len(words)) + 1)
            for answer in answers_of.get(" ".join(words[start:end]), ())
        ]
        if mentioned:
            return max(mentioned, key=lambda answer: (own[answer], every[answer]))
        return templates.answers.best(relation, example.choices)

    return guess


def _mention(material: Material) -> Guess | None:
    """Guess the most frequent page of the mention, or the mention itself."""
    marked = [one for one in material.train if kilt.mention(one.source)]
    answers = AnswerCounts(material.metric, ((kilt.mention(one.source), one) for one in marked))

    def guess(example: Example) -> str:
        mention = kilt.mention(example.source)
        return answers.best(mention) or mention

    return guess if marked else None


def _place(material: Material) -> Guess | None:
    """Guess the choice at the place of most right ones."""
    counts = Counter(
        one.choices.index(one.targets[0]) for one in material.train if one.targets[0] in one.choices
    )
    order = [place for place, _ in counts.most_common()]

    def guess(example: Example) -> str:
        return next((example.choices[i] for i in order if i < len(example.choices)), "")

    return guess if order else None


def _label(material: Material) -> Guess:
    """Guess the label that scores best in train."""
    references = [one.targets for one in material.train]
    if material.metric == "correlation":
        constant = f"{fmean(float(answers[0]) for answers in references):g}"
    else:
        labels = [label for label, _ in Counter(one[0] for one in references).most_common()]
        totals = {
            label: metrics.total(material.metric, [label] * len(references), references).score
            for label in labels
        }
        constant = max(labels, key=lambda label: totals[label])
    return lambda example: constant


def _word_tags(material: Material) -> Guess:
    """Guess the most frequent tag of each word; "O" for a word that train lacks."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for example in material.train:
        for word, tag in zip(example.source.split(" "), example.targets[0].split(), strict=True):
            counts[word][tag] += 1
    tags = {word: counted.most_common(1)[0][0] for word, counted in counts.items()}
    return lambda example: " ".join(tags.get(word, "O") for word in example.source.split(" "))


def _opening(material: Material) -> Guess:
    """Guess the first words of the context, as many as score best in train."""
    metric, sample = metrics.metric(material.metric), material.train[:_SAMPLE]

    def start(example: Example, length: int | None) -> str:
        return " ".join((example.context or "").split()[:length])

    def mean(length: int | None) -> float:
        return fmean(metric.score(start(one, length), one.targets) for one in sample)

    best = max(_LENGTHS, key=mean)
    return lambda example: start(example, best)


COMMONEST: Mapping[str, Learn] = {"commonest answer": _commonest}
RULES: Mapping[str, Mapping[str, Learn]] = {
    TEXT: {
        **COMMONEST,
        "relation": _relation,
        "template": _template,
        "in the source": _in_source,
        "mention": _mention,
        "place": _place,
    },
    LABEL_KIND: {"commonest label": _label},
    TAGS: {"commonest tag of a word": _word_tags},
    SPAN: {
        "no answer": lambda material: (lambda example: "") if material.unanswerable else None,
        "first words": _opening,
    },
}
"""By kind of task; all other kinds have COMMONEST."""


_CANDIDATES, _TRIED = 20, 100  # the answers tried, and the examples for each


class AnswerCounts:
    """Counts the answers of examples that share a key, and returns the best guess for a key.

    That is the answer which is right for most examples. If answers can be partly right (F1), it is
    the frequent answer with the highest mean score on the key's examples.
    """

    def __init__(self, metric: str, examples: Iterable[tuple[Hashable, Example]] = ()) -> None:
        """Count the answers of (key, example) pairs."""
        self._metric = metrics.metric(metric)
        self._counts: dict[Hashable, Counter[str]] = defaultdict(Counter)
        self._examples: dict[Hashable, list[Example]] = defaultdict(list)
        self._found: dict[Hashable, str] = {}
        for key, example in examples:
            self.add(key, example)

    def add(self, key: Hashable, example: Example) -> None:
        """Count the answers of one example: each acceptable answer once."""
        self._counts[key].update(dict.fromkeys(example.targets, 1))
        if self._metric.graded and len(self._examples[key]) < _TRIED:
            self._examples[key].append(example)

    def counts(self, key: Hashable) -> Counter[str]:
        """Return the number of examples of a key that accept each answer; read-only."""
        return self._counts.get(key, Counter())

    def best(self, key: Hashable, choices: Sequence[str] = ()) -> str:
        """Return the best guess for a key, "" for an unknown one.

        With choices, it is the choice that is the most frequent answer, or else the first choice.
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


FREQUENT = 0.05  # share of train's groups in which a word of a template occurs, or more
_MOST = 1000  # the most templates of a task

Template: TypeAlias = tuple[str, ...]


class Templates:
    """The most frequent templates of a task's train questions, and the examples of each.

    A template is a question without its rare words; zsRE's relations keep all words.
    """

    def __init__(self, train: Sequence[Example], keep: str, metric: str) -> None:
        """Find the frequent words and the templates; `keep` is TaskFacts.keep."""
        self._keep = keep
        self._frequent = _frequent(train, keep)
        examples: dict[Template, list[Example]] = defaultdict(list)
        for one in train:
            examples[self._exact(one)].append(one)
        most = sorted(examples, key=lambda template: -len(examples[template]))[:_MOST]
        self.examples = {template: examples[template] for template in most}
        every = dict.fromkeys(chain.from_iterable(most))
        self._places = {word: place for place, word in enumerate(every)}
        self._holds = np.zeros((len(every), len(most)), np.uint8)  # words x templates
        for number, template in enumerate(most):
            self._holds[[self._places[word] for word in template], number] = 1
        self._sizes = self._holds.sum(0, dtype=int)
        self._near: dict[Template, Template] = {}
        self.answers = AnswerCounts(metric)  # of the relation of each template
        self._counted: set[Template] = set()
        self._with_answer: dict[str, list[Template]] = defaultdict(list)
        for template in most:
            for answer in dict.fromkeys(self._answers(template)):
                self._with_answer[answer].append(template)

    def of(self, example: Example) -> Template:
        """Return the template of an example or, if it is unknown, the most similar known one."""
        template = self._exact(example)
        if template in self.examples:
            return template
        if template not in self._near:
            self._near[template] = self._nearest(template)
        return self._near[template]

    def relation(self, example: Example) -> Template:
        """Return the template of an example, whose relation's answers are then in `answers`.

        A relation has all templates that share an answer with this one.
        """
        template = self.of(example)
        if template not in self._counted:
            self._counted.add(template)
            related = (self._with_answer[answer] for answer in self._answers(template))
            for other in dict.fromkeys(chain.from_iterable(related)):
                for one in self.examples[other]:
                    self.answers.add(template, one)
        return template

    def _answers(self, template: Template) -> Iterator[str]:
        return (answer for one in self.examples[template] for answer in one.targets)

    def _exact(self, example: Example) -> Template:
        words = question(example, self._keep).split()
        whole = kilt.SEPARATOR in example.source
        return tuple(word for word in words if whole or word in self._frequent)

    def _nearest(self, template: Template) -> Template:
        """Return the known template with the largest share of common words (Jaccard).

        If there are several: the one with the longest common beginning, then the most frequent.
        """
        words = set(template)
        known = [self._places[word] for word in words if word in self._places]
        common = self._holds[np.asarray(known, int)].sum(0, dtype=int)
        shares = common / np.maximum(1, self._sizes + len(words) - common)
        every = list(self.examples)
        nearest = [every[n] for n in np.flatnonzero(shares == shares.max())]

        def begins_alike(other: Template) -> int:
            pairs = zip(template, other, strict=False)
            return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

        return max(nearest, key=begins_alike)


def question(example: Example, keep: str = "start") -> str:
    """Return the question in a source, in lower case.

    That is zsRE's relation, the last sentence of a dialogue before the context (`keep` is "end"),
    or the first line outside of the context.
    """
    _, mark, relation = example.source.partition(kilt.SEPARATOR)
    context_lines = set((example.context or "").split("\n"))
    lines = [line for line in (relation or example.source).split("\n") if line not in context_lines]
    if not lines:
        return ""
    asked = lines[0]
    if keep == "end" and not mark:
        asked = re.split(r"(?<=[.!?])\s+", lines[-1].strip())[-1]
    return fields.alike(asked)


def _frequent(train: Sequence[Example], keep: str) -> set[str]:
    """Return the words that occur in a share of the groups, at least two; names do not."""
    groups: dict[str, set[str]] = defaultdict(set)
    for one in train:
        for word in question(one, keep).split():
            groups[word].add(one.group)
    least = max(2, FREQUENT * len({one.group for one in train}))
    return {word for word, members in groups.items() if len(members) >= least}
