"""Contexts: windows of documents with an answer, and passages of DPR's files."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskpolicy.core.errors import DataError
from maskpolicy.core.types import Example
from maskpolicy.data.taskfiles import dpr
from maskpolicy.data.taskfiles.evidence import occurrence, plain, window


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


def test_plain():
    assert plain("The U.S._Army, an example") == "u s army example"


def item(question, *texts):
    return {"question": question, "positive_ctxs": [{"title": "T", "text": t} for t in texts]}


def look_up(question, targets, path):
    return dpr.passages([question], [path])({}, Example("i", "g", question, targets))


def test_questions_are_compared_without_case_and_mark(tmp_path):
    path = tmp_path / "biencoder-nq-dev.json"
    items = [item(f"where is town {n}", f'Town {n}: [in] Ülm, "{n}".') for n in range(5)]
    path.write_text(json.dumps(items))
    for n in range(5):
        assert look_up(f"Where is town {n}?", ("ülm",), path) == f'Town {n}: [in] Ülm, "{n}".'


def test_the_first_passage_with_an_answer_is_taken(tmp_path):
    path = tmp_path / "biencoder-nq-dev.json"
    path.write_text(json.dumps([item("q", "in Bonn", "in Ulm", "Ulm"), item("other")]))
    assert look_up("q", ("Ulm",), path) == "in Ulm"
    assert look_up("q", ("Hull",), path) is None
    assert look_up("unknown", ("Ulm",), path) is None


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('["q"]', r"row\[0\]: must be a JSON object"),
        ('[{"positive_ctxs": []}]', r"row\[0\]: key 'question' is missing"),
        ('[{"question": "q", "positive_ctxs": [{}]}]', r"row\[0\]: key 'text' is missing"),
        ('[{"question": "q", "positive_ctxs": "x"}]', r"row\[0\]: key 'positive_ctxs' must be"),
    ],
)
def test_a_malformed_file_is_one_line(tmp_path, content, reason):
    path = tmp_path / "biencoder-nq-dev.json"
    path.write_text(content)
    with pytest.raises(DataError, match=rf"biencoder-nq-dev\.json.*{reason}") as error:
        look_up("q", ("Ulm",), path)
    assert "\n" not in str(error.value)


def test_companions_are_of_one_folder(tmp_path):
    for name in ("a/biencoder-nq-dev.json", "b/biencoder-nq-train.json", "b/biencoder-nq-dev.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("[]")
    folders = [tmp_path, tmp_path / "b", tmp_path / "a"]
    found = [path.relative_to(tmp_path).as_posix() for path in dpr.companions("nq", folders)]
    assert found == ["b/biencoder-nq-train.json", "b/biencoder-nq-dev.json"]
    assert dpr.companions("webquestions", folders) == []
