from __future__ import annotations

import json
from pathlib import Path

import pytest

from maskpolicy import findings
from maskpolicy.analyses.coverage import Coverage
from maskpolicy.findings import Findings
from maskpolicy.results import Result, Run
from maskpolicy.store import Store
from maskpolicy.types import Json

WORK = {
    "passages": 40,
    "passages_without_span": 10,
    "spans": 60,
    "hidden_tokens": 90,
    "source_tokens": 900,
    "target_tokens": 210,
}


def cell(policy: str, seed: int, work: Json, number: int = 0) -> Result:
    config: dict[str, Json] = {"policy": {"name": policy}}
    if policy != "none":
        config |= {"intermediate": {}, "intermediate_seed": number}
    return Result(policy, "zsre", seed, "group", config, {}, None, work)


def run(*results: Result, name: str = "a") -> Run:
    return Run(Path(name), results, "none", tuple(dict.fromkeys(r.policy for r in results)))


@pytest.fixture
def analyse(tmp_path):
    return lambda *runs: Coverage().analyse(runs, Store(tmp_path))


def test_a_policy_is_told_by_spans_tokens_and_passages_without_a_span(analyse):
    found = analyse(run(cell("none", 0, None), cell("random", 0, WORK)))
    assert found.rows == (
        {
            "run": "a",
            "policy": "random",
            "stage": 0,
            "passages": 40,
            "spans": 60,
            "hidden_tokens": 90,
            "target_tokens": 210,
            "without_span": 0.25,
            "spans_per_passage": 1.5,
            "tokens_per_span": 1.5,
        },
    )
    assert found.notes == ()


def test_seeds_that_share_a_stage_are_one_row(analyse):
    other = {**WORK, "spans": 20}
    cells = [cell("random", 0, WORK, 0), cell("random", 1, other, 1), cell("random", 2, WORK, 0)]
    assert [(row["stage"], row["spans"]) for row in analyse(run(*cells)).rows] == [(0, 60), (1, 20)]


def test_a_stage_that_was_not_finished_is_a_note(analyse):
    found = analyse(run(cell("none", 0, None), cell("random", 0, None)))
    assert found.rows == ()
    assert found.notes == ("a, random: its intermediate stage was not finished",)


def test_a_policy_that_hid_nothing_has_no_mean_length(analyse):
    nothing = {**WORK, "spans": 0, "hidden_tokens": 0, "passages_without_span": 40}
    row = analyse(run(cell("random", 0, nothing))).rows[0]
    assert row["tokens_per_span"] is None
    assert row["without_span"] == 1.0


def test_several_runs_are_told_apart(analyse):
    both = analyse(run(cell("random", 0, WORK)), run(cell("random", 0, WORK), name="b"))
    assert both.columns[0] == "run"
    assert [row["run"] for row in both.rows] == ["a", "b"]
    assert "run" not in analyse(run(cell("random", 0, WORK))).columns


def test_findings_are_written_as_json_and_markdown(tmp_path):
    rows = ({"policy": "a|b", "share": 0.12345}, {"policy": "c"})
    found = Findings(("policy", "share"), rows, ("a note",))
    paths = findings.save(found, "mine", tmp_path / "out")
    assert [path.name for path in paths] == ["mine.json", "mine.md"]
    assert json.loads(paths[0].read_text()) == {
        "version": 1,
        "analysis": "mine",
        "columns": ["policy", "share"],
        "plots": [],
        "rows": [{"policy": "a|b", "share": 0.12345}, {"policy": "c", "share": None}],
        "notes": ["a note"],
    }
    assert paths[1].read_text().splitlines()[2:] == [
        "| a\\|b | 0.123 |",
        "| c | – |",
        "",
        "* a note",
    ]
