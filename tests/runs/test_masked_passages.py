"""A run ends with passages that show what each policy masked."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
import small

from maskpolicy.cli import app
from maskpolicy.results.cell import read_run
from maskpolicy.runs import masked_passages
from maskpolicy.store.artifacts import Store

FILES = {"viewer.json", "viewer.md"}


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A folder with an experiment that was run: it.yaml, store/, out/."""
    folder = tmp_path_factory.mktemp("passages")
    text = small.EXPERIMENT.replace("[none, random]", "[none, random, whole-word, entropy-aware]")
    (folder / "it.yaml").write_text(text)
    assert run(folder) == 0
    return folder


def run(home: Path, *keys: str) -> int:
    words = ["run", home / "it.yaml", *keys, "--out", home / "out", "--store", home / "store"]
    return app([str(word) for word in words], standalone_mode=False) or 0


def viewer(home: Path) -> Path:
    return home / "out" / "analyses" / "viewer"


def save(home: Path) -> None:
    masked_passages.save(read_run(home / "out"), Store(home / "store"))


def found(home: Path) -> dict:
    return json.loads((viewer(home) / "viewer.json").read_text())


def test_the_page_of_a_run_shows_what_each_policy_masked(home):
    assert {path.name for path in viewer(home).iterdir()} == FILES
    passages = {row["passage"] for row in found(home)["rows"]}
    assert len(passages) == masked_passages.MOST
    assert {row["policy"] for row in found(home)["rows"]} == {"random", "whole-word"}
    assert "entropy-aware: masks by what the model in training predicts" in found(home)["notes"][0]
    page = (home / "out" / "leaderboard.html").read_text()
    assert page.count('<p class="passage">') == 2 * (1 + masked_passages.MOST)
    assert "analyze viewer" not in page


def test_the_same_results_are_not_analysed_again(home):
    before = (viewer(home) / "viewer.json").stat().st_mtime_ns
    save(home)
    assert (viewer(home) / "viewer.json").stat().st_mtime_ns == before


def test_findings_of_other_results_are_replaced_with_their_pictures(home):
    known = found(home)
    (viewer(home) / "viewer.json").write_text(json.dumps({**known, "results": "of others"}))
    (viewer(home) / "viewer.svg").write_text("<svg/>")
    save(home)
    assert found(home) == known
    assert {path.name for path in viewer(home).iterdir()} == FILES


def test_many_rows_share_the_room(home, monkeypatch):
    known = found(home)
    (viewer(home) / "viewer.json").unlink()
    monkeypatch.setattr(masked_passages, "ROOM", 5)  # for three rows
    save(home)
    assert len({row["passage"] for row in found(home)["rows"]}) == 1
    (viewer(home) / "viewer.json").write_text(json.dumps(known))


def test_a_failure_is_logged_and_leaves_the_page_without_passages(home, caplog):
    viewer(home).rename(home / "aside")
    viewer(home).write_text("a file of the user's")
    with caplog.at_level(logging.WARNING):
        save(home)
    (said,) = caplog.messages
    assert said.startswith("the page does not show what each policy masked: ")
    assert said.endswith("is a file, not a folder: choose another --out")
    viewer(home).unlink()
    (home / "aside").rename(viewer(home))


def test_what_is_far_away_and_large_is_not_fetched(home, monkeypatch):
    (viewer(home) / "viewer.json").rename(home / "aside")
    monkeypatch.setattr(masked_passages, "NEAR", -1)
    save(home)
    assert not (viewer(home) / "viewer.json").exists()
    (home / "aside").rename(viewer(home) / "viewer.json")
