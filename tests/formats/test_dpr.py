"""DPR's retriever files: streaming, matching, malformed items."""

from __future__ import annotations

import gzip
import json

import pytest

from maskpolicy.errors import DataError
from maskpolicy.formats import dpr
from maskpolicy.types import Example


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
        ("{}", "must hold a list of rows"),
        ("", "must hold a list of rows"),
        ('["q"]', r"row\[0\]: must be a JSON object"),
        ('[{"question": "q"}', "not JSON"),
        ('[{"question": "q"', "not JSON"),
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


def test_a_gzipped_companion_is_found_and_read(tmp_path):
    text = json.dumps([item("Where?", "It is in Ulm.")])
    path = tmp_path / "biencoder-nq-train.json.gz"
    path.write_bytes(gzip.compress(text.encode()))
    assert dpr.companions("nq", [tmp_path], ("train",)) == [path]
    assert look_up("where", ["Ulm"], path) == "It is in Ulm."


def test_companions_are_of_one_folder(tmp_path):
    for name in ("a/biencoder-nq-dev.json", "b/biencoder-nq-train.json", "b/biencoder-nq-dev.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("[]")
    folders = [tmp_path, tmp_path / "b", tmp_path / "a"]
    found = [path.relative_to(tmp_path).as_posix() for path in dpr.companions("nq", folders)]
    assert found == ["b/biencoder-nq-train.json", "b/biencoder-nq-dev.json"]
    assert dpr.companions("webquestions", folders) == []
