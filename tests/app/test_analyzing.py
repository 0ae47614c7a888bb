"""maskpolicy analyze: tables, JSON and pages of finished runs; messages if there is no result."""

import json
from pathlib import Path
from textwrap import dedent

import folders
import pytest
from pages import ROOT, blocks

from maskpolicy.leaderboard.results.cell import fingerprint

COMMANDS_PAGE = ROOT / "docs" / "commands.md"


@pytest.fixture
def finished() -> Path:
    """A folder of results as `run` writes them."""
    return folders.write(Path("finished"), {"none": 0.2, "random": 0.6}, ("zsre",), seeds=1)


def fail(error: str) -> None:
    """Let the trainings of all rows have failed."""
    folders.change(Path("finished"), "*", metrics=None, error=error)


def test_coverage_is_a_table_and_json(done, finished):
    out, _ = done("analyze", "coverage", finished, "--out", "out")
    assert "random" in out
    written = json.loads(Path("out", "coverage.json").read_text())
    assert written.pop("results") == fingerprint(finished)
    assert written.pop("summary").startswith("How much each policy masked")
    assert written.pop("heading") == "How much each policy masked"
    assert (written.pop("of_masks"), written.pop("place")) == (True, 20)
    assert written["rows"][0]["hidden_tokens"] == 9
    assert "| random |" in Path("out", "coverage.md").read_text()
    assert json.loads(done("analyze", "coverage", finished, "--json")[0]) == written


def test_results_that_cannot_be_read_are_named(refused, finished):
    path = next((finished / "results").iterdir())
    text = path.read_text()
    path.write_text(text.replace('"version": 1', '"version": 99'))
    assert "by another version of maskpolicy" in refused("analyze", "lengths", finished)
    path.write_text(text[:40])
    assert f"{path.name}: not JSON" in refused("analyze", "positions", finished)
    path.write_text(text)
    (finished / "analyses").write_text("a file")
    assert "choose another --out" in refused("analyze", "coverage", finished)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        *((name, "its intermediate stage did not finish") for name in ("lengths", "overlap")),
        *((name, "its intermediate stage did not finish") for name in ("viewer", "forgetting")),
        *((name, "set checkpoint_steps") for name in ("efficiency", "checkpoints")),
        ("transfer", "has no row 'salient-span'"),
        ("mismatch", "none of its tasks has examples"),
    ],
)
def test_nothing_to_show_is_one_line_that_says_why(refused, finished, name, says):
    fail("it broke")
    assert says in refused("analyze", name, finished, "--json")
    assert not (finished / "analyses").exists()


def test_all_analyses_that_find_something_are_in_the_page(call, done, refused, finished):
    page = finished / "leaderboard.html"
    page.write_text("an old page")
    out, err = done("analyze", "all", finished)
    assert f"written to {finished / 'analyses' / 'coverage' / 'coverage.json'}" in out
    assert "analyze transfer: nothing to show: " in err
    assert "analyze hits: nothing to show: no row has a learned policy" in err
    assert all(line.startswith(("analyze ", "…")) for line in err.splitlines()), err
    assert "How much each policy masked" in page.read_text()
    fail("\x1b[31mred")  # which must not reach the terminal
    _, out, err = call("analyze", "all", finished)
    assert "did not finish: \ufffd[31mred" in err and "\x1b" not in out + err


def test_faults_of_a_users_analyses_name_them_and_end_no_other(done, finished):
    said = {
        "raise ValueError('x')": "the analysis failed: ValueError: x ({file}:10)",
        "return None": "the analysis failed: TypeError: `analyse` returned NoneType",
        "return Findings(('a',), ({'a': float('nan')},))": "its findings: rows[0].a: nan is not",
        "return Findings(('a',), ({'a': np.float32(1)},))": "its findings: rows[0].a: a float32",
    }
    each = """
    import numpy as np
    from dataclasses import dataclass
    from maskpolicy import Findings, analysis

    @analysis("mine-{number}")
    @dataclass(frozen=True)
    class Mine:
        def analyse(self, runs, store):
            {line}
    """
    file = Path("own.py").resolve()
    parts = (each.format(number=number, line=line) for number, line in enumerate(said))
    file.write_text("".join(map(dedent, parts)))
    out, err = done("analyze", "all", finished, "--plugin", file)
    for number, line in enumerate(said.values()):
        assert f"analyze mine-{number}: {line.format(file=file)}" in err
    assert "coverage.json" in out


def test_the_documented_analysis_runs_as_it_is_shown(refused, finished):
    [shown] = [each.text for each in blocks(COMMANDS_PAGE) if "@analysis(" in each.text]
    Path("shown.py").write_text(shown)
    said = refused("analyze", "mine", finished, "--plugin", "shown.py")
    assert said.startswith("error: analyze mine: nothing to show: ")
