"""Means over intermediate runs: their intervals and tests against scipy's, and what has no test."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats

from maskpolicy import analyses as findings
from maskpolicy.analyses import Findings, over_runs
from maskpolicy.leaderboard.results.cell import Result, Run

VALUES = [2.0, 3.0, 2.5, 4.0, 1.5]


def test_the_interval_is_students():
    expected = stats.t.interval(
        0.95, 4, loc=np.mean(VALUES), scale=np.std(VALUES, ddof=1) / np.sqrt(5)
    )
    assert over_runs.interval(VALUES) == pytest.approx(expected)
    assert over_runs.interval([3.0]) == (None, None)
    assert over_runs.interval([3.0, 3.0]) == (3.0, 3.0)


def test_all_places_are_one_family():
    found = over_runs.tested({"a": VALUES, "b": [0.1, -0.2, 0.3, -0.1, 0.0]})
    alone = [
        stats.ttest_1samp(values, 0).pvalue for values in (VALUES, [0.1, -0.2, 0.3, -0.1, 0.0])
    ]
    assert found["a"]["p (Holm)"] == pytest.approx(2 * min(alone))
    assert found["b"]["p (Holm)"] == pytest.approx(max(alone))
    assert (found["a"]["low"], found["a"]["high"]) == pytest.approx(over_runs.interval(VALUES))
    assert found["a"]["detectable"] is None  # what was found needs no such number
    assert found["b"]["detectable"] > 0.2


def test_two_runs_and_equal_numbers_have_no_test():
    found = over_runs.tested({"two": [1.0, 2.0], "same": [3.0, 3.0, 3.0], "three": [1.0, 2.0, 3.0]})
    assert list(found) == ["three"]
    assert over_runs.tested({}) == {}


def test_rows_are_paired_by_run():
    assert over_runs.paired({0: 5.0, 2: 7.0, 1: 1.0}, {2: 6.0, 0: 1.0, 3: 9.0}) == [4.0, 1.0]


def test_each_row_is_compared_with_the_baseline_at_the_same_place(tmp_path):
    cells = [Result(row, "cola", 0, "group", {"policy": {"name": row}}, {}) for row in "abc"]
    run = Run(tmp_path, tuple(cells), "a")
    numbers = {
        (run.name, "a", 4): {0: 1.0, 1: 2.0},
        (run.name, "b", 4): {1: 5.0, 2: 7.0},
        (run.name, "b", 2): {1: 5.0},
        (run.name, "c", 4): {3: 6.0},
    }
    assert over_runs.against_baselines(numbers, [run]) == {(run.name, "b", 4): [3.0]}


def test_the_numbers_of_each_run_are_in_the_file(tmp_path):
    number = {"policy": "MLM", "stage": 3, "probe": "person", "value": 41.5}
    made = Findings(("policy",), ({"policy": "MLM"},), values=(number,))
    findings.save(made, "mine", tmp_path)
    document = json.loads((tmp_path / "mine.json").read_text())
    assert document["values"] == [number]
    assert findings.from_json(document).values == (number,)
    assert "values" not in findings.to_json(Findings(("policy",), ()), "mine")
