"""Golden scores, worked by hand."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from maskpolicy.core import metrics
from maskpolicy.core.types import Example


@pytest.mark.parametrize(
    ("name", "prediction", "answers", "expected"),
    [
        ("exact_match", "the Beatles.", ["Rolling Stones", "Beatles"], 1.0),
        ("exact_match", "Beatles band", ["Beatles"], 0.0),
        ("exact_match", "", ["Beatles"], 0.0),
        ("kilt_accuracy", " Sculcoates ", ["Sculcoates"], 1.0),
        ("kilt_accuracy", "sculcoates", ["Sculcoates"], 0.0),
        ("kilt_accuracy", "", [""], 0.0),
        # guess {cat, sat, sat}, answer {cat, sat, down}: 2 in common, 2 * 2 / (3 + 3)
        ("f1", "the cat sat, sat", ["A cat sat down"], 2 / 3),
        # the best of 2 * 1 / (2 + 1) and 0
        ("f1", "ice hockey", ["hockey", "tennis"], 2 / 3),
        ("f1", "the", ["the"], 0.0),
        ("f1", "", ["a dog"], 0.0),
        ("multiple_choice", "No effect.", ["no effect"], 1.0),
        ("multiple_choice", "less", ["more"], 0.0),
        # articles and punctuation that make up a whole choice count
        ("multiple_choice", " a", ["A"], 1.0),
        ("multiple_choice", "", ["A"], 0.0),
        ("multiple_choice", "-", ["+"], 0.0),
        ("accuracy", "neutral", ["neutral"], 1.0),
        ("accuracy", "Neutral", ["neutral"], 0.0),
        ("correlation", "4", ["1.5"], 0.5),
        ("squad", "the river Oder", ["Oder", "river"], 2 / 3),
        ("squad", "", [], 1.0),
        ("squad", "Oder", [], 0.0),
        ("squad", "the", ["a"], 1.0),  # as in SQuAD's script: neither has a word left
        ("squad_v1", "the", ["a"], 0.0),  # as in the script of v1.1: no word in common
        ("nq_exact_match", "Zu\u0308rich", ["Zürich"], 1.0),
        ("exact_match", "Zu\u0308rich", ["Zürich"], 0.0),
        ("triviaqa_exact_match", "rock and roll", ["Rock-and-Roll"], 1.0),
        ("exact_match", "rock and roll", ["Rock-and-Roll"], 0.0),
        ("triviaqa_exact_match", "US", ["U.S."], 0.0),
        ("triviaqa_exact_match", "Ohm s law", ["Ohm’s law"], 1.0),
    ],
)
def test_score(name, prediction, answers, expected):
    assert metrics.score(name, [prediction], [answers]) == [pytest.approx(expected)]


def test_scores_do_not_import_evaluate():
    code = "import sys, maskpolicy.core.metrics as m; m.score('f1', ['a'], [['a']])"
    code += "; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    assert "maskpolicy.core.metrics.per_example" in loaded
    assert not {"evaluate", "datasets", "torch"} & set(loaded.split())


LABELS = (["1", "1", "0", "0", "1"], [["1"], ["0"], ["0"], ["1"], ["1"]])


@pytest.mark.parametrize(
    ("name", "predictions", "references", "score", "parts"),
    [
        # 2 right positives, 1 right negative, 1 of each error: (2 * 1 - 1) / sqrt(3 * 3 * 2 * 2)
        ("matthews", *LABELS, 1 / 6, {}),
        ("matthews", ["1", "1"], [["1"], ["0"]], 0.0, {}),
        ("matthews", ["good", "bad", "bad"], [["good"], ["bad"], ["bad"]], 1.0, {}),
        ("accuracy_f1", *LABELS, (3 / 5 + 2 / 3) / 2, {"accuracy": 3 / 5, "f1": 2 / 3}),
        ("accuracy", *LABELS, 3 / 5, {}),
        # ranks 1 2 3 and 1 3 2
        (
            "correlation",
            ["1", "2", "3"],
            [["0"], ["4"], ["2"]],
            0.5,
            {"pearson": 0.5, "spearman": 0.5},
        ),
        ("correlation", ["1", "1"], [["0"], ["4"]], 0.0, {"pearson": 0.0, "spearman": 0.0}),
        # the F1 of a question without an answer counts like any other
        (
            "squad",
            ["Oder", "Elbe", ""],
            [["the Oder"], ["Rhine"], []],
            2 / 3,
            {"exact_match": 2 / 3},
        ),
        # SQuAD 2.0 drops answers without a word: "a" is no answer beside another, and empty alone
        (
            "squad",
            ["the", "the", ""],
            [["a", "Oder"], ["a"], ["a"]],
            2 / 3,
            {"exact_match": 2 / 3},
        ),
        # 1 of 2 equal; F1 2 * 1 / (2 + 1) and 1
        ("exact_match_f1", ["cup B", "B"], [["B"], ["B"]], 0.5, {"f1": 5 / 6}),
        ("exact_match", ["a b", "b"], [["a"], ["b"]], 0.5, {}),
    ],
)
def test_total(name, predictions, references, score, parts):
    found = metrics.total(name, predictions, references)
    assert found.score == pytest.approx(score)
    assert found.parts == pytest.approx(parts)
    assert found.scores == metrics.score(name, predictions, references)


def test_equal_values_share_their_rank():
    # ranks 1.5 1.5 3 and 1 2 3
    found = metrics.total("correlation", ["1", "1", "2"], [["0"], ["1"], ["2"]])
    assert found.parts["spearman"] == pytest.approx(3**0.5 / 2)


def test_the_evaluate_metrics_give_the_total_in_percent(tmp_path):
    evaluation = pytest.importorskip("maskpolicy.core.metrics.hf_evaluate")
    given = {
        "accuracy_f1": (
            ["1", "0"],
            [["1"], ["1"]],
            {"accuracy_f1": 58.333333, "accuracy": 50.0, "f1": 66.666667},
        ),
        "matthews": (["1", "0"], [["1"], ["0"]], {"matthews": 100.0}),
        "correlation": (
            ["1", "0"],
            [["4"], ["3"]],
            {"correlation": 100.0, "pearson": 100.0, "spearman": 100.0},
        ),
        "entity_f1": (
            ["B-PER O", "O O"],
            [["B-PER O"], ["O B-LOC"]],
            {"entity_f1": 66.666667, "precision": 100.0, "recall": 50.0},
        ),
        "squad": (["York", "Hull"], [["York"], ["Leeds"]], {"squad": 50.0, "exact_match": 50.0}),
        "squad_v1": (["York"], [["a York"]], {"squad_v1": 100.0, "exact_match": 100.0}),
        "exact_match_f1": (["York"], [["York City"]], {"exact_match_f1": 0.0, "f1": 66.666667}),
    }
    for name in metrics.METRICS:
        one = evaluation.AnswerMetric(name, keep_in_memory=True, cache_dir=str(tmp_path))
        plain = (["York", "Hull"], [["York"], ["Leeds", "Bath"]], {name: 50.0})
        predictions, references, expected = given.get(name, plain)
        result = one.compute(predictions=predictions, references=references)
        assert result == pytest.approx(expected)


def test_only_a_metric_of_short_answers_is_given_them():
    example = Example("q", "g", "And where?", ("In Ulm.",), short_answers=("Ulm",))
    assert metrics.answers("contains", example) == ("Ulm",)
    assert metrics.answers("f1", example) == ("In Ulm.",)
    assert metrics.answers("contains", replace(example, short_answers=())) == ("In Ulm.",)
