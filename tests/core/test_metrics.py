"""Scores worked by hand, and those of the official rules."""

import json
import os
import random
import string
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics as sklearn

from maskpolicy.core import metrics
from maskpolicy.core.errors import DataError
from maskpolicy.core.metrics.per_example import normalise_triviaqa
from maskpolicy.core.types import Example


@pytest.mark.parametrize(
    ("name", "prediction", "answers", "expected"),
    [
        ("accuracy", "Neutral", ["neutral"], 0.0),
        # an unanswerable question
        ("accuracy", "", [], 1.0),
        ("multiple_choice", "less", [], 0.0),
        ("correlation", "4", ["1.5"], 0.5),
    ],
)
def test_score(name, prediction, answers, expected):
    assert metrics.metric(name).score(prediction, answers) == pytest.approx(expected)


LABELS = (["1", "1", "0", "0", "1"], [["1"], ["0"], ["0"], ["1"], ["1"]])


@pytest.mark.parametrize(
    ("name", "predictions", "references", "score", "parts"),
    [
        ("matthews", ["good", "bad", "bad"], [["good"], ["bad"], ["bad"]], 1.0, {}),
        ("accuracy_f1", *LABELS, (3 / 5 + 2 / 3) / 2, {"accuracy": 3 / 5, "f1": 2 / 3}),
        ("correlation", ["1", "1"], [["0"], ["4"]], 0.0, {"pearson": 0.0, "spearman": 0.0}),
        # the mean of three 0.1 is another number
        ("correlation", ["0.1"] * 3, [["0.1"]] * 3, 0.0, {"pearson": 0.0, "spearman": 0.0}),
    ],
)
def test_total(name, predictions, references, score, parts):
    found = metrics.total(name, predictions, references)
    assert found.score == pytest.approx(score)
    assert found.parts == pytest.approx(parts)


def test_only_a_metric_of_short_answers_gets_them():
    example = Example("q", "g", "And where?", ("In Ulm.",), short_answers=("Ulm",))
    assert metrics.answers("contains", example) == ("Ulm",)
    assert metrics.answers("f1", example) == ("In Ulm.",)
    assert metrics.answers("contains", replace(example, short_answers=())) == ("In Ulm.",)


PAIRS = int(os.environ.get("MASKPOLICY_PAIRS", "2000"))
WORDS = [
    *("a", "an", "the", "The", "THE", "Ulm", "ulm", "Bonn", "U.S.", "US", "u s", "o'clock"),
    *("o’clock", "`quoted´", "rock_n_roll", "A-Team", "1,000", "--", "…", "½", "ß", "İ", "ﬁ"),
    *("Übung", "U\u0308bung", "café", "cafe\u0301", "à", "a\u0300", "thé", "the_", "北京", "."),
    *("anthem", "there", "Å", "\u212b", "naïve", "an.", "‘a’", "", "_"),
]
BLANKS = [" ", " ", " ", "  ", "\t", "\u00a0", "\u3000", "\n", "-", "_", ""]


def words_of(text: str) -> list[str]:
    """Split at blanks, articles away: runs of letters and digits that are exactly an article."""
    runs = ("".join(run) for _, run in groupby(text, key=lambda c: c.isalnum() or c == "_"))
    return "".join(" " if run in ("a", "an", "the") else run for run in runs).split()


def squad(text: str) -> list[str]:
    """SQuAD, evaluate-v1.1.py and -v2.0.py, and KILT: no punctuation, no articles."""
    return words_of("".join(c for c in text.lower() if c not in string.punctuation))


def nq(text: str) -> list[str]:
    """NQ-open (ORQA's eval_utils.py): NFD before all else."""
    return squad(unicodedata.normalize("NFD", text))


def triviaqa(text: str) -> list[str]:
    """TriviaQA, triviaqa_evaluation.py: blanks for punctuation and typographic single quotes."""
    marks = string.punctuation + "‘’´`"
    lowered = text.replace("_", " ").lower()
    return words_of("".join(" " if c in marks else c for c in lowered))


def exact(words: Callable[[str], list[str]]) -> Callable[[str, Sequence[str]], float]:
    return lambda guess, gold: float(any(words(guess) == words(one) for one in gold))


def overlap(guess: list[str], gold: list[str]) -> float:
    left, same = list(gold), 0
    for word in guess:
        if word in left:
            left.remove(word)
            same += 1
    if not same:
        return 0.0
    precision, recall = same / len(guess), same / len(gold)
    return 2 * precision * recall / (precision + recall)


def f1(guess: str, gold: Sequence[str]) -> float:
    return max(overlap(squad(guess), squad(one)) for one in gold)


def answers_of_2(gold: Sequence[str]) -> list[list[str]]:
    """SQuAD 2.0: answers that normalise to nothing are dropped; none left: the empty one."""
    return [squad(one) for one in gold if squad(one)] or [[]]


def exact_2(guess: str, gold: Sequence[str]) -> float:
    return float(squad(guess) in answers_of_2(gold))


def f1_2(guess: str, gold: Sequence[str]) -> float:
    said = squad(guess)
    return max(
        overlap(said, one) if said and one else float(said == one) for one in answers_of_2(gold)
    )


def kilt_accuracy(guess: str, gold: Sequence[str]) -> float:
    """KILT, eval_downstream.py: equal as it stands but for outer blanks; empty is wrong."""
    said = guess.strip()
    return float(bool(said) and said in {one.strip() for one in gold if one.strip()})


def choice(guess: str, gold: Sequence[str]) -> float:
    """Accuracy of a written choice: SQuAD's words, or the bare text where these leave nothing."""
    right = gold[0]
    if squad(right):
        return float(squad(guess) == squad(right))
    return float(guess.strip().lower() == right.strip().lower())


def contains(guess: str, gold: Sequence[str]) -> float:
    """DPR's has_answer, with SQuAD's words: an answer's words stand in the guess in a row."""
    said = squad(guess)
    return float(
        any(
            said[start : start + len(words)] == words
            for words in filter(None, map(squad, gold))
            for start in range(len(said))
        )
    )


RULES: dict[str, tuple[Callable[[str, Sequence[str]], float], bool]] = {  # rule, may lack answers
    "exact_match": (exact(squad), False),
    "exact_match_f1": (exact(squad), False),
    "nq_exact_match": (exact(nq), False),
    "triviaqa_exact_match": (exact(triviaqa), False),
    "kilt_accuracy": (kilt_accuracy, False),
    "f1": (f1, False),
    "multiple_choice": (choice, False),
    "contains": (contains, True),
    "squad_v1": (f1, False),
    "squad": (f1_2, True),
}
BESIDES = {
    "exact_match_f1": ("f1", f1),
    "squad_v1": ("exact_match", exact(squad)),
    "squad": ("exact_match", exact_2),
}


def draw(rng: random.Random) -> str:
    parts = (rng.choice(WORDS) + rng.choice(BLANKS) for _ in range(rng.randint(0, 4)))
    return "".join(parts)


def changed(text: str, rng: random.Random) -> str:
    """Write a text differently, in ways that rules forgive or do not."""
    ways = (
        lambda: text,
        lambda: text.swapcase(),
        lambda: f"The {text}.",
        lambda: unicodedata.normalize("NFD", text),
        lambda: unicodedata.normalize("NFC", text),
        lambda: "".join(" " if c in string.punctuation else c for c in text),
        lambda: "".join(c for c in text if c not in string.punctuation),
        lambda: f" {text}\n",
        lambda: text.replace("’", "'"),
        lambda: " ".join(reversed(text.split())),
    )
    return rng.choice(ways)()


def pairs(may_lack: bool) -> tuple[list[str], list[list[str]]]:
    """Return predictions and answers; half of the predictions are answers, written differently."""
    rng = random.Random(14)
    predictions, references = [], []
    for _ in range(PAIRS):
        drawn = [draw(rng) for _ in range(rng.randint(1, 3))]
        gold = [one for one in drawn if one.strip()] or ["the"]
        gold = [] if may_lack and rng.random() < 0.2 else gold
        guess = changed(rng.choice(gold), rng) if gold and rng.random() < 0.5 else draw(rng)
        predictions.append(guess)
        references.append(gold)
    return predictions, references


@pytest.mark.parametrize("name", RULES)
def test_a_metric_is_its_official_rule(name):
    rule, may_lack = RULES[name]
    predictions, references = pairs(may_lack)
    expected = [rule(*pair) for pair in zip(predictions, references, strict=True)]
    found = metrics.total(name, predictions, references)
    assert found.scores == pytest.approx(expected, abs=1e-12)
    assert 0.05 < found.score < 0.95  # both outcomes occur
    if name in BESIDES:
        part, other = BESIDES[name]
        beside = [other(*pair) for pair in zip(predictions, references, strict=True)]
        assert found.parts == {part: pytest.approx(sum(beside) / PAIRS)}


def test_every_metric_of_answers_has_its_rule():
    classes = {"accuracy", "accuracy_f1", "matthews", "correlation", "entity_f1"}
    assert set(RULES) | classes == set(metrics.METRICS)


@pytest.mark.filterwarnings("ignore:A single label was found")
@pytest.mark.parametrize("classes", [1, 2, 4])
def test_the_metrics_of_classes_are_those_of_scikit_learn(classes):
    rng = np.random.default_rng(17)
    for _ in range(PAIRS // 100):
        guess, right = rng.integers(0, classes, (2, rng.integers(2, 12))).astype(str).tolist()
        gold = [[label] for label in right]
        accuracy = sklearn.accuracy_score(right, guess)
        assert metrics.total("accuracy", guess, gold).score == pytest.approx(accuracy)
        matthews = sklearn.matthews_corrcoef(right, guess)
        assert metrics.total("matthews", guess, gold).score == pytest.approx(matthews)
        if classes <= 2:
            f1 = sklearn.f1_score(right, guess, pos_label="1", labels=["0", "1"], zero_division=0)
            score = metrics.total("accuracy_f1", guess, gold).score
            assert score == pytest.approx((accuracy + f1) / 2)


def test_f1_of_the_label_1_needs_labels_0_and_1():
    with pytest.raises(DataError, match="the label 'good' is neither"):
        metrics.total("accuracy_f1", ["good", "bad"], [["good"], ["bad"]])


def test_the_correlations_are_those_of_scipy():
    rng = np.random.default_rng(16)
    for _ in range(PAIRS // 10):
        one, two = rng.choice((0.0, 1.5, 2.25, 4.0, 5.0), (2, 9))
        parts = metrics.total("correlation", [*map(str, one)], [[str(n)] for n in two]).parts
        assert parts["pearson"] == pytest.approx(scipy.stats.pearsonr(one, two).statistic)
        assert parts["spearman"] == pytest.approx(scipy.stats.spearmanr(one, two).statistic)


def test_triviaqas_normalised_aliases_are_what_its_rule_gives(real_data):
    seen = 0
    for path in sorted((real_data / "triviaqa").rglob("*.json")):
        for row in json.loads(path.read_text())["Data"]:
            if answer := row.get("Answer"):
                found = {normalise_triviaqa(alias) for alias in answer["Aliases"]}
                assert found == set(answer["NormalizedAliases"])
                seen += 1
    assert seen > 10
