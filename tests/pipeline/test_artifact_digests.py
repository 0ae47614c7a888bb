"""A large file of an artifact is read once, by whatever process, until it changes."""

from __future__ import annotations

import json
import os
import time

import pytest
from stores import KEY, OTHER

from maskpolicy.core.files import sha256
from maskpolicy.pipeline.store import artifact_digests
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.pipeline.store.upkeep import prune


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@pytest.fixture
def read(monkeypatch):
    """Return the list of the files that are hashed from now on."""
    paths = []

    def recorded(path):
        paths.append(path.name)
        return sha256(path)

    monkeypatch.setattr(artifact_digests, "sha256", recorded)
    return paths


def commit(store, key=KEY, content=b"x" * (2 << 20)):
    """Commit an artifact with a large file, written an hour ago, and a small one."""
    then = time.time_ns() - 3_600_000_000_000
    with store.write(key, {}) as out:
        (out / "deep").mkdir()
        (out / "deep" / "large").write_bytes(content)
        os.utime(out / "deep" / "large", ns=(then, then))
        (out / "small").write_bytes(b"small")
    return store.path(key)


def test_each_file_is_read_once_and_by_other_processes_the_small_ones_alone(store, read):
    commit(store)
    assert store.get(KEY) is not None
    assert sorted(read) == ["large", "small"]
    read.clear()
    assert Store(store.root).get(KEY) is not None
    assert read == ["small"]


def test_a_file_written_just_now_is_read_again_by_one_more_process(store, read, monkeypatch):
    monkeypatch.setattr("maskpolicy.pipeline.store.data_digests._YOUNG", 10**18)
    commit(store)
    monkeypatch.undo()
    monkeypatch.setattr(
        artifact_digests, "sha256", lambda path: read.append(path.name) or sha256(path)
    )
    read.clear()
    for _ in range(2):
        assert Store(store.root).get(KEY) is not None
    assert sorted(read) == ["large", "small", "small"]


def test_a_changed_file_of_the_same_size_time_and_inode_is_noticed(store, caplog):
    path = commit(store) / "deep" / "large"
    before = path.stat()
    with path.open("r+b") as file:
        file.write(b"y")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert Store(store.root).get(KEY) is None
    assert "large" in caplog.text
    assert not list((store.root / "verified").iterdir())


def test_verifying_ignores_what_is_remembered(store, read):
    path = commit(store)
    assert store.verify(KEY) is None
    read.clear()
    assert Store(store.root).verify(KEY) is None
    assert sorted(read) == ["large", "small"]
    note = store.root / "verified" / f"{KEY}.json"
    about = json.loads(note.read_text())
    (path / "deep" / "large").write_bytes(b"y" * (2 << 20))
    found = (path / "deep" / "large").stat()
    now = [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]
    note.write_text(json.dumps({**about, "files": {"deep/large": now}}))
    assert Store(store.root).get(KEY) is not None  # as the note says that it was verified
    assert "large" in Store(store.root).verify(KEY)
    assert path.exists()
    assert "missing" in store.verify(OTHER)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"manifest": "other", "files": {}}'])
def test_a_broken_note_only_costs_time(store, read, content):
    commit(store)
    (store.root / "verified" / f"{KEY}.json").write_text(content)
    read.clear()
    for _ in range(2):
        assert Store(store.root).get(KEY) is not None
    assert sorted(read) == ["large", "small", "small"]


def test_a_store_that_cannot_be_written_is_read(store, read):
    commit(store)
    note = store.root / "verified" / f"{KEY}.json"
    note.unlink()
    note.parent.rmdir()
    note.parent.write_text("no folder")
    assert Store(store.root).get(KEY) is not None


def test_links_to_a_verified_file_are_not_read(store, read):
    shard = commit(store)
    read.clear()
    with store.write(OTHER, {}) as out:
        (out / "merged").hardlink_to(shard / "deep" / "large")
    assert store.get(OTHER) is not None
    assert read == []
    assert store.drop(KEY)  # which changes the file's ctime once more
    assert store.get(OTHER) is not None
    assert Store(store.root).get(OTHER) is not None
    assert read == []
    assert store.verify(OTHER) is None
    commit(store)
    (store.path(KEY) / "deep" / "large").write_bytes(b"y" * (2 << 20))
    read.clear()
    with store.write("c" * 64, {}) as out:  # of a file that has changed
        (out / "merged").hardlink_to(store.path(KEY) / "deep" / "large")
    assert read == ["merged"]


def test_a_change_before_the_other_name_goes_is_noticed(store):
    shard = commit(store)
    with store.write(OTHER, {}) as out:
        (out / "merged").hardlink_to(shard / "deep" / "large")
    with (store.path(OTHER) / "merged").open("r+b") as file:
        file.write(b"y")
    store.drop(KEY)
    assert Store(store.root).get(OTHER) is None


def test_nothing_is_remembered_of_what_is_removed(store):
    commit(store)
    commit(store, OTHER)
    store.drop(KEY)
    assert [path.stem for path in (store.root / "verified").iterdir()] == [OTHER]
    (store.path(OTHER) / "small").unlink()
    assert store.get(OTHER) is None
    assert not list((store.root / "verified").iterdir())
    commit(store)
    store.path(KEY).rename(store.root / "elsewhere")
    prune(store)
    assert not list((store.root / "verified").iterdir())
