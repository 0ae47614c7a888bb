"""Boards of given scores: their tests by hand and beside those of runs, their words, bad lines."""

from __future__ import annotations

import json
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from payloads import PAYLOADS
from scipy.stats import t as student
from scipy.stats import ttest_rel
from statsmodels.stats.multitest import multipletests

import maskpolicy as mp
from benchmarks.simulation_of_given_scores import KINDS, rates
from maskpolicy.core.errors import ConfigError, DataError
from maskpolicy.leaderboard import report, stats
from maskpolicy.leaderboard.given_scores import build_board
from maskpolicy.leaderboard.page import render

SYSTEMS, TASKS = ("base", "near", "far"), ("nli", "qa")


def scores(seeds=1, examples=40, groups=0, tasks=TASKS):
    """Return a frame with scores of SYSTEMS, and seeds and groups of examples if there are any."""
    rng = np.random.default_rng(0)
    lines = [
        {"system": system, "task": task, "example": example, "score": float(score), "seed": seed}
        for task in tasks
        for place, system in enumerate(SYSTEMS)
        for seed in range(seeds)
        for example, score in enumerate(rng.random(examples) < 0.4 + 0.2 * place)
    ]
    frame = pd.DataFrame(lines)
    if groups:
        frame["group"] = frame["task"] + (frame["example"] % groups).astype(str)
    return frame if seeds > 1 else frame.drop(columns="seed")


def array(frame, system, task):
    """Return a system's scores (seeds, examples) on a task."""
    of = frame[(frame.system == system) & (frame.task == task)]
    return of.score.to_numpy().reshape(-1, of.example.nunique())


def compared(board, column):
    """Return the comparisons of all pairs on a column by the pair's systems."""
    return {frozenset((v.row, v.other)): v.comparison for v in board.pairs if v.column == column}


def test_without_seeds_the_test_is_the_paired_t_test_of_examples_and_holm_over_all():
    frame = scores()
    board = build_board(frame)
    cells = [
        (row.scores[task].comparison, array(frame, row.label, task), array(frame, "base", task))
        for row in board.rows
        for task in TASKS
        if not row.is_baseline
    ]
    found = [ttest_rel(mine[0], base[0]) for _, mine, base in cells]
    assert [one.estimate.p for one, _, _ in cells] == pytest.approx([each.pvalue for each in found])
    adjusted = multipletests([each.pvalue for each in found], method="holm")[1]
    assert [one.p_holm for one, _, _ in cells] == pytest.approx(adjusted.tolist())
    for (one, _, _), each in zip(cells, found, strict=True):
        low, high = each.confidence_interval()
        assert (one.estimate.low, one.estimate.high) == pytest.approx((100 * low, 100 * high))


@pytest.mark.parametrize(("seeds", "groups"), [(1, 0), (1, 10), (3, 0), (4, 7)])
def test_all_pairs_are_tested_as_those_of_runs(seeds, groups):
    frame = scores(seeds, groups=groups)
    board = build_board(frame)
    numbers = np.arange(40) % groups if groups else np.arange(40)
    pairs = {
        (task, *both): stats.pair(
            array(frame, both[0], task), array(frame, both[1], task), numbers, both
        )
        for task in TASKS
        for both in combinations(SYSTEMS, 2)
    }
    means = {both: [pairs[task, *both] for task in TASKS] for both in combinations(SYSTEMS, 2)}
    averages = [stats.average(each, apart=True) for each in means.values()]
    verdicts = stats.assess_family(list(pairs.values()), averages)
    places = [*pairs, *(("mean of all tasks", *both) for both in means)]
    for (column, *both), verdict in zip(places, verdicts, strict=True):
        one = compared(board, column)[frozenset(both)]
        assert one.estimate.p == pytest.approx(float(verdict.p))
        assert one.p_holm == pytest.approx(float(verdict.p_holm))


def test_a_mean_over_tasks_adds_variances_unless_tasks_share_groups():
    frame = scores(groups=10)
    differences = [array(frame, "far", task)[0] - array(frame, "base", task)[0] for task in TASKS]
    variances = [np.var(each.reshape(4, 10).mean(0), ddof=1) / 10 for each in differences]
    mean = np.mean(differences)
    for shares, error in ((False, np.sqrt(sum(variances)) / 2), (True, np.sqrt(variances).mean())):
        group = frame["group"].str[-1] if shares else frame["group"]
        board = build_board(frame.assign(group=group))
        test = compared(board, "mean of all tasks")[frozenset(("far", "base"))].estimate
        assert test.p == pytest.approx(2 * student.sf(mean / error, 9))


def test_the_words_above_the_table_say_what_the_tests_generalise_to(tmp_path):
    held = report.to_markdown(build_board(scores()))
    assert held.startswith(
        "The tests generalise to other examples of the same kind, and to nothing"
    )
    assert held.index("points (") < held.index("| system |")
    drawn = build_board(scores(3))
    text = report.to_markdown(drawn)
    assert text.startswith("The tests generalise to other seeds and other examples")
    assert (
        "With 3 seeds, this board marks a true difference to base with a probability of 80%" in text
    )
    assert f"% {drawn.given.above[0]}" in report.to_latex(drawn)
    page = render(drawn)
    assert page.index(drawn.given.above[0]) < page.index('<table id="board"')
    assert "masked" not in page[: page.index("<script>")].split("</style>")[1]
    two = build_board(scores(2)).given.above[0]
    assert "Not all systems have 3 complete seeds, so seeds are averaged" in two


def test_a_run_is_the_mean_of_its_seeds():
    frame = scores(6)
    runs = frame.assign(run=frame.seed // 2)
    means = frame.groupby(["system", "task", "example", frame.seed // 2], sort=False).score.mean()
    whole = build_board(means.reset_index())
    pairs = zip(build_board(runs).pairs, whole.pairs, strict=True)
    assert all(a.comparison.estimate.p == b.comparison.estimate.p for a, b in pairs)


def test_seeds_of_other_names_are_numbered_and_the_fewest_are_compared():
    frame = scores(4)
    names = {"base": "abcd", "near": "efgh", "far": "ijkl"}
    named = [names[s][seed] for s, seed in zip(frame.system, frame.seed, strict=True)]
    board = build_board(frame.assign(seed=named)[~((frame.system == "near") & (frame.seed == 3))])
    assert [list(row.scores["qa"].seeds) for row in board.rows] == [
        [0, 1, 2, 3],
        [0, 1, 2],
        [0, 1, 2, 3],
    ]
    assert any("compare the first 3 seeds of each system" in note for note in board.notes)
    three = build_board(frame[frame.seed < 3])
    assert [v.comparison.p_holm for v in board.pairs] == [v.comparison.p_holm for v in three.pairs]


def test_a_system_that_lacks_examples_has_no_score_there_unless_they_are_left_out():
    frame = scores()
    lacking = frame[~((frame.system == "far") & (frame.task == "qa") & (frame.example == 3))]
    board = build_board(lacking)
    far = next(row for row in board.rows if row.label == "far")
    assert far.scores["qa"] is None and far.scores["nli"] is not None
    assert "far, qa: has 39 of 40 examples (--shared leaves others out)" in board.notes
    cut = build_board(frame[~((frame.task == "qa") & (frame.example == 3))])
    assert report.to_json(build_board(lacking, shared=True)) == report.to_json(cut)


def test_equal_systems_and_tasks_of_one_group_have_no_test():
    frame = scores(tasks=("qa",))
    twin = frame[frame.system == "base"].assign(system="twin")
    board = build_board(pd.concat([frame, twin]))
    assert compared(board, "qa")[frozenset(("base", "twin"))].reason is not None
    assert sum(v.comparison.estimate is not None for v in board.pairs) == 5
    one = build_board(frame.assign(group="g"))
    assert not one.pairs and "no test on qa: all examples share one group" in one.notes


def test_the_order_of_lines_does_not_matter():
    frame = scores(3, groups=8)
    found = report.to_json(build_board(frame, baseline="near"))
    mixed = report.to_json(build_board(frame.sample(frac=1, random_state=1), baseline="near"))
    key = lambda pair: (pair["column"], pair["row"], pair["other"])  # noqa: E731
    assert sorted(mixed["pairs"], key=key) == sorted(found["pairs"], key=key)
    assert {json.dumps(row["scores"], sort_keys=True) for row in mixed["rows"]} == {
        json.dumps(row["scores"], sort_keys=True) for row in found["rows"]
    }


@pytest.mark.parametrize("payload", PAYLOADS)
def test_hostile_names_are_shown_as_text(payload, tmp_path):
    frame = scores(tasks=("qa",)).replace({"system": {"far": payload}, "task": {"qa": payload}})
    board = build_board(frame)
    page = render(board)
    assert payload not in page or not {"<", ">"} & {*payload}
    report.save_report(board, tmp_path)


BAD = {
    "score nan is not from 0 to 1": lambda frame: frame.assign(score=np.nan),
    "score inf is not from 0 to 1 (and 239 more)": lambda frame: frame.assign(score=np.inf),
    "--scale MAX divides": lambda frame: frame.assign(score=100 * frame.score),
    "scores are numbers": lambda frame: frame.assign(score="good"),
    "no column example": lambda frame: frame.drop(columns="example"),
    "the table has no lines": lambda frame: frame[:0],
    "has 2 scores: drop rows that stand twice": lambda frame: pd.concat([frame, frame[:1]]),
    "line 1 of the table has no task": lambda frame: frame.assign(task=None),
    "is empty or has control characters": lambda frame: frame.assign(system="a\x1b[2J"),
    "an example is in two groups": lambda frame: frame.assign(group=range(len(frame))),
    "are too many to test together": lambda frame: pd.DataFrame(
        {"system": range(1000), "task": "t", "example": 0, "score": 1.0}
    ),
}


@pytest.mark.parametrize("message", BAD)
def test_a_table_that_cannot_be_used_is_one_line(message):
    with pytest.raises(DataError) as error:
        build_board(BAD[message](scores()))
    assert message in str(error.value) and "\n" not in str(error.value)


def test_python_takes_frames_of_pandas_and_polars(tmp_path):
    frame = scores(3).rename(columns={"system": "model"})
    found = mp.board(frame, columns={"system": "model"}, baseline="near")
    assert found.board.baseline == "near"
    assert set(found.leaderboard()["policy"]) == set(SYSTEMS)
    assert len(found.scores()) == 3 * 3 * 2
    assert "leaderboard.html" in {path.name for path in found.save(tmp_path).iterdir()}
    with pytest.raises(ConfigError, match="have no store"):
        found.masks("near")
    for given in (None, "scores.csv", {"score": [1.0]}):
        with pytest.raises(ConfigError, match="must be a pandas or polars frame"):
            mp.board(given)
    with pytest.raises(ConfigError, match="did you mean 'near'"):
        mp.board(frame, columns={"system": "model"}, baseline="nera")
    polars = pytest.importorskip("polars", reason="polars is not installed")
    same = mp.board(polars.from_pandas(frame), columns={"system": "model"}, baseline="near")
    assert report.to_json(same.board) == report.to_json(found.board)


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[9]], ids=lambda kind: kind.name)
def test_boards_without_a_difference_are_rarely_marked(kind):
    marked, missed = rates(kind, 300)
    assert marked < 8.5  # 5%, and nearly three standard errors
    assert missed < 8.5
