"""The rules of guessing: few, simple, and each learnt from a task's train split alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeAlias

from maskpolicy import kilt, metrics
from maskpolicy.majority.answers import Answers
from maskpolicy.majority.templates import Template, Templates
from maskpolicy.metrics.answers import normalise
from maskpolicy.types import Example

_LONGEST = 10  # words of an answer that is looked for in a source, and of a guessed span
_SAMPLE = 1000  # examples on which the length of a guessed span is tried

Guess: TypeAlias = Callable[[Example], str]


@dataclass(frozen=True)
class Material:
    """What a rule learns from."""

    train: Sequence[Example]
    metric: str
    keep: str = "start"  # the end of a source at which the question is: TaskFacts.keep
    unanswerable: bool = False  # whether some contexts hold no answer


@dataclass(frozen=True)
class Rule:
    """One rule; `learn` returns None where it says nothing of a task."""

    name: str
    about: str  # what it guesses
    learn: Callable[[Material], Guess | None]


def _commonest(material: Material) -> Guess:
    answers = Answers(material.metric)
    for example in material.train:
        answers.add(None, example)
    return lambda example: answers.best(None, example.choices)


def _template(material: Material) -> Guess:
    templates, answers = Templates(material.train, material.keep), Answers(material.metric)
    for template, examples in templates.examples.items():
        for example in examples:
            answers.add(template, example)
    return lambda example: answers.best(templates.of(example), example.choices)


def _relation(material: Material) -> Guess:
    """Count all templates together that share an answer: they are wordings of one relation."""
    templates, answers = Templates(material.train, material.keep), Answers(material.metric)
    holding: dict[str, list[Template]] = defaultdict(list)
    for template, examples in templates.examples.items():
        for answer in dict.fromkeys(answer for one in examples for answer in one.targets):
            holding[answer].append(template)
    learnt: set[Template] = set()

    def learn(template: Template) -> None:
        own = [answer for one in templates.examples[template] for answer in one.targets]
        for other in dict.fromkeys(other for answer in own for other in holding[answer]):
            for example in templates.examples[other]:
                answers.add(template, example)
        learnt.add(template)

    def guess(example: Example) -> str:
        template = templates.of(example)
        if template not in learnt:
            learn(template)
        return answers.best(template, example.choices)

    return guess


def _in_source(material: Material) -> Guess:
    overall = _commonest(material)
    counts = Counter(answer for one in material.train for answer in dict.fromkeys(one.targets))
    known: dict[str, tuple[int, str]] = {}
    for answer, count in counts.items():
        words = normalise(answer)
        if 0 < len(words.split()) <= _LONGEST and count > known.get(words, (0, ""))[0]:
            known[words] = (count, answer)
    longest = max((len(words.split()) for words in known), default=0)

    def guess(example: Example) -> str:
        words = normalise(example.source).split()
        found = [
            known[text]
            for start in range(len(words))
            for end in range(start + 1, min(start + longest, len(words)) + 1)
            if (text := " ".join(words[start:end])) in known
        ]
        return max(found, key=lambda each: each[0])[1] if found else overall(example)

    return guess


def _mention(material: Material) -> Guess | None:
    answers = Answers(material.metric)
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

    def mean(length: int) -> float:
        return fmean(metric.score(_start(one, length), one.targets) for one in sample)

    best = max(range(1, _LONGEST + 1), key=mean)
    return lambda example: _start(example, best)


def _start(example: Example, length: int) -> str:
    return " ".join((example.context or "").split()[:length])


RULES: Mapping[str, tuple[Rule, ...]] = {
    "text": (
        Rule("commonest answer", "the most frequent answer", _commonest),
        Rule("relation", "the most frequent answer to questions of the same relation", _relation),
        Rule("template", "the most frequent answer to questions of the same template", _template),
        Rule("in the source", "the most frequent answer that the source holds", _in_source),
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
