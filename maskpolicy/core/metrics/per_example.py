"""Metrics of single examples: they compare a prediction with all acceptable answers."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_BLANKS = str.maketrans(dict.fromkeys(string.punctuation + "‘’´`", " "))


def normalise(text: str) -> str:
    """Lowercase the text, remove ASCII punctuation, then articles, and collapse whitespace.

    This is SQuAD's normalisation (Rajpurkar et al. 2016), which KILT and most closed-book papers
    use.
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def normalise_nq(text: str) -> str:
    """Decompose accented letters (NFD), then normalise as SQuAD.

    This is the script of NQ-open (Lee et al. 2019): a letter with an accent equals the letter
    followed by a combining accent.
    """
    return normalise(unicodedata.normalize("NFD", text))


def normalise_triviaqa(text: str) -> str:
    """Normalise as TriviaQA's script (Joshi et al. 2017): punctuation becomes a blank.

    So "U.S." is "u s" and not "us". Typographic single quotes count as punctuation too.
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_BLANKS)).split())


def exact_match(
    prediction: str, answers: Sequence[str], normalise: Callable[[str], str] = normalise
) -> float:
    """Return 1 if the normalised prediction equals a normalised answer, else 0."""
    guess = normalise(prediction)
    return float(any(guess == normalise(answer) for answer in answers))


nq_exact_match = partial(exact_match, normalise=normalise_nq)
triviaqa_exact_match = partial(exact_match, normalise=normalise_triviaqa)


def kilt_accuracy(prediction: str, answers: Sequence[str]) -> float:
    """Return 1 if the prediction is an answer, apart from blanks at its ends, else 0.

    KILT's "accuracy" (Petroni et al. 2021, eval_downstream) compares without normalisation: titles
    of entity linking differ by case and punctuation. An empty prediction is wrong.
    """
    guess = prediction.strip()
    return float(bool(guess) and any(guess == answer.strip() for answer in answers))


def f1(prediction: str, answers: Sequence[str]) -> float:
    """Return the best unigram F1 with an answer, over normalised words (SQuAD, KILT)."""
    guess = normalise(prediction).split()
    return max((_overlap(guess, normalise(answer).split()) for answer in answers), default=0.0)


def contains(prediction: str, answers: Sequence[str]) -> float:
    """Return 1 if the prediction contains the words of an answer in a row, else 0.

    This is like DPR's `has_answer` (Karpukhin et al. 2020) for passages, but after SQuAD's
    normalisation, which removes articles and punctuation. No prediction contains an answer that is
    empty after normalisation.
    """
    text = f" {normalise(prediction)} "
    return float(any(f" {answer} " in text for answer in filter(None, map(normalise, answers))))


def multiple_choice(prediction: str, answers: Sequence[str]) -> float:
    """Return 1 if the normalised prediction equals the right choice's text, else 0.

    A choice that is empty after normalisation, such as "A" or "+", is compared unchanged.
    """
    right = next(iter(answers), "")
    if normalise(right):
        return exact_match(prediction, [right])
    return float(prediction.strip().lower() == right.strip().lower())


def label(prediction: str, answers: Sequence[str]) -> float:
    """Return 1 if the predicted label is the right one, else 0; without an answer, "" is right."""
    return float(prediction == next(iter(answers), ""))


def closeness(prediction: str, answers: Sequence[str]) -> float:
    """Return 1 - |prediction - answer| / 5 for similarities of STS-B, which are from 0 to 5."""
    return 1 - min(1.0, abs(float(prediction) - float(answers[0])) / 5)


def squad_f1(prediction: str, answers: Sequence[str]) -> float:
    """Return SQuAD 2.0's F1; without an answer, 1 for the empty prediction, else 0.

    As in the official script, only equality counts if normalisation leaves no words.
    """
    guess = normalise(prediction).split()
    right = [answer.split() for answer in _left(answers)]
    return max(_overlap(guess, one) if guess and one else float(guess == one) for one in right)


def squad_exact(prediction: str, answers: Sequence[str]) -> float:
    """Return SQuAD 2.0's exact match; without an answer, 1 for the empty prediction, else 0."""
    return float(normalise(prediction) in _left(answers))


def _left(answers: Sequence[str]) -> list[str]:
    """Return the normalised answers that are not empty, or else the empty answer."""
    return list(filter(None, map(normalise, answers))) or [""]


def _overlap(guess: Sequence[str], answer: Sequence[str]) -> float:
    same = sum((Counter(guess) & Counter(answer)).values())
    return 2 * same / (len(guess) + len(answer)) if same else 0.0
