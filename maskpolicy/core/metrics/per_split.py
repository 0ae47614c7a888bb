"""GLUE's metrics over all examples at once (Wang et al. 2019), and the F1 of entities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from maskpolicy.core.errors import DataError

NEGATIVE, POSITIVE = "0", "1"  # GLUE's labels of two classes


def matthews(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Return the Matthews correlation of two or more classes (Gorodkin 2004).

    It is 0 if all predictions, or all answers, are of one class.
    """
    right = [answers[0] for answers in references]
    hits = sum(guess == label for guess, label in zip(predictions, right, strict=True))
    guesses, labels, number = Counter(predictions), Counter(right), len(right)
    covariance = number * hits - sum(guesses[label] * labels[label] for label in labels)
    spreads = [number**2 - sum(count**2 for count in each.values()) for each in (guesses, labels)]
    scale = spreads[0] * spreads[1]
    return covariance / sqrt(scale) if scale else 0.0


def f1(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Return the F1 of the label 1; raises DataError for references other than 0 and 1."""
    strange = next((one for one, *_ in references if one not in (NEGATIVE, POSITIVE)), None)
    if strange is not None:
        raise DataError(
            f"accuracy_f1 has the F1 of label 1, of labels 0 and 1, and the label {strange!r} is "
            "neither: name another metric, such as accuracy"
        )
    pairs = list(zip(predictions, (answers[0] for answers in references), strict=True))
    both = sum(guess == right == POSITIVE for guess, right in pairs)
    either = sum((guess == POSITIVE) + (right == POSITIVE) for guess, right in pairs)
    return 2 * both / either if either else 0.0


def pearson(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Return Pearson's correlation of two lists of numbers; 0 if one is constant."""
    return _correlation(*_numbers(predictions, references))


def spearman(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Return Spearman's correlation, that of the ranks; ties have their mean rank."""
    from scipy.stats import rankdata

    guessed, right = _numbers(predictions, references)
    return _correlation(rankdata(guessed), rankdata(right))


def _numbers(
    predictions: Sequence[str], references: Sequence[Sequence[str]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    right = [float(answers[0]) for answers in references]
    return np.asarray([float(one) for one in predictions]), np.asarray(right)


def _correlation(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    if len(one) < 2 or not np.ptp(one) or not np.ptp(other):
        return 0.0
    return float(np.corrcoef(one, other)[0, 1])


def entity_precision(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Return the share of the predicted entities that are right; 0 if there are none."""
    right, guessed, _ = _entity_counts(predictions, references)
    return right / guessed if guessed else 0.0


def entity_recall(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Return the share of the entities that are predicted; 0 if there are none."""
    right, _, known = _entity_counts(predictions, references)
    return right / known if known else 0.0


def entity_f1(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Return the F1 of entities as CoNLL's conlleval (Tjong Kim Sang and De Meulder 2003).

    Predictions and answers are the tags of words, separated by blanks. An entity is right if its
    words and its type are.
    """
    right, guessed, known = _entity_counts(predictions, references)
    return 2 * right / (guessed + known) if guessed + known else 0.0


def _entity_counts(
    predictions: Sequence[str], references: Sequence[Sequence[str]]
) -> tuple[int, int, int]:
    """Return the numbers of right, of predicted and of true entities."""
    both = zip(predictions, references, strict=True)
    pairs = [(entities(one), entities(answers[0])) for one, answers in both]
    right = sum(len(guessed & known) for guessed, known in pairs)
    guessed, known = (sum(map(len, side)) for side in zip(*pairs, strict=True))
    return right, guessed, known


def entities(tags: str) -> set[tuple[int, int, str]]:
    """Return the entities (first word, end, type) of tags such as "B-PER I-PER O".

    An entity begins at B or S, or at I after another type or O; it ends after E or S.
    """
    spans: set[tuple[int, int, str]] = set()
    begin, kind_before, mark_before = 0, "", "O"
    for place, tag in enumerate([*tags.split(), "O"]):
        mark, _, kind = tag.partition("-")
        is_new = mark in ("B", "S", "O") or mark_before in ("E", "S", "O") or kind != kind_before
        if is_new and mark_before != "O":
            spans.add((begin, place, kind_before))
        if is_new:
            begin = place
        mark_before, kind_before = mark, kind
    return spans
