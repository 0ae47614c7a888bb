"""The arithmetic of the metrics: a prediction against all of its acceptable answers."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise(text: str) -> str:
    """Lower the text; drop ASCII punctuation, then articles; make every blank one space.

    SQuAD's normalisation (Rajpurkar et al. 2016), which KILT's F1 and the closed-book literature
    share. TriviaQA's own script puts a blank where this drops punctuation.
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    """Return 1 if the normalised prediction equals a normalised answer, else 0."""
    guess = normalise(prediction)
    return float(any(guess == normalise(answer) for answer in answers))


def kilt_accuracy(prediction: str, answers: Sequence[str]) -> float:
    """Return 1 if the prediction IS an answer, outer blanks aside, else 0.

    KILT's "accuracy" (Petroni et al. 2021, eval_downstream) compares without normalisation: titles
    of entity linking differ by case and punctuation. An empty prediction is wrong.
    """
    guess = prediction.strip()
    return float(bool(guess) and any(guess == answer.strip() for answer in answers))


def f1(prediction: str, answers: Sequence[str]) -> float:
    """Return the best unigram F1 with an answer, over normalised words (SQuAD, KILT)."""
    guess = normalise(prediction).split()
    return max((_overlap(guess, normalise(answer).split()) for answer in answers), default=0.0)


def multiple_choice(prediction: str, answers: Sequence[str]) -> float:
    """Return 1 if the normalised prediction equals the right choice's text, else 0.

    Of a choice such as "A" or "+" the normalisation leaves nothing: it is compared as it stands.
    """
    right = answers[0]
    if normalise(right):
        return exact_match(prediction, [right])
    return float(prediction.strip().lower() == right.strip().lower())


def label(prediction: str, answers: Sequence[str]) -> float:
    """Return 1 if the predicted label is the right one, else 0."""
    return float(prediction == answers[0])


def closeness(prediction: str, answers: Sequence[str]) -> float:
    """Return 1 less the distance of two of STS-B's similarities (0 to 5), as a share of that."""
    return 1 - min(1.0, abs(float(prediction) - float(answers[0])) / 5)


def squad_f1(prediction: str, answers: Sequence[str]) -> float:
    """Return SQuAD's F1; of a question without an answer, 1 for the empty prediction, else 0.

    As the official script of SQuAD 2.0: where a side has no word left, only equality counts.
    """
    guess = normalise(prediction).split()
    right = [normalise(answer).split() for answer in answers if normalise(answer)] or [[]]
    return max(_overlap(guess, one) if guess and one else float(guess == one) for one in right)


def squad_exact(prediction: str, answers: Sequence[str]) -> float:
    """Return SQuAD's exact match; without an answer the empty prediction is right."""
    return exact_match(prediction, answers) if answers else float(not normalise(prediction))


def _overlap(guess: Sequence[str], answer: Sequence[str]) -> float:
    same = sum((Counter(guess) & Counter(answer)).values())
    return 2 * same / (len(guess) + len(answer)) if same else 0.0
