"""Digests of data files are remembered while size, times and inode stay the same."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
from contextlib import closing

import pytest

from maskpolicy.errors import DataError
from maskpolicy.store import data_digests
from maskpolicy.store.artifacts import Store
from maskpolicy.store.data_digests import DataDigests, mark
from maskpolicy.store.disk import Disk
from maskpolicy.store.pruning import prune

ONE, TWO = (hashlib.sha256(content).hexdigest() for content in (b"one", b"two"))


@pytest.fixture
def old(tmp_path):
    """Return a file that was written an hour ago."""
    path = tmp_path / "data.jsonl"
    path.write_bytes(b"one")
    age(path)
    return path


@pytest.fixture
def store(tmp_path):
    """Return a store that exists."""
    made = Store(tmp_path / "store")
    with made.write("0" * 64, {}):
        pass
    return made


@pytest.fixture
def memory(store):
    return DataDigests(Disk(store.root))


@pytest.fixture
def read(monkeypatch):
    """Return the list of the files that are hashed from now on."""
    paths = []

    def recorded(path):
        paths.append(path.name)
        return hashlib.sha256(path.read_bytes()).hexdigest()

    monkeypatch.setattr(data_digests, "sha256", recorded)
    return paths


def age(path):
    """Put the time of change an hour back."""
    then = time.time_ns() - 3_600_000_000_000
    os.utime(path, ns=(then, then))


def test_a_file_is_read_once_by_all_processes(tmp_path, store, old, read):
    assert store.hash_file(old) == ONE
    assert store.hash_file(old) == Store(store.root).hash_file(old) == ONE
    assert read == ["data.jsonl"]


def test_digests_wait_until_there_is_a_store(tmp_path, old, read):
    store = Store(tmp_path / "store")
    assert store.hash_file(old) == store.hash_file(old) == ONE
    assert not store.root.exists()  # it is made by what is computed, not by what is looked at
    with store.write("0" * 64, {}):
        pass
    assert Store(store.root).hash_file(old) == ONE
    assert read == ["data.jsonl"]


def test_a_changed_file_is_read_again(memory, old):
    memory.digest(old)
    old.write_bytes(b"two")
    assert memory.digest(old) == TWO


def test_another_file_of_the_same_size_and_time_is_read(tmp_path, memory, old):
    memory.digest(old)
    other = tmp_path / "other"
    other.write_bytes(b"two")
    os.utime(other, ns=(old.stat().st_atime_ns, old.stat().st_mtime_ns))
    other.replace(old)
    assert memory.digest(old) == TWO


def test_other_bytes_of_the_same_size_time_and_inode_are_read(memory, old):
    memory.digest(old)
    before = old.stat()
    with old.open("r+b") as file:  # as an archive is unpacked over it
        file.write(b"two")
    os.utime(old, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = old.stat()
    for name in ("st_size", "st_mtime_ns", "st_ino"):
        assert getattr(after, name) == getattr(before, name)
    assert memory.digest(old) == TWO


def test_a_file_written_just_now_is_not_remembered(tmp_path, memory, read):
    path = tmp_path / "new"
    path.write_bytes(b"one")
    assert memory.digest(path) == memory.digest(path) == ONE
    assert read == ["new", "new"]


def test_other_facts_stay_with_the_digest(memory, old):
    memory.digest(old)
    memory.learn(old, mark(old), cuts=[1, 2])
    assert memory.recall(old)["cuts"] == [1, 2]
    assert memory.recall(old)["sha256"] == ONE
    old.write_bytes(b"two")
    assert memory.recall(old) == {}


def test_the_pass_that_finds_cuts_also_hashes_and_is_made_once(store, old, read, monkeypatch):
    old.write_text("one\ntwo\nthree\n")
    age(old)
    cuts = store.cut_file(old, 5, "line")
    assert cuts == [(8, 2)]
    assert store.cut_file(old, 1, "line") == [(4, 1), (8, 2)]
    monkeypatch.setattr(data_digests, "scan", None)
    assert Store(store.root).cut_file(old, 5, "line") == cuts
    assert Store(store.root).hash_file(old) == hashlib.sha256(old.read_bytes()).hexdigest()
    assert read == []
    monkeypatch.undo()
    old.write_text("1\n2\n3\n4\n")
    assert store.cut_file(old, 5, "line") == [(6, 3)]


def test_facts_of_a_file_that_changed_while_it_was_read_are_not_kept(memory, old):
    before = mark(old)
    old.write_bytes(b"two")
    age(old)
    memory.learn(old, before, sha256=ONE)
    assert memory.digest(old) == TWO


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"mark": 3, "sha256": "x"}'])
def test_a_broken_memory_only_costs_time(store, memory, old, content):
    memory.digest(old)
    (note,) = (store.root / "hashes").iterdir()
    note.write_text(content)
    assert memory.digest(old) == ONE


def test_a_path_that_is_not_unicode(tmp_path, memory, read):
    path = tmp_path / os.fsdecode(b"caf\xe9")
    path.write_bytes(b"one")
    age(path)
    assert memory.digest(path) == memory.digest(path) == ONE
    assert len(read) == 1


def test_the_database_of_a_former_version_is_ignored_and_pruned(store, old):
    with closing(sqlite3.connect(store.root / "hashes.sqlite")) as database, database:
        database.execute("CREATE TABLE files (path BLOB PRIMARY KEY, sha256 TEXT)")
        database.execute("INSERT INTO files VALUES (?, 'wrong')", (os.fsencode(old),))
    assert store.hash_file(old) == ONE
    prune(store)
    assert not (store.root / "hashes.sqlite").exists()


def test_prune_forgets_files_that_are_gone_or_changed(tmp_path, store, read):
    paths = [tmp_path / name for name in ("stays", "goes", "changes")]
    for path in paths:
        path.write_bytes(b"one")
        age(path)
        store.hash_file(path)
    paths[1].unlink()
    paths[2].write_bytes(b"two")
    prune(store)
    assert len(list((store.root / "hashes").iterdir())) == 1
    store.hash_file(paths[0])
    assert len(read) == 3


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.txt: no such file"):
        Store(tmp_path / "store").hash_file(tmp_path / "nowhere.txt")


def test_whoever_distrusts_notes_reads_each_file_once(store, old, read):
    other = bytes(len(old.read_bytes()))
    before = DataDigests(Disk(store.root)).digest(old)
    note = next(store.root.glob("hashes/*.json"))
    old.write_bytes(other)
    age(old)
    known = json.loads(note.read_text())
    note.write_text(json.dumps({**known, "mark": list(mark(old))}))  # as if nothing had changed
    memory = DataDigests(Disk(store.root))
    assert memory.digest(old) == before
    memory.distrust()
    read.clear()
    found = {memory.digest(old), memory.digest(old)}
    assert found == {hashlib.sha256(other).hexdigest()}
    assert read == [old.name]


def test_whoever_distrusts_notes_keeps_none_of_their_facts(store, old):
    before = DataDigests(Disk(store.root))
    before.learn(old, mark(old), cuts={"lines, 1": [[0, 0]]})
    assert "cuts" in before.recall(old)
    before.distrust()
    before.digest(old)
    assert before.recall(old).keys() == {"path", "mark", "sha256"}
