"""A folder or a URL names a store; stores of older versions can be read."""

import json
import os
import shutil
from pathlib import Path

import pytest
import tiny
from stores import KEY, OTHER, commit, text_of, tree

from maskpolicy.core.errors import StoreError
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.pipeline.store.opening import open_store, writable


def test_a_bucket_without_a_place_for_its_cache_is_one_line(tmp_path, monkeypatch):
    def home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", home)
    with pytest.raises(StoreError, match=r".*home directory.*--cache or \$MASKPOLICY_CACHE"):
        open_store("memory://x")


# read-only stores: a temporary store gets the new artifacts


@pytest.fixture
def base(tmp_path):
    store = Store(tmp_path / "store")
    commit(store, KEY, "below")
    return store


def over_it(base):
    """Return the store over one that cannot be written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "access", lambda path, mode: False)
        return writable(base)


def test_both_stores_are_read_and_only_the_upper_one_is_written(base, caplog):
    before, over = tree(base), over_it(base)
    commit(over, OTHER, "above")
    for key, text in ((KEY, "below"), (OTHER, "above")):
        assert text_of(over, key) == text
        assert over.file(key, "deep/file.txt").read_text() == text
        assert over.has(key)
        assert over.peek(key)["key"] == over.recall(key)["key"] == key
    assert over.get("c" * 64) is None
    assert over.place == str(base.root)
    assert "damaged" not in caplog.text
    keys = [KEY, OTHER]
    assert sorted(over.committed()) == sorted(each["key"] for each in over.records()) == keys
    assert over.drop(OTHER)
    assert over.committed() == {KEY}
    assert sorted(each["key"] for each in over.records()) == keys
    assert [each["key"] for each in over.records(dropped=False)] == [KEY]
    assert tree(base) == before


def test_a_stage_reads_what_only_the_lower_store_has(base):
    stages = tiny.diamond()
    execute(stages[:1], Store(base.root))
    before, over = tree(base).keys(), over_it(base)
    outcomes = execute(stages, over)
    assert [outcomes[stage.key].hit for stage in stages] == [True, False, False, False]
    assert tree(base).keys() == before
    assert tiny.content(over, stages) == tiny.alone(stages)


def test_a_damaged_artifact_stays_and_is_computed_above(base, caplog):
    (base.path(KEY) / "deep" / "file.txt").write_text("wrong")
    before, over = tree(base), over_it(Store(base.root))
    assert over.get(KEY) is None
    assert "an artifact is damaged" in caplog.text
    commit(over, KEY, "right")
    assert text_of(over) == "right"
    assert tree(base) == before


def test_a_bucket_that_can_only_be_read_gets_an_overlay(small_disk, tmp_path):
    url = f"file://{small_disk('size=4m')}"
    mine = open_store(url, tmp_path / "mine")
    commit(mine, KEY, "below")
    assert writable(mine) is mine
    small_disk("remount,ro,size=4m")
    over = writable(open_store(url, tmp_path / "theirs"))
    commit(over, OTHER, "above")
    for key, text in ((KEY, "below"), (OTHER, "above")):
        assert over.file(key, "deep/file.txt").read_text() == text
        assert text_of(over, key) == text
    assert over.committed() == {KEY, OTHER}
    assert over.place == url


FILES = Path(__file__).parents[1] / "fixtures" / "f939e84"
KEYS = {path.name for path in (FILES / "store" / "artifacts").iterdir()}


@pytest.fixture(params=["store", "bucket"])
def place(request, tmp_path, monkeypatch):
    """Return the folder or the URL of a copy of an older version's store.

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
    """Trainings have new versions since; stages that do not depend on them are found."""
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


def test_a_store_in_the_home_folder(tmp_path, monkeypatch):
    """A shell leaves the ~ of `--store=~/store` as it is."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_store("~/store").root == tmp_path / "store"
    assert open_store("memory://home", "~/cache").root.parent == tmp_path / "cache"
    monkeypatch.setenv("MASKPOLICY_CACHE", "~/copies")
    assert open_store("memory://home").root.parent == tmp_path / "copies"
    assert open_store("~nobody-here/x").root == Path("~nobody-here/x").absolute()
