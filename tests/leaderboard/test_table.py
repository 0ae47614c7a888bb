"""The table of the page: marks, colours, dots of seeds, averages and costs."""

import re
import shutil

import folders

from maskpolicy.leaderboard import report
from maskpolicy.leaderboard.table import signed, table
from tests.leaderboard.page.conftest import POLICIES
from tests.leaderboard.page.test_page import cells
from tests.leaderboard.test_description import forms


def test_averages_are_over_complete_rows_only(tmp_path):
    folder = folders.write(tmp_path / "x", POLICIES, ("triviaqa", "nq"))
    (folder / "results" / "random--nq--0.json").unlink()
    none, random, salient = cells(folder)
    assert [column.title for column in table(folders.board(folder)).columns][-1] == "average"
    assert none[-1].score
    assert salient[-1].delta
    assert random[-1].score == ""
    assert "not complete" in random[-1].incomplete
    assert all("*: a seed is missing" in text for text in files(folders.board(folder))[1:])


def test_the_best_is_marked_and_arrows_and_colours_are_those_of_marked_differences(tmp_path):
    shares = {"none": 0.5, "random": 0.1, "salient-span": 0.9}
    none, random, salient = cells(folders.write(tmp_path / "x", shares))
    assert [line[0].best for line in (none, random, salient)] == [False, False, True]
    assert (random[0].arrow, random[0].effect) == ("▼", -4)
    assert (salient[0].arrow, salient[0].effect) == ("▲", 4)
    assert (none[0].arrow, none[0].effect) == ("", 0)
    untested = table(folders.board(folders.write(tmp_path / "y", shares, seeds=2)))
    assert {cell.effect for _, line in untested.rows for cell in line} == {0}


def test_dots_of_seeds_lie_on_the_scale_of_the_column(tmp_path):
    folder = folders.write(tmp_path, POLICIES, n=3)
    for name, share in {"none": 0.0, "random": 0.5, "salient-span": 1.0}.items():
        folders.change(folder, f"{name}--zsre--*.json", metrics={"score": share})
    shutil.rmtree(folder / "predictions")
    none, random, salient = (line[1] for line in cells(folder))
    seeds = ("M3 4h0" * 3, "M32 4h0" * 3, "M61 4h0" * 3)
    assert (none.seeds, random.seeds, salient.seeds) == seeds
    assert salient.against == "M3 0v8"


def latex(folder, policies, tasks=("triviaqa", "nq")):
    made = folders.write(folder, policies, tasks, seeds=3)
    return report.to_latex(folders.board(made))


def test_a_row_for_each_policy_and_a_column_for_each_task_and_average(tmp_path):
    lines = latex(tmp_path, {"none": 0.2, "random": 0.9}).splitlines()
    assert r"\begin{tabular}{lrrr}" in lines
    body = lines[lines.index(r"\midrule") + 1 : lines.index(r"\bottomrule")]
    assert [line.split(" & ")[0] for line in body] == ["none", "random"]
    assert all(line.count(" & ") == 3 and line.endswith(r" \\") for line in body)
    assert r"\mathbf{" in body[1]
    assert r"\mathbf{" not in body[0]
    assert body[1].count(r"^{\dagger}$)") == 2
    assert "(" not in body[0]


def test_names_are_escaped(tmp_path):
    text = latex(tmp_path, {"none": 0.2, r"50% of_a {b} \d ~^ <x> & $": 0.9})
    row = next(line for line in text.splitlines() if line.startswith("50"))
    assert r"50\% of\_a \{b\} \textbackslash{}d \textasciitilde{}\textasciicircum{}" in row
    assert r"\textless{}x\textgreater{} \& \$ & " in row
    assert len(re.findall(r"(?<!\\)&", row)) == 3


def files(board) -> list[str]:
    """Return the texts of the terminal, Markdown and LaTeX; the page has words of its own."""
    return [text for form, text in forms(board).items() if form != "page"]


WEAK = {"none": 0.5, "random": 0.5, "salient-span": 0.95}


def test_a_cell_without_a_mark_shows_its_interval_and_what_would_be_found(tmp_path):
    board = folders.board(folders.write(tmp_path, WEAK, ("zsre",), seeds=3))
    found = board.rows[1].scores["zsre"].comparison.estimate
    numbers = [f"{found.low:+.1f} to {found.high:+.1f}", f"±{found.detectable:.1f}"]
    assert [line[0] for line in report._not_significant(board)] == ["random"]
    terminal, md, tex = files(board)
    assert all(number in text for number in numbers for text in (terminal, md))
    assert f"| random | zsre (world) | {found.difference:+.1f} | {numbers[0]} |" in md
    assert all(board.condition in text for text in (terminal, md, tex))
    assert not any("No test" in text or "is missing" in text for text in (terminal, md, tex))


def test_without_any_test_every_form_says_why_and_nothing_of_other_seeds(tmp_path):
    board = folders.board(folders.write(tmp_path, WEAK, seeds=2))
    assert board.untested == ("all tasks: 2 seeds in both rows: a test needs 3",)
    for text in files(board):
        assert "No test on all tasks: 2 seeds in both rows: a test needs 3." in text
        assert "generalises to other seeds" not in text
        assert "Differences that are not significant" not in text


def test_a_missing_test_names_its_task_and_its_rows(tmp_path):
    folders.write(tmp_path, WEAK, ("zsre", "nq"), seeds=3)
    (tmp_path / "predictions" / "random--nq--1.jsonl").unlink()
    for known in folders.edited(tmp_path / "results", "*--zsre--*.json"):
        known["metrics"] |= {"mean": known["metrics"]["score"]}
    board = folders.board(tmp_path)
    whole, one = sorted(board.untested, reverse=True)
    assert whole.startswith("zsre (world): the metric is a figure over all examples")
    assert one == "nq (world) (random): the folder of results has no predictions"
    for text in files(board):
        assert f"No test on {one}." in text
        assert board.condition in text


def test_a_difference_that_rounds_to_zero_has_no_sign():
    """Neither in the cells nor in the table of pairs."""
    assert [signed(each) for each in (-0.04, 0.04, -0.06, 2.0)] == ["0.0", "0.0", "-0.1", "+2.0"]
