"""The store gives back what was committed, or nothing, whatever happens in between."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from stores import KEY, OTHER, THIRD, commit, flip, names, save, text_of

from maskpolicy.core.errors import ConfigError, DataError, StageError, StoreError
from maskpolicy.pipeline.store import manifest
from maskpolicy.pipeline.store.artifacts import Store

# what is committed


def test_looking_creates_nothing(store):
    assert store.get(KEY) is store.peek(KEY) is store.recall(KEY) is store.file(KEY, "file") is None
    assert store.records() == []
    assert store.committed() == store.in_use() == set()
    assert not store.is_busy(KEY) and not store.has(KEY)
    assert not store.root.exists()


def test_another_process_finds_a_commit_and_the_first_one_of_a_key_stays(store):
    commit(store, text="first")
    path = commit(store, text="second")
    assert text_of(Store(store.root)) == (path / "deep" / "file.txt").read_text() == "first"
    (store.root / "artifacts" / "mine").mkdir()
    assert store.committed() == {KEY}
    assert names(store, "temporary", "locks") == []


def test_the_manifest_says_what_was_computed_and_how(store):
    record = {"kind": "x", "params": {"lr": 0.1}, "facts": {}}
    with store.write(KEY, record) as out:
        (out / "file").write_text("hello")
        record["facts"]["device"] = "cpu"
    manifest = store.get(KEY).manifest
    assert manifest == json.loads((store.path(KEY) / "MANIFEST.json").read_text())
    assert manifest["record"] == {"kind": "x", "params": {"lr": 0.1}, "facts": {"device": "cpu"}}
    sha256 = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    assert manifest["files"] == [{"path": "file", "size": 5, "sha256": sha256}]
    assert {"maskpolicy", "python", "torch"} <= set(manifest["versions"])
    assert manifest["seconds"] >= 0


def test_an_exception_commits_nothing_and_keeps_the_checkpoints(store):
    with pytest.raises(ValueError, match="no"), store.write(KEY, {}) as out:
        (out / "half").write_text("half")
        save(store)
        raise ValueError("no")
    assert store.get(KEY) is None
    assert names(store, "temporary") == []
    assert store.checkpoints(KEY).steps() == [1]
    commit(store)
    assert names(store, "checkpoints") == []


REFUSED = {
    r"a stage must not write MANIFEST\.json": lambda out: (out / "MANIFEST.json").write_text("{}"),
    "link: a stage may write only plain files": lambda out: (out / "link").symlink_to("/dev/null"),
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_a_stage_may_not_write_is_one_line(store, line):
    with pytest.raises(StageError, match=line), store.write(KEY, {}) as out:
        REFUSED[line](out)
    assert not store.has(KEY)


def test_a_record_that_is_not_json_is_an_error_before_the_work(store):
    record = {"local": Path("x")}
    with pytest.raises(ConfigError, match=r"record\.local"), store.write(KEY, record):
        raise AssertionError("the work was begun")


@pytest.mark.parametrize("key", ["../elsewhere", "A" * 64, "a" * 63])
def test_a_key_is_a_digest(store, key):
    for use in (store.path, store.is_busy, store.recall, lambda name: store.lock(name).__enter__()):
        with pytest.raises(StoreError, match="not a key"):
            use(key)


# what is read


def remove(path):
    (path / "deep" / "file.txt").unlink()


def link(path):
    (path / "deep" / "file.txt").rename(path.parent / "elsewhere")
    (path / "deep" / "file.txt").symlink_to(path.parent / "elsewhere")


def be_another(path):
    commit(Store(path.parent.parent), OTHER)
    (path.parent / OTHER / "MANIFEST.json").replace(path / "MANIFEST.json")


DAMAGES = {
    "a flipped bit": lambda path: flip(path / "deep" / "file.txt"),
    "a flipped bit of the manifest": lambda path: flip(path / "MANIFEST.json"),
    "no file": remove,
    "one file more": lambda path: (path / "extra.txt").write_text("extra"),
    "a link": link,
    "no manifest": lambda path: (path / "MANIFEST.json").unlink(),
    "another manifest": be_another,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_artifact_is_quarantined_and_a_miss(store, damage, caplog):
    DAMAGES[damage](commit(store))
    fresh = Store(store.root)
    assert (fresh.peek(KEY) is None) == (damage != "a flipped bit")
    assert fresh.verify(KEY) is not None
    assert fresh.path(KEY).exists()
    assert fresh.get(KEY) is None
    assert "an artifact is damaged and will be computed again" in caplog.text
    assert not fresh.path(KEY).exists()
    assert len(names(fresh, "quarantine")) == 1
    commit(fresh)
    assert text_of(fresh) == "content"


def test_a_file_in_place_of_the_folder_is_a_miss(store):
    store.path(KEY).parent.mkdir(parents=True)
    store.path(KEY).write_text("what is this")
    assert store.get(KEY) is None
    commit(store)
    assert store.get(KEY) is not None


def test_hidden_files_of_desktops_and_file_systems_do_no_harm(store):
    (commit(store) / "deep" / ".DS_Store").write_text("")
    assert Store(store.root).get(KEY) is not None


def test_one_file_of_an_artifact_is_as_committed_or_left_out(store, caplog):
    path = commit(store) / "deep" / "file.txt"
    assert store.file(KEY, "deep/file.txt") == path
    assert store.file(KEY, "missing.txt") is store.file(OTHER, "deep/file.txt") is None
    assert not caplog.records
    flip(path)
    with caplog.at_level(logging.WARNING):
        assert store.file(KEY, "deep/file.txt") is None
    assert "file.txt is damaged, and left out: `maskpolicy store verify`" in caplog.text


def test_a_dropped_artifact_leaves_its_manifest(store):
    for key in (KEY, OTHER, THIRD):
        commit(store, key)
    remove(store.path(THIRD))
    save(store)
    assert store.drop(KEY) and store.drop(THIRD)
    assert store.get(KEY) is store.get(THIRD) is None
    assert store.recall(KEY)["key"] == KEY
    assert store.recall(THIRD) is None  # nobody knows what the damaged one was
    assert [each["key"] for each in store.records()] == [OTHER, KEY]
    assert [each["key"] for each in store.records(dropped=False)] == [OTHER]
    assert names(store, "temporary", "checkpoints") == []


# errors of the disk


def test_an_error_of_the_stage_itself_is_not_taken_for_the_disk(store, tmp_path):
    with pytest.raises(FileNotFoundError), store.write(KEY, {}):
        (tmp_path / "nowhere").read_text()
    with pytest.raises(DataError, match="row 3"), store.write(KEY, {}):
        raise DataError("row 3: No space left on device is not an answer")


def test_a_full_disk_hidden_in_another_error_is_found(store):
    with pytest.raises(StoreError, match="no room to write"), store.write(KEY, {}) as out:
        (out / "tensors").symlink_to("/dev/full")
        try:
            (out / "tensors").write_text("x")
        except OSError as error:
            raise RuntimeError("could not serialise") from error


def test_a_store_that_cannot_be_created_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="Not a directory"):
        commit(Store(tmp_path / "file" / "store"))
    with pytest.raises(StoreError, match="is a file: name a folder with --store"):
        Store(tmp_path / "file")


def test_a_manifest_says_what_chose_the_instructions(store, monkeypatch):
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    monkeypatch.setattr(manifest, "surroundings", manifest.surroundings.__wrapped__)
    commit(store)
    assert store.get(KEY).manifest["machine"]["settings"]["ATEN_CPU_CAPABILITY"] == "default"
