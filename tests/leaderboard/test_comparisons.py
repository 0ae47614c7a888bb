"""When a cell is tested against the baseline, and when not, and why."""

import json
from itertools import combinations
from pathlib import Path

import folders
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskpolicy.core.errors import ConfigError
from maskpolicy.leaderboard import description, page, report
from maskpolicy.leaderboard.comparisons import Comparison, Estimate, Versus, standings

STRONG = {"none": 0.1, "random": 0.12, "salient-span": 0.9}


def compared(*where: Path, row: int = 2, task: str = "zsre", **settings):
    return folders.board(*where, **settings).rows[row].scores[task].comparison


def test_seeds_with_runs_of_their_own_are_tested_and_p_adjusted_over_all_cells(tmp_path):
    folders.write(tmp_path, STRONG, ("zsre", "wow", "nq"), seeds=3)
    found = compared(tmp_path)
    assert (found.reason, found.seeds, found.estimate.groups) == (None, 3, 20)
    assert found.estimate.low < found.estimate.difference < found.estimate.high
    assert found.is_significant and not compared(tmp_path, row=1).is_significant
    rows = folders.board(tmp_path).rows[1:]
    tests = [score.comparison for row in rows for score in row.scores.values()]
    smallest = min(tests, key=lambda each: each.estimate.p)
    assert len(tests) == 6
    assert smallest.p_holm == pytest.approx(min(1, 6 * smallest.estimate.p))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"seeds": 5, "runs": 1}, "all seeds share one intermediate run"),
        ({"seeds": 5, "runs": 2}, "5 seeds share 2 intermediate runs"),
        ({"seeds": 2}, "2 seeds in both rows: a test needs 3"),
        ({"seeds": 1}, "1 seed in both rows: a test needs 3"),
        ({"seeds": 4, "general_seeds": 2}, "4 seeds share 2 general models"),
        ({"seeds": 3, "n": 3}, "all examples share one paragraph"),
    ],
)
def test_there_is_no_test_where_it_would_say_nothing(tmp_path, settings, reason):
    found = compared(folders.write(tmp_path, STRONG, **settings))
    assert found.estimate is None
    assert found.p_holm is None
    assert not found.is_significant
    assert str(found.reason).startswith(reason)


def test_two_machines_compute_other_runs_of_one_experiment(tmp_path):
    """They share the general models by the numbers of their runs."""
    one = folders.write(tmp_path / "one", STRONG, seeds=2, general_seeds=4)
    other = folders.write(tmp_path / "other", STRONG, seeds=2, first=2, general_seeds=4)
    found = compared(one, other)
    assert (found.seeds, found.reason, found.draws_general) == (4, None, True)
    assert found.is_significant
    board = folders.board(one, other)
    assert [row.label for row in board.rows] == list(STRONG)
    assert all(score and score.is_complete for row in board.rows for score in row.scores.values())
    again = folders.write(tmp_path / "again", STRONG, seeds=2, first=2, general_seeds=2)
    assert str(compared(one, again).reason).startswith("4 seeds share 2 general models")


def test_the_difference_shown_is_the_one_that_is_tested(tmp_path):
    """Over the seeds of both rows, and over examples, also where groups differ in size."""
    one = folders.write(tmp_path / "one", {"none": 0.3, "random": 0.6, "span": 0.4}, seeds=4, n=61)
    other = folders.write(tmp_path / "other", {"none": 0.8, "span": 0.9}, seeds=3, first=4, n=61)
    board = folders.board(one, other)
    scores = [score for row in board.rows[1:] for score in row.scores.values()]
    assert len(scores) == 4
    for score in scores:
        assert score.delta == pytest.approx(score.comparison.estimate.difference, abs=1e-4)


def said(*where: Path) -> str:
    return folders.board(*where).condition


def test_a_board_says_whether_the_general_model_is_drawn(tmp_path):
    one = folders.write(tmp_path / "one", STRONG, seeds=3)
    own = folders.write(tmp_path / "own", STRONG, seeds=3, general_seeds=3)
    none = folders.write(tmp_path / "none", STRONG, seeds=2)
    assert said(one).startswith("The test generalises to other seeds and other examples")
    assert "holds the pre-trained model, the corpus" in said(one)
    assert said(own).startswith("The test generalises to other general models, other seeds")
    assert said(none) == ""
    assert not compared(one).draws_general
    assert compared(own).draws_general
    assert compared(own).is_significant
    board = folders.board(own)
    shown = (page.render(board), report.to_markdown(board), report.to_latex(board))
    assert all(said(own) in text and said(one) not in text for text in shown)
    alone = "a mark may be about this model alone"
    assert alone not in shown[1]
    assert alone in report.to_markdown(folders.board(one))
    assert description.facts(board)["general models"] == "0, 1, 2"
    assert "general models" not in description.facts(folders.board(one))


def test_a_board_says_so_if_only_some_tests_draw_the_general_model(tmp_path):
    own = folders.write(tmp_path / "own", {"none": 0.1, "random": 0.8}, seeds=3, general_seeds=3)
    new = {"none": 0.1, "span": 0.8}
    one = folders.write(tmp_path / "one", new, seeds=3, first=3)
    assert said(own, one).startswith("The tests generalise to other seeds and other examples")
    assert "where each seed has its own general model" in said(own, one)


@pytest.mark.parametrize("general_seeds", [1, 4])
def test_rows_are_not_tested_across_machines_whose_general_models_differ(tmp_path, general_seeds):
    kind = {"seeds": 2, "general_seeds": general_seeds}
    one = folders.write(tmp_path / "one", STRONG, **kind)
    other = folders.write(tmp_path / "other", STRONG, first=2, **kind)
    for folder, weights in ((one, "a" * 64), (other, "b" * 64)):
        folders.change(folder, "*.json", weights=weights)
    found = compared(one, other)
    notes = folders.board(one, other).notes
    assert any("computed the same general model with different weights" in note for note in notes)
    several = "4 seeds share 1 general model that were computed with different weights"
    assert str(found.reason).startswith(several) == (general_seeds == 1)
    assert found.is_significant == (general_seeds == 4)  # the four are other models anyway
    folders.change(other, "*.json", weights="a" * 64)
    assert compared(one, other).is_significant
    folders.change(one, "none--*.json", weights="c" * 64)
    assert compared(one, other).reason == "the two rows start from different general models"


def test_a_board_names_marks_that_need_runs_that_vary_normally(tmp_path):
    shares = {"none": 0.2, "random": 0.32, "span": 0.95}
    folders.write(tmp_path, shares, ("zsre",), seeds=5, n=300)
    both = [compared(tmp_path, row=row) for row in (1, 2)]
    assert [each.is_significant for each in both] == [True, True]
    assert [each.needs_steady_runs for each in both] == [True, False]
    text = report.to_markdown(folders.board(tmp_path))
    assert "the mark of random on zsre holds if runs vary normally, but not if" in text


@pytest.mark.parametrize(
    ("scores", "apart"),
    [
        ((50, 52, 20), 2),
        ((20, 52, 51), 0),
        ((50, 40, 20), None),
        ((50, 52, 43), None),
        ((9, 60), 0),
    ],
)
def test_a_board_names_a_seed_that_lies_apart(tmp_path, scores, apart):
    folders.write(tmp_path, {"none": 0.5, "random": 0.5}, ("zsre",), seeds=len(scores))
    for seed, score in enumerate(scores):
        path = tmp_path / "predictions" / f"random--zsre--{seed}.jsonl"
        path.unlink()
        total = {"metrics": {"score": score / 100, "mean": None}}
        folders.change(tmp_path, f"random--zsre--{seed}.json", **total)
    notes = "\n".join(folders.board(tmp_path).notes)
    assert ("lies apart" in notes) == (apart is not None and len(scores) > 2)
    assert (f"seed {apart} of random on zsre lies apart" in notes) == ("lies apart" in notes)


def test_one_seed_of_two_general_models_is_an_error(tmp_path):
    one = folders.write(tmp_path / "one", {"none": 0.1, "random": 0.8}, seeds=3)
    other = folders.write(tmp_path / "other", {"none": 0.1, "span": 0.8}, seeds=3, general_seeds=3)
    with pytest.raises(ConfigError, match=r"seed 1\.general_seed: 0 -> 1"):
        compared(one, other, row=1)
    found = compared(one, other, row=-1, mixed=True, baseline="random")
    assert found.estimate is None
    assert found.reason == "the two rows start from different general models"


def test_rows_that_never_differ_have_no_interval(tmp_path):
    folders.write(tmp_path, {"none": 0.0, "random": 0.0, "original": 1.0}, seeds=3)
    for row in (1, 2):
        found = compared(tmp_path, row=row)
        assert (found.estimate, found.p_holm) == (None, None)
        same = "the difference is the same for every seed and every group of examples"
        assert found.reason == same
    board = folders.board(tmp_path)
    assert "0.0 to +0.0" not in page.render(board)


def test_the_baseline_must_have_runs_of_its_own_too(tmp_path):
    folders.write(tmp_path / "own", STRONG, seeds=3)
    folders.write(tmp_path / "shared", {"none": 0.1, "whole-word": 0.3}, seeds=3, runs=1)
    where = (tmp_path / "own", tmp_path / "shared")
    found = compared(*where, row=1, baseline="whole-word", mixed=True)
    assert str(found.reason).startswith("all seeds share one intermediate run")


def other_examples(folder: Path) -> None:
    path = folder / "predictions" / "salient-span--zsre--1.jsonl"
    path.write_text(path.read_text().replace('"zsre-0"', '"zsre-x"'))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (other_examples, "the rows answered different examples"),
        (
            lambda folder: (folder / "predictions" / "none--zsre--1.jsonl").unlink(),
            "the folder of results has no predictions",
        ),
        (
            lambda folder: folders.change(folder, "salient-span--zsre--*", metrics={"version": 2}),
            "the rows were scored by different metrics",
        ),
    ],
)
def test_rows_that_cannot_be_paired_have_no_test(tmp_path, damage, reason):
    damage(folders.write(tmp_path, STRONG, seeds=3))
    assert compared(tmp_path, mixed=True).reason == reason


def test_a_failed_seed_is_left_out_of_both_rows(tmp_path):
    folders.write(tmp_path, STRONG, seeds=4)
    folders.change(tmp_path, "none--zsre--2.json", metrics=None, error="no")
    assert compared(tmp_path).seeds == 3


ROWS = {"none": 0.1, "random": 0.12, "salient-span": 0.9, "supervised": 0.92}


def versus(row: str, other: str, difference: float, p: float) -> Versus:
    found = Estimate(difference, difference - 1, difference + 1, p, 20, 5.0)
    return Versus("triviaqa", row, other, Comparison(3, found, p))


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


def test_ranks_and_pairs_of_a_leaderboard(tmp_path):
    folders.write(tmp_path, ROWS, ("triviaqa", "nq"), seeds=5)
    board = folders.board(tmp_path)
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
    # the average of two tasks is that of their differences
    found = {(each.column, each.row, each.other): each.comparison.estimate for each in board.pairs}
    one, two, mean = (
        found[column, "none", "salient-span"]
        for column in ("triviaqa", "nq", "mean of closed-book")
    )
    assert mean.difference == pytest.approx((one.difference + two.difference) / 2)
    assert mean.high - mean.low < max(one.high - one.low, two.high - two.low)


def test_a_row_without_a_test_has_no_rank_and_counts_where_it_has_a_score(tmp_path):
    folders.write(tmp_path, ROWS, ("triviaqa", "nq", "zsre"), seeds=3)
    for name in ("nq--0", "nq--1", "nq--2", "zsre--1", "zsre--2"):
        (tmp_path / "results" / f"random--{name}.json").unlink()
    board = folders.board(tmp_path)
    assert "random" in board.standings["triviaqa"]
    for column, worst in {"nq": 3, "mean of closed-book": 3, "zsre": 4}.items():
        ranks = board.standings[column]
        assert set(ranks) == {"none", "salient-span", "supervised"}
        assert max(one.high for one in ranks.values()) == worst
    row = next(row for row in board.rows if row.label == "random")
    shown = dict(zip(board.standings, report.ranks_of(board, row), strict=True))
    assert shown["nq"] == shown["mean of closed-book"] == "–"
    assert shown["zsre"] == "no test"
    assert "random" not in report.to_json(board)["tied_with_best"]["nq"]
