"""A store that cannot be written can be analysed: what is computed goes to a temporary one."""

from __future__ import annotations

import os

import pytest
import tiny
from stores import KEY, OTHER, tree

from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.pipeline.store.opening import open_store
from maskpolicy.pipeline.store.overlay import Overlay, writable


def commit(store, key, text):
    with store.write(key, {"kind": "any"}) as out:
        (out / "file.txt").write_text(text)


@pytest.fixture
def base(tmp_path):
    store = Store(tmp_path / "store")
    commit(store, KEY, "below")
    return store


def test_both_stores_are_read_and_only_the_upper_one_is_written(base, caplog):
    before, over = tree(base), Overlay(base)
    commit(over, OTHER, "above")
    for key, text in ((KEY, "below"), (OTHER, "above")):
        assert (over.get(key).path / "file.txt").read_text() == text
        assert over.file(key, "file.txt").read_text() == text
        assert over.has(key)
        assert over.peek(key)["key"] == over.recall(key)["key"] == key
    assert tree(base) == before
    assert over.get("c" * 64) is None
    assert over.place == str(base.root)
    assert not caplog.records  # nothing is damaged


def test_an_artifact_of_the_lower_store_is_not_committed_again(base):
    over = Overlay(base)
    commit(over, KEY, "below")
    for _ in range(2):
        assert over.get(KEY).path.is_relative_to(base.root.resolve())


def test_a_stage_reads_what_only_the_lower_store_has(base, tmp_path):
    stages = tiny.diamond()
    execute(stages[:1], Store(base.root))
    before, over = tree(base), Overlay(base)
    outcomes = execute(stages, over)
    assert [outcomes[stage.key].hit for stage in stages] == [True, False, False, False]
    assert tree(base) == before
    alone = Store(tmp_path / "alone")
    execute(stages, alone)
    assert over.get(stages[-1].key).manifest["files"] == alone.get(stages[-1].key).manifest["files"]


def test_the_artifacts_of_both_stores_are_listed_once(base):
    over = Overlay(base)
    commit(over, OTHER, "above")
    assert over.committed() == {KEY, OTHER}
    assert sorted(known["key"] for known in over.records()) == [KEY, OTHER]
    assert over.drop(OTHER)
    assert over.committed() == {KEY}
    assert sorted(known["key"] for known in over.records()) == [KEY, OTHER]
    assert [known["key"] for known in over.records(dropped=False)] == [KEY]


def test_a_damaged_artifact_stays_and_is_computed_above(base, caplog):
    (base.path(KEY) / "file.txt").write_text("wrong")
    before, over = tree(base), Overlay(Store(base.root))
    assert over.get(KEY) is None
    assert "is damaged, and left out" in caplog.text
    commit(over, KEY, "right")
    assert (over.get(KEY).path / "file.txt").read_text() == "right"
    assert tree(base) == before


def test_a_store_that_can_be_written_is_used_itself(base, tmp_path):
    assert writable(base) is base
    nowhere = Store(tmp_path / "nowhere")
    assert writable(nowhere) is nowhere


def test_a_folder_without_permission_gets_an_overlay(base, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    over = writable(base)
    assert isinstance(over, Overlay)
    assert over.get(KEY) is not None


def test_a_bucket_that_can_only_be_read_gets_an_overlay(small_disk, tmp_path):
    url = f"file://{small_disk('size=4m')}"
    mine = open_store(url, tmp_path / "mine")
    commit(mine, KEY, "below")
    assert writable(mine) is mine
    small_disk("remount,ro,size=4m")
    over = writable(open_store(url, tmp_path / "theirs"))
    assert isinstance(over, Overlay)
    commit(over, OTHER, "above")
    for key, text in ((KEY, "below"), (OTHER, "above")):
        assert over.file(key, "file.txt").read_text() == text
        assert (over.get(key).path / "file.txt").read_text() == text
    assert over.committed() == {KEY, OTHER}
    assert over.place == url
