"""The table of the page: marks, colours, dots of seeds, averages and costs."""

from __future__ import annotations

import json

import folders
import pytest

from maskpolicy.leaderboard.page import view
from tests.leaderboard.page.test_page import POLICIES, board, rendered


@pytest.fixture
def folder(tmp_path):
    return folders.write(tmp_path / "a run", POLICIES)


def test_averages_are_over_complete_rows_only(tmp_path):
    folder = folders.write(tmp_path / "x", POLICIES, ("triviaqa", "nq"))
    (folder / "results" / "random--nq--0.json").unlink()
    none, random, salient = view.table(board(folder)).lines
    assert [column.title for column in view.table(board(folder)).columns][-1] == "average"
    assert none.cells[-1].score
    assert salient.cells[-1].delta
    assert random.cells[-1].score == ""
    assert "not complete" in random.cells[-1].incomplete


def test_the_best_is_marked_once_and_arrows_follow_the_sign(tmp_path):
    folder = folders.write(tmp_path / "x", {"none": 0.5, "random": 0.1, "salient-span": 0.9})
    none, random, salient = view.table(board(folder)).lines
    assert [line.cells[0].best for line in (none, random, salient)] == [False, False, True]
    assert (random.cells[0].arrow, random.cells[0].effect) == ("▼", -4)
    assert (salient.cells[0].arrow, salient.cells[0].effect) == ("▲", 4)
    assert none.cells[0].arrow == ""


def test_only_marked_differences_are_coloured(tmp_path):
    shares = {"none": 0.5, "random": 0.1, "salient-span": 0.5}
    tested = view.table(board(folders.write(tmp_path / "x", shares, seeds=5)))
    assert [line.cells[0].effect for line in tested.lines] == [0, -4, 0]
    untested = view.table(board(folders.write(tmp_path / "y", shares, seeds=2)))
    assert {cell.effect for line in untested.lines for cell in line.cells} == {0}


def test_dots_of_seeds_lie_on_the_scale_of_the_column(folder):
    for path in sorted((folder / "results").glob("*--zsre--*.json")):
        result = json.loads(path.read_text())
        shares = {"none": 0.0, "random": 0.5, "salient-span": 1.0}
        result["metrics"]["score"] = shares[result["policy"]]
        path.write_text(json.dumps(result))
    for path in (folder / "predictions").iterdir():
        path.unlink()
    none, random, salient = (line.cells[1] for line in view.table(board(folder)).lines)
    assert none.seeds == "M3 4h0" * 3
    assert random.seeds == "M32 4h0" * 3
    assert salient.seeds == "M61 4h0" * 3
    assert salient.against == "M3 0v8"


def test_tokens_of_a_row_are_those_of_its_intermediate_stage(folder):
    assert [line.tokens for line in view.table(board(folder)).lines] == [None, None, None]
    for path in (folder / "results").glob("random--*.json"):
        result = json.loads(path.read_text())
        result["work"] |= {"source_tokens": 1_200_000, "target_tokens": 34_000}
        path.write_text(json.dumps(result))
    assert [line.tokens for line in view.table(board(folder)).lines] == [None, 1_234_000, None]
    text = rendered(folder)
    assert ">1.23 M</td>" in text
    assert "cost of pre-training" in text
