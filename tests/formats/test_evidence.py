"""Windows of documents that hold an answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskpolicy.formats.evidence import occurrence, plain, window


@pytest.mark.parametrize(
    ("document", "answer", "found"),
    [
        ("Lewis, Sinclair (1930)", "sinclair", "Sinclair"),
        ("won by Harry S. Truman's party", "The Harry S Truman", "Harry S. Truman"),
        ("Trumans", "Truman", None),
        ("anything", "the", None),
        ("", "York", None),
    ],
)
def test_occurrence_compares_words_without_punctuation(document, answer, found):
    span = occurrence(document, [answer])
    assert (document[slice(*span)] if span else None) == found


def test_the_first_occurrence_of_any_answer_counts():
    assert occurrence("x Hull y York", ["York", "Hull"]) == (2, 6)


@given(st.integers(0, 400), st.integers(401, 500), st.integers(2, 40))
def test_a_window_holds_the_whole_answer(at, length, words):
    document = " ".join("York City" if n == at else f"w{n}" for n in range(length))
    found = window(document, ["york city"], words)
    assert found is not None and found in document
    assert "York City" in found and len(found.split()) <= words


def test_a_short_document_is_its_own_window():
    assert window("  born in\nYork  ", ["York"]) == "born in\nYork"
    assert window("born in York", ["Hull"]) is None


def test_plain():
    assert plain("The U.S._Army, an example") == "u s army example"
