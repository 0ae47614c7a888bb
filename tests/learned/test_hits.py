"""How often spans hold the answer."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import small
from hypothesis import given
from hypothesis import strategies as st

from maskpolicy.learned import hits
from maskpolicy.learned.fit_tools import Context, Contexts
from maskpolicy.types import as_spans


def context(text, *answers):
    passage = small.passage(text)
    places = [(text.index(answer), text.index(answer) + len(answer)) for answer in answers]
    return Context("i", "g", "q", tuple(answers), passage, passage.at(places))


def spans(one, *texts):
    found = [
        one.passage.at([(one.passage.text.index(t), one.passage.text.index(t) + len(t))])
        for t in texts
    ]
    return as_spans(np.concatenate(found))


RIVER = context("The river Oder runs through Lindau, and the Oder is long.", "Oder")


@pytest.mark.parametrize(
    ("guesses", "place"),
    [
        (("Oder",), 0),
        (("the Oder",), 0),
        (("Lindau", "river Oder", "Oder"), 2),
        (("Lindau",), float("inf")),
    ],
)
def test_a_span_is_an_answer_by_its_normalised_text(guesses, place):
    assert hits.rank(RIVER, spans(RIVER, *guesses)) == place


def test_no_span_is_no_answer():
    assert hits.rank(RIVER, as_spans([])) == float("inf")


@given(st.integers(1, 7), st.data())
def test_the_chance_of_drawing_a_hit_is_exact(n, data):
    good = data.draw(st.integers(0, n))
    found = hits._drawn([(n, good, n)])
    for k in hits.TOP:
        draws = list(combinations(range(n), min(k, n)))
        share = sum(any(i < good for i in draw) for draw in draws) / len(draws)
        assert found["hits"][str(k)] == pytest.approx(share)
        assert found["precision"][str(k)] == 1


def test_a_report_counts_contexts_and_compares_with_entities_and_random_spans():
    other = context("It rained.")
    wanted = context("Anna Kovar was born in Rome in 1901.", "1901")
    data = [Contexts("mine", (), (RIVER, other, wanted), {})]
    guesses = [[spans(RIVER, "Oder"), spans(wanted, "Rome", "1901")]]
    found = hits.report(data, guesses)["mine"]
    assert (found["contexts"], found["without_answer"]) == (2, 1)
    assert found["policy"]["hits"] == {"1": 0.5, "5": 1.0, "20": 1.0}
    assert found["policy"]["precision"] == {"1": 0.5, "5": 0.75, "20": 0.75}
    for name in ("hits", "precision"):
        assert 0 < found["random"][name]["1"] < found["salient-span"][name]["1"] < 1
    assert found["salient-span"]["hits"]["20"] == 1


def test_precision_counts_the_answers_of_all_questions_about_a_text():
    text = "Anna Kovar was born in Rome in 1901."
    one, two = context(text, "1901"), context(text, "Rome")
    guesses = [[spans(one, "Rome", "1901"), spans(two, "Rome", "1901")]]
    found = hits.report([Contexts("mine", (), (one, two), {})], guesses)["mine"]["policy"]
    assert found["hits"]["1"] == 0.5
    assert found["precision"]["5"] == 1


def test_a_task_whose_dev_holds_no_answer_has_no_shares():
    found = hits.report([Contexts("mine", (), (), {})], [[]])["mine"]
    assert found["contexts"] == 0
    assert found["policy"]["hits"] == found["random"]["hits"] == {"1": None, "5": None, "20": None}
