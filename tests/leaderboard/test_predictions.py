from __future__ import annotations

import json

import folders
import numpy as np
import pytest

from maskpolicy.core.errors import DataError
from maskpolicy.core.metrics import Total
from maskpolicy.leaderboard.results import predictions
from maskpolicy.leaderboard.results.cell import Result

RIGHT = [True, False, True, True]


def result(score: float = 0.75, n: int = 4) -> Result:
    metrics = Total("exact_match", score, n, 1)
    return Result("random", "zsre", 0, "knowledge-intensive", {}, {}, metrics)


@pytest.fixture
def path(tmp_path):
    rows = folders.answers("zsre", RIGHT)
    (tmp_path / "it.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "it.jsonl"


def test_scores_and_groups_come_in_the_order_of_the_file(path):
    found = predictions.read_answers(result(), path)
    assert found is not None
    assert np.array_equal(found.scores, [1, 0, 1, 1])
    assert np.array_equal(found.groups, [0, 0, 0, 1])


def test_the_same_examples_are_known_by_their_ids_and_groups(path, tmp_path):
    one = predictions.read_answers(result(), path)
    other = tmp_path / "other.jsonl"
    other.write_text(path.read_text().replace("an answer", "nothing"))
    same = predictions.read_answers(result(), other)
    other.write_text(path.read_text().replace("page 1", "page 0"))
    moved = predictions.read_answers(result(), other)
    assert one and same and moved
    assert one.examples == same.examples != moved.examples


def test_a_file_that_is_not_there_is_no_fault(tmp_path):
    assert predictions.read_answers(result(), tmp_path / "none.jsonl") is None


@pytest.mark.parametrize(("score", "n"), [(0.75, 5), (0.5, 4)])
def test_answers_must_be_those_of_the_result(path, score, n):
    with pytest.raises(DataError, match=r"4 answers that score 0\.7500"):
        predictions.read_answers(result(score, n), path)


@pytest.mark.parametrize(
    "line", ['{"id": "x"', "[]", '{"id": 1}', '{"id": "a", "group": "b", "score": 2}', "\x00"]
)
def test_a_broken_line_is_named_by_its_number(path, line):
    path.write_text(path.read_text() + line)
    with pytest.raises(DataError, match=r"it\.jsonl, line 5: "):
        predictions.read_answers(result(), path)
