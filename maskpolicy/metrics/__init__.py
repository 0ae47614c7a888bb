"""Metrics by name: a score between 0 and 1 for each prediction, given its acceptable answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from maskpolicy.errors import ConfigError, unknown
from maskpolicy.metrics import answers

__all__ = ["METRICS", "Metric", "metric", "score"]


@dataclass(frozen=True)
class Metric:
    """A metric's arithmetic and what is said of it; raise `version` when a score would change."""

    name: str
    score: Callable[[str, Sequence[str]], float]  # (prediction, answers) -> 0..1
    title: str
    version: int = 1


METRICS = {
    entry.name: entry
    for entry in (
        Metric("exact_match", answers.exact_match, "exact match"),
        Metric("f1", answers.f1, "unigram F1"),
        Metric("kilt_accuracy", answers.kilt_accuracy, "accuracy (KILT)"),
        Metric("multiple_choice", answers.multiple_choice, "accuracy"),
    )
}


def metric(name: str) -> Metric:
    """Return the metric called `name`; an unknown name raises with the choices."""
    try:
        return METRICS[name]
    except KeyError:
        raise ConfigError(unknown("metric", name, METRICS)) from None


def score(
    name: str, predictions: Sequence[str], references: Sequence[Sequence[str]]
) -> list[float]:
    """Return the score of each prediction; `references` holds the answers of each example."""
    one = metric(name).score
    pairs = zip(predictions, references, strict=True)
    return [one(prediction, acceptable) for prediction, acceptable in pairs]
