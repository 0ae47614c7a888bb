"""Metrics by name: a score between 0 and 1 for each prediction, given its acceptable answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from maskpolicy.core.errors import ConfigError, unknown
from maskpolicy.core.metrics import per_example, per_split
from maskpolicy.core.types import Example, Json

__all__ = ["METRICS", "Metric", "Total", "answers", "metric", "score", "title", "total"]

References: TypeAlias = Sequence[Sequence[str]]
Part: TypeAlias = Callable[[Sequence[str], References], float]


@dataclass(frozen=True)
class Metric:
    """A metric and its properties; raise `version` with a change that alters scores.

    The version of a plugin's metric is a digest of its code.
    """

    name: str
    score: Callable[[str, Sequence[str]], float]  # (prediction, answers) -> 0..1
    title: str
    version: int | str = 1
    parts: Mapping[str, Part] = field(default_factory=dict)
    """Figures over all predictions: the total is their mean, or without any the mean of `score`."""
    besides: Mapping[str, Part] = field(default_factory=dict)  # reported, but not in the total
    graded: bool = False  # a prediction can be partly right
    short: bool = False  # compares with the short answers of an example, if it has some
    numbers: bool = False  # predictions and answers are numbers
    labels: tuple[str, ...] = ()  # only for tasks with these labels, in any order


@dataclass(frozen=True)
class Total:
    """A metric over all test examples: the number behind a cell of the leaderboard."""

    metric: str
    score: float  # between 0 and 1
    n: int  # examples
    version: int | str | None = None  # of the metric
    mean: float | None = None  # of the examples' own scores, where `score` is another figure
    parts: Mapping[str, float] = field(default_factory=dict)  # other figures by name
    scores: Sequence[float] = field(default=(), compare=False, repr=False)  # (n,); not in the JSON

    def to_json(self) -> dict[str, Json]:
        """Return the JSON of result.json and of a cell's file."""
        required = {"metric": self.metric, "score": self.score, "n": self.n}
        optional = {"version": self.version, "mean": self.mean, "parts": dict(self.parts) or None}
        return required | {name: value for name, value in optional.items() if value is not None}

    @classmethod
    def from_json(cls, values: Mapping[str, Json]) -> Total:
        """Return a total from the JSON of `to_json`; raises KeyError for missing values."""
        optional = {name: values[name] for name in ("version", "mean", "parts") if name in values}
        return cls(values["metric"], float(values["score"]), values["n"], **optional)


def _mean(one: Callable[[str, Sequence[str]], float]) -> Part:
    def mean(predictions: Sequence[str], references: References) -> float:
        scores = [one(*pair) for pair in zip(predictions, references, strict=True)]
        return sum(scores) / len(scores)

    return mean


_BOTH = {"accuracy": _mean(per_example.label), "f1": per_split.f1}
_EXACT = {"exact_match": _mean(per_example.exact_match)}
_EXACT_2 = {"exact_match": _mean(per_example.squad_exact)}
_F1 = {"f1": _mean(per_example.f1)}
_ENTITIES = {"precision": per_split.entity_precision, "recall": per_split.entity_recall}
_CORRELATIONS = {"pearson": per_split.pearson, "spearman": per_split.spearman}


METRICS = {
    entry.name: entry
    for entry in (
        Metric("exact_match", per_example.exact_match, "exact match"),
        Metric("exact_match_f1", per_example.exact_match, "exact match", besides=_F1),
        Metric("nq_exact_match", per_example.nq_exact_match, "exact match"),
        Metric("triviaqa_exact_match", per_example.triviaqa_exact_match, "exact match"),
        Metric("f1", per_example.f1, "unigram F1", graded=True),
        Metric("contains", per_example.contains, "answer contained", short=True),
        Metric("kilt_accuracy", per_example.kilt_accuracy, "KILT accuracy"),
        Metric("multiple_choice", per_example.multiple_choice, "accuracy"),
        Metric("accuracy", per_example.label, "accuracy"),
        Metric(
            *("accuracy_f1", per_example.label, "mean of accuracy and F1"),
            parts=_BOTH,
            labels=(per_split.NEGATIVE, per_split.POSITIVE),
        ),
        Metric(
            *("matthews", per_example.label, "Matthews", 2),
            parts={"matthews": per_split.matthews},
        ),
        Metric(
            *("correlation", per_example.closeness, "mean correlation"),
            parts=_CORRELATIONS,
            numbers=True,
        ),
        Metric(
            *("entity_f1", per_example.label, "entity F1"),
            parts={"f1": per_split.entity_f1},
            besides=_ENTITIES,
        ),
        Metric("squad_v1", per_example.f1, "SQuAD F1", besides=_EXACT, graded=True),
        Metric("squad", per_example.squad_f1, "SQuAD F1", version=2, besides=_EXACT_2, graded=True),
    )
}


def metric(name: str) -> Metric:
    """Return the metric called `name`; raises ConfigError for an unknown name."""
    if name not in METRICS:
        raise ConfigError(unknown("metric", name, METRICS))
    return METRICS[name]


def title(name: str) -> str:
    """Return the heading of a metric in tables, also for an unknown metric."""
    return METRICS[name].title if name in METRICS else name.replace("_", " ")


def answers(name: str, example: Example) -> tuple[str, ...]:
    """Return the answers of an example with which a metric compares a prediction."""
    return (metric(name).short and example.short_answers) or example.targets


def score(name: str, predictions: Sequence[str], examples: Sequence[Example]) -> Total:
    """Return the score of the predictions of examples under a task's metric; see `total`."""
    return total(name, predictions, [list(answers(name, example)) for example in examples])


def total(name: str, predictions: Sequence[str], references: References) -> Total:
    """Return the score of all predictions; `references` holds the answers of each example."""
    about = metric(name)
    scores = [about.score(*pair) for pair in zip(predictions, references, strict=True)]
    parts = {part: of(predictions, references) for part, of in about.parts.items()}
    values = list(parts.values()) or scores
    besides = {part: of(predictions, references) for part, of in about.besides.items()}
    figures = (parts if len(parts) > 1 else {}) | besides
    mean = sum(scores) / len(scores) if about.parts else None
    overall = sum(values) / len(values)
    return Total(about.name, overall, len(scores), about.version, mean, figures, scores)
