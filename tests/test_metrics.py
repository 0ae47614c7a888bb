"""Golden scores, worked by hand."""

from __future__ import annotations

import subprocess
import sys

import pytest

from maskpolicy import metrics
from maskpolicy.errors import ConfigError
from maskpolicy.metrics.answers import normalise


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("The  Beatles!", "beatles"),
        ("an A-Team\tof the U.S.", "ateam of us"),
        ("Theatre", "theatre"),
        ("", ""),
        ("the", ""),
        ("São Paulo", "são paulo"),
    ],
)
def test_normalise(text, plain):
    assert normalise(text) == plain


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
    ],
)
def test_score(name, prediction, answers, expected):
    assert metrics.score(name, [prediction], [answers]) == [pytest.approx(expected)]


def test_every_prediction_needs_its_answers():
    with pytest.raises(ValueError, match="shorter"):
        metrics.score("f1", ["a", "b"], [["a"]])


def test_an_unknown_metric_names_a_near_one():
    with pytest.raises(ConfigError, match="did you mean 'exact_match'"):
        metrics.score("exact-match", [], [])


def test_scores_do_not_import_evaluate():
    code = "import sys, maskpolicy.metrics as m; m.score('f1', ['a'], [['a']]); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    assert "maskpolicy.metrics.answers" in loaded
    assert not {"evaluate", "datasets", "torch"} & set(loaded.split())


def test_the_evaluate_metrics_give_the_mean_in_percent(tmp_path):
    evaluation = pytest.importorskip("maskpolicy.metrics.evaluation")
    kinds = (
        evaluation.ExactMatch,
        evaluation.F1,
        evaluation.KiltAccuracy,
        evaluation.MultipleChoice,
    )
    assert {kind.called for kind in kinds} == set(metrics.METRICS)
    for kind in kinds:
        one = kind(keep_in_memory=True, cache_dir=str(tmp_path))
        result = one.compute(predictions=["York", "Hull"], references=[["York"], ["Leeds", "Bath"]])
        assert result == {kind.called: 50.0}
