"""The rules of guessing: a few simple ones, each learnt only from a task's train split."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import TypeAlias

from maskpolicy import metrics
from maskpolicy.formats import kilt
from maskpolicy.majority.answer_counts import AnswerCounts
from maskpolicy.majority.relations import Relations
from maskpolicy.majority.templates import Templates
from maskpolicy.metrics.per_example import normalise
from maskpolicy.types import Example

_LONGEST = 10  # words of an answer that a rule searches for in a source
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
        """The templates of train's questions."""
        return Templates(self.train, self.keep)

    @cached_property
    def relations(self) -> Relations:
        """The relations of train's questions, with their answers."""
        return Relations(self.templates, self.metric)


@dataclass(frozen=True)
class Rule:
    """One rule; `learn` returns None if the rule does not apply to a task."""

    name: str
    about: str  # what it guesses
    learn: Callable[[Material], Guess | None]


def _commonest(material: Material) -> Guess:
    answers = AnswerCounts(material.metric)
    for example in material.train:
        answers.add(None, example)
    return lambda example: answers.best(None, example.choices)


def _template(material: Material) -> Guess:
    templates, answers = material.templates, AnswerCounts(material.metric)
    for template, examples in templates.examples.items():
        for example in examples:
            answers.add(template, example)
    return lambda example: answers.best(templates.of(example), example.choices)


def _relation(material: Material) -> Guess:
    relations = material.relations
    return lambda example: relations.answers.best(relations.of(example), example.choices)


def _in_source(material: Material) -> Guess:
    relations, overall = material.relations, AnswerCounts(material.metric)
    known: dict[str, list[str]] = defaultdict(list)
    for example in material.train:
        overall.add(None, example)
    for answer in overall.counts(None):
        known[normalise(answer)].append(answer)
    longest = min(_LONGEST, max(len(text.split()) for text in known))

    def guess(example: Example) -> str:
        relation = relations.of(example)
        own, every = relations.answers.counts(relation), overall.counts(None)
        found = [answer for text in _spans(example, longest) for answer in known.get(text, ())]
        if found:
            return max(found, key=lambda answer: (own[answer], every[answer]))
        return relations.answers.best(relation, example.choices)

    return guess


def _spans(example: Example, longest: int) -> Iterator[str]:
    """Yield all spans of up to so many normalised words of a source."""
    words = normalise(example.source).split()
    for start in range(len(words)):
        for end in range(start + 1, min(start + longest, len(words)) + 1):
            yield " ".join(words[start:end])


def _mention(material: Material) -> Guess | None:
    answers = AnswerCounts(material.metric)
    marked = [one for one in material.train if kilt.mention(one.source)]
    for example in marked:
        answers.add(kilt.mention(example.source), example)

    def guess(example: Example) -> str:
        mention = kilt.mention(example.source)
        return answers.best(mention) or mention

    return guess if marked else None


def _place(material: Material) -> Guess | None:
    counts = Counter(
        one.choices.index(one.targets[0]) for one in material.train if one.targets[0] in one.choices
    )
    order = [place for place, _ in counts.most_common()]

    def guess(example: Example) -> str:
        return next((example.choices[i] for i in order if i < len(example.choices)), "")

    return guess if order else None


def _label(material: Material) -> Guess:
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


def _no_answer(material: Material) -> Guess | None:
    return (lambda example: "") if material.unanswerable else None


def _opening(material: Material) -> Guess:
    metric, sample = metrics.metric(material.metric), material.train[:_SAMPLE]

    def mean(length: int | None) -> float:
        return fmean(metric.score(_start(one, length), one.targets) for one in sample)

    best = max(_LENGTHS, key=mean)
    return lambda example: _start(example, best)


def _start(example: Example, length: int | None) -> str:
    return " ".join((example.context or "").split()[:length])


RULES: Mapping[str, tuple[Rule, ...]] = {
    "text": (
        Rule("commonest answer", "the most frequent answer", _commonest),
        Rule("relation", "the most frequent answer to questions of the same relation", _relation),
        Rule("template", "the most frequent answer to questions of the same template", _template),
        Rule("in the source", "the most frequent answer of it that the source holds", _in_source),
        Rule("mention", "the most frequent page of the mention, or the mention itself", _mention),
        Rule("place", "the choice at the place where the right one is most often", _place),
    ),
    "label": (Rule("commonest label", "the one label that scores best in train", _label),),
    "span": (
        Rule("no answer", "that the context holds no answer", _no_answer),
        Rule("first words", "as many first words of the context as score best in train", _opening),
    ),
}
"""By kind of task; of equally good rules the first is taken."""
