from __future__ import annotations

import json
from pathlib import Path

import pytest

from maskpolicy.results.cell import fingerprint
from tests.analyses.test_analyses import WORK, cell

MINE = """
from dataclasses import dataclass

from maskpolicy.findings import Findings
from maskpolicy.plugins.registry import analysis


@analysis("counts-results")
@dataclass(frozen=True)
class Counts:
    \"\"\"How many results there are.\"\"\"

    factor: int = 1

    def analyse(self, runs, store):
        rows = [{"run": run.name, "n": self.factor * len(run.results)} for run in runs]
        return Findings(("run", "n"), tuple(rows))
"""


@pytest.fixture
def finished(tmp_path) -> Path:
    """A folder of results as `run` writes them."""
    folder = tmp_path / "finished" / "results"
    folder.mkdir(parents=True)
    for policy, work in (("none", None), ("random", WORK)):
        result = {"version": 1, **cell(policy, 0, work).to_json(), "error": "not run"}
        (folder / f"{policy}--zsre--0.json").write_text(json.dumps(result))
    return folder.parent


def test_analyses_are_listed(call):
    code, out, _ = call("analyze", "--list", "--json")
    assert code == 0
    found = {entry["name"]: entry for entry in json.loads(out)}
    assert found["coverage"]["summary"].startswith("How much each policy masked")
    assert "coverage" in call("analyze", "--list")[1]


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    """Keep the store of every command in the test's own folder."""
    monkeypatch.setenv("MASKPOLICY_STORE", str(tmp_path / "store"))


def test_coverage_is_a_table_and_json(call, finished, tmp_path):
    code, out, _ = call("analyze", "coverage", finished, "--out", tmp_path / "out")
    assert code == 0
    assert "random" in out
    written = json.loads((tmp_path / "out" / "coverage.json").read_text())
    assert written.pop("results") == fingerprint(finished)
    assert written.pop("summary").startswith("How much each policy masked")
    assert written.pop("heading") == "How much each policy masked"
    assert (written.pop("of_masks"), written.pop("place")) == (True, 20)
    assert written["rows"][0]["hidden_tokens"] == 90
    assert "| random |" in (tmp_path / "out" / "coverage.md").read_text()
    assert json.loads(call("analyze", "coverage", finished, "--json")[1]) == written


def test_an_analysis_of_the_users_own_takes_its_fields(call, finished, tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    words = ("analyze", "counts-results", finished, "--plugin", tmp_path / "mine.py", "--json")
    assert json.loads(call(*words)[1])["rows"] == [{"run": "finished", "n": 2}]
    assert json.loads(call(*words, "factor=3")[1])["rows"] == [{"run": "finished", "n": 6}]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "name an analysis"),
        (["coverage"], "name one or more folders"),
        (["covrage", "x"], "did you mean 'coverage'?"),
        (["coverage", "nowhere"], "no results/*.json"),
        (["rank", "nowhere"], "nowhere: holds neither results nor a model: name a folder"),
        (["coverage", "nowhere", "a=1"], "coverage.a: unknown key"),
    ],
)
def test_a_mistake_is_one_line(refused, monkeypatch, tmp_path, words, says):
    monkeypatch.chdir(tmp_path)
    assert says in refused("analyze", *words)


def test_a_run_in_place_of_an_analysis_is_told(refused, finished):
    line = refused("analyze", finished, "coverage")
    assert f"name the analysis first, then runs: analyze NAME {finished}" in line


def test_results_of_another_version_are_refused(refused, finished, tmp_path):
    path = next((finished / "results").iterdir())
    path.write_text(path.read_text().replace('"version": 1', '"version": 99'))
    assert "by another version of maskpolicy" in refused("analyze", "lengths", finished)


def test_a_half_written_result_is_named(refused, finished):
    path = next((finished / "results").iterdir())
    path.write_text(path.read_text()[:40])
    assert f"{path.name}: not JSON" in refused("analyze", "positions", finished)


def test_an_empty_folder_is_told_what_to_name(refused, tmp_path):
    assert "name a folder that `maskpolicy run` wrote" in refused("analyze", "pos", tmp_path)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("lengths", "its intermediate stage did not finish"),
        ("overlap", "its intermediate stage did not finish"),
        ("viewer", "its intermediate stage did not finish"),
        ("forgetting", "its intermediate stage did not finish"),
        ("efficiency", "set checkpoint_steps"),
        ("checkpoints", "set checkpoint_steps"),
        ("transfer", "has no row 'salient-span'"),
        ("mismatch", "none of its tasks has examples"),
    ],
)
def test_nothing_to_show_is_one_line_that_says_why(refused, finished, tmp_path, name, says):
    for path in (finished / "results").iterdir():
        result = json.loads(path.read_text())
        stages = {f"intermediate {result['policy']}, run 0": "0" * 64}
        path.write_text(json.dumps({**result, "stages": stages, "error": "it broke"}))
    said = refused("analyze", name, finished, "--json", "--store", tmp_path / "store")
    assert says in said
    assert not (finished / "analyses").exists()


def test_a_run_folder_that_cannot_be_written_names_out(refused, finished, tmp_path):
    (finished / "analyses").write_text("a file")
    words = ("analyze", "coverage", finished, "--store", tmp_path / "store")
    assert "choose another --out" in refused(*words)


def test_all_analyses_that_find_something_are_in_the_page(call, finished):
    page = finished / "leaderboard.html"
    page.write_text("an old page")
    code, out, err = call("analyze", "all", finished)
    assert code == 0
    assert f"written to {finished / 'analyses' / 'coverage' / 'coverage.json'}" in out
    assert "analyze transfer: nothing to show: " in err
    assert "analyze hits: nothing to show: no row has a learned policy" in err
    assert all(line.startswith(("analyze ", "…")) for line in err.splitlines()), err
    assert "How much each policy masked" in page.read_text()


def test_no_control_character_of_a_run_reaches_the_terminal(call, finished):
    for path in (finished / "results").iterdir():
        result = json.loads(path.read_text())
        stages = {f"intermediate {result['policy']}, run 0": "0" * 64}
        config = {**result["config"], "intermediate_seed": 0}
        failed = {"error": "\x1b[31mred", "stages": stages, "config": config}
        path.write_text(json.dumps({**result, **failed}))
    _, out, err = call("analyze", "all", finished)
    assert "did not finish: \ufffd[31mred" in err and "\x1b" not in out + err


def test_all_analyses_of_a_folder_without_results_are_refused_in_one_line(refused, tmp_path):
    assert "no results/*.json" in refused("analyze", "all", tmp_path / "nope")


def test_all_analyses_take_no_fields_and_no_json(refused, finished):
    assert "one analysis" in refused("analyze", "all", finished, "passages=5")
    assert "one analysis" in refused("analyze", "all", finished, "--json")
