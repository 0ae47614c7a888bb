"""A store, a bucket and a run that an older version wrote are read as they are."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.pipeline.store.opening import open_store

FILES = Path(__file__).parents[1] / "fixtures" / "f939e84"
KEYS = {path.name for path in (FILES / "store" / "artifacts").iterdir()}


@pytest.fixture(params=["store", "bucket"])
def place(request, tmp_path, monkeypatch):
    """Return the folder or the URL of a copy of what the older version wrote.

    Its models, corpora and the world are gone: only what is computed anew would need them.
    """
    shutil.copytree(FILES, tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv("MASKPOLICY_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return f"file://{tmp_path}/bucket" if request.param == "bucket" else "store"


def test_every_artifact_is_verified_and_every_dropped_one_known(place):
    store = open_store(place)
    assert store.committed() == KEYS
    for key in KEYS:
        files = store.get(key).manifest["files"]
        assert files == Store(FILES / "store").peek(key)["files"]
        assert store.verify(key) is None
    dropped = {path.stem for path in (FILES / "store" / "dropped").iterdir()}
    assert {each["key"] for each in store.records()} == KEYS | dropped


def test_what_the_older_version_computed_is_done_or_outdated(place, call):
    """Trainings have new versions since; what does not rest on them is found by its key."""
    code, out, _ = call("plan", "tiny.yaml", "-v", "--store", place)
    states = {line.split()[1]: line.split()[0] for line in out.splitlines() if " zsre" in line}
    assert code == 0
    assert {kind: state for kind, state in states.items() if state in ("done", "outdated")} == {
        "train-examples": "done",
        "test-examples": "done",
        "audit": "done",
        "majority": "outdated",
        "finetune": "outdated",
        "evaluate": "outdated",
    }


def test_the_run_can_be_read(place, call, tmp_path):
    assert call("leaderboard", "run", "--out", "page")[0] == 0
    board, before = (
        json.loads((folder / "leaderboard.json").read_text())
        for folder in (tmp_path / "page", FILES / "run")
    )
    assert len(board.pop("notes")) == len(before.pop("notes"))  # their words may change
    assert board == before
