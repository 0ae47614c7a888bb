"""Ranks that rows may have, from tests of all pairs."""

from __future__ import annotations

import json
from itertools import combinations

import folders
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulation import Design, all_pairs, batches

from maskpolicy.leaderboard import report, stats
from maskpolicy.leaderboard.build import build_leaderboard
from maskpolicy.leaderboard.comparisons import Comparison, Estimate
from maskpolicy.leaderboard.standings import Versus, standings
from maskpolicy.results.cell import read_run

ROWS = {"none": 0.1, "random": 0.12, "salient-span": 0.9, "supervised": 0.92}


def versus(row: str, other: str, difference: float, p: float) -> Versus:
    found = Estimate(difference, difference - 1, difference + 1, p, 20, 5.0)
    return Versus("triviaqa", row, other, Comparison(3, found, p))


def test_a_rank_is_bounded_by_the_rows_that_are_better_and_worse():
    found = standings(
        [versus("a", "b", 9, 0.01), versus("a", "c", 5, 0.2), versus("b", "c", -3, 0.04)],
        {"triviaqa": {"a", "b", "c"}},
    )["triviaqa"]
    assert {label: str(one) for label, one in found.items()} == {"a": "1-2", "b": "3", "c": "1-2"}
    assert [label for label, one in found.items() if one.is_tied_with_best] == ["a", "c"]


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=6, unique=True), st.floats(0, 4))
def test_ranks_hold_the_order_that_was_seen(means, noise):
    """Pairs that differ by more than the noise are significant: the true order is within."""
    labels = [f"row {number}" for number in range(len(means))]
    scores = dict(zip(labels, means, strict=True))
    found = standings(
        [
            versus(one, two, scores[one] - scores[two], 0.5 if gap <= noise else 0.01)
            for one, two in combinations(labels, 2)
            for gap in [abs(scores[one] - scores[two])]
        ],
        {"triviaqa": labels},
    )["triviaqa"]
    order = sorted(labels, key=scores.__getitem__, reverse=True)
    assert all(found[label].low <= order.index(label) + 1 <= found[label].high for label in labels)
    assert any(one.is_tied_with_best for one in found.values())


def test_a_column_without_a_test_has_no_ranks(tmp_path):
    board = build_leaderboard([read_run(folders.write(tmp_path, ROWS, seeds=2))])
    assert board.standings == {}
    assert "ranks" not in report.to_markdown(board).lower()


def test_pairs_without_a_test_say_why(tmp_path):
    board = build_leaderboard([read_run(folders.write(tmp_path, ROWS, seeds=2))])
    why = "2 seeds in both rows: a test needs 3"
    assert report.to_pairs(board) == f"no pair of rows can be tested: {why}"


def test_ranks_and_pairs_of_a_leaderboard(tmp_path):
    folders.write(tmp_path, ROWS, ("triviaqa", "nq"), seeds=5)
    board = build_leaderboard([read_run(tmp_path)])
    assert set(board.standings) == {"triviaqa", "nq", "mean of closed-book"}
    document = json.loads(json.dumps(report.to_json(board)))
    assert len(document["pairs"]) == 6 * 3
    assert document["tied_with_best"]["nq"] == ["salient-span", "supervised"]
    assert document["ranks"]["nq"] == {
        "none": [3, 4],
        "random": [3, 4],
        "salient-span": [1, 2],
        "supervised": [1, 2],
    }
    assert "1-2 =" in report.to_markdown(board)


def test_the_average_of_two_tasks_is_that_of_their_differences(tmp_path):
    folders.write(tmp_path, ROWS, ("triviaqa", "nq"), seeds=3)
    board = build_leaderboard([read_run(tmp_path)])
    found = {(each.column, each.row, each.other): each.comparison.estimate for each in board.pairs}
    one, two, mean = (
        found[column, "none", "salient-span"]
        for column in ("triviaqa", "nq", "mean of closed-book")
    )
    assert one is not None
    assert two is not None
    assert mean is not None
    assert mean.difference == pytest.approx((one.difference + two.difference) / 2)
    assert mean.high - mean.low < max(one.high - one.low, two.high - two.low)


def test_a_row_without_a_score_has_no_rank_and_does_not_count(tmp_path):
    folders.write(tmp_path, ROWS, ("triviaqa", "nq"), seeds=3)
    for path in (tmp_path / "results").glob("random--nq--*.json"):
        path.unlink()
    board = build_leaderboard([read_run(tmp_path)])
    assert "random" in board.standings["triviaqa"]
    for column in ("nq", "mean of closed-book"):
        ranks = board.standings[column]
        assert list(ranks) == ["none", "salient-span", "supervised"]
        assert max(one.high for one in ranks.values()) == 3
    shown = dict(zip(board.standings, report.ranks_of(board, board.rows[1]), strict=True))
    assert shown["nq"] == shown["mean of closed-book"] == "–"
    assert "random" not in report.tied_with_best(board)["nq"]


def test_a_row_with_scores_but_no_test_counts_and_has_no_rank(tmp_path):
    folders.write(tmp_path, ROWS, ("triviaqa",), seeds=3)
    for seed in (1, 2):
        (tmp_path / "results" / f"random--triviaqa--{seed}.json").unlink()
    board = build_leaderboard([read_run(tmp_path)])
    ranks = board.standings["triviaqa"]
    assert set(ranks) == {"none", "salient-span", "supervised"}
    assert max(one.high for one in ranks.values()) == 4
    by_label = {row.label: row for row in board.rows}
    assert board.has_score(by_label["random"], "triviaqa")
    assert report.ranks_of(board, by_label["random"]) == [""]
    assert report.ranks_of(board, by_label["none"]) != [""]


def test_a_row_that_lacks_a_task_has_no_average(tmp_path):
    folders.write(tmp_path, ROWS, ("triviaqa", "nq"), seeds=3)
    for path in (tmp_path / "results").glob("random--nq--*.json"):
        path.unlink()
    board = build_leaderboard([read_run(tmp_path)])
    for each in board.pairs:
        if each.column == "mean of closed-book":
            is_tested = each.comparison.estimate is not None
            assert is_tested == ("random" not in (each.row, each.other))


@pytest.mark.parametrize("louder", ["all alike", "one row", "baseline"])
def test_all_pairs_and_averages_hold_their_level_together(louder):
    design = Design(rows=4, tasks=3, sizes=(3,) * 30, louder=louder, common=1.0)
    marked, boards = 0.0, 400
    for _, made in batches(design, boards, 0):
        found = stats.assess_family(*all_pairs(made, design.sizes))
        smallest = np.min([each.p_holm for each in found], axis=0)
        marked += (smallest < stats.LEVEL).sum()
    assert marked / boards <= 0.06


def test_rows_without_any_score_leave_a_board_without_ranks_for_them(tmp_path):
    one = folders.write(tmp_path / "a", {"none": 0.2, "random": 0.6}, ("triviaqa",))
    two = folders.write(tmp_path / "b", {"none": 0.2, "span": 0.6}, ("zsre",))
    board = build_leaderboard([read_run(one), read_run(two)], mixed=True)
    assert "span" not in board.standings["triviaqa"]
    assert "random" not in board.standings["zsre"]
