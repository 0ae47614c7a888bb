"""Digests of data files are remembered while size, times and inode stay the same."""

from __future__ import annotations

import hashlib
import json
import os
import time

import pytest

from maskpolicy.core.errors import DataError
from maskpolicy.pipeline.store import data_digests
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.pipeline.store.data_digests import DataDigests, mark
from maskpolicy.pipeline.store.disk import Disk
from maskpolicy.pipeline.store.upkeep import prune

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
    with pytest.raises(DataError, match=r"nowhere\.txt: no such file"):
        store.hash_file(tmp_path / "nowhere.txt")
    assert store.hash_file(old) == store.hash_file(old) == ONE
    assert not store.root.exists()  # it is made by what is computed, not by what is looked at
    with store.write("0" * 64, {}):
        pass
    assert Store(store.root).hash_file(old) == ONE
    assert read == ["data.jsonl"]


def replace_it(path):
    other = path.parent / "other"
    other.write_bytes(b"two")
    os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    other.replace(path)


def write_over(path):
    before = path.stat()
    with path.open("r+b") as file:  # as an archive is unpacked over it
        file.write(b"two")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    for name in ("st_size", "st_mtime_ns", "st_ino"):
        assert getattr(path.stat(), name) == getattr(before, name)


@pytest.mark.parametrize("change", [lambda path: path.write_bytes(b"two"), replace_it, write_over])
def test_a_changed_file_is_read_again(memory, old, change):
    memory.digest(old)
    change(old)
    assert memory.digest(old) == TWO


def test_a_file_written_just_now_is_not_remembered(tmp_path, memory, read):
    path = tmp_path / "new"
    path.write_bytes(b"one")
    assert memory.digest(path) == memory.digest(path) == ONE
    assert read == ["new", "new"]


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


def test_facts_stay_together_unless_the_file_changed_while_it_was_read(memory, old):
    before = mark(old)
    memory.digest(old)
    memory.learn(old, before, cuts=[1, 2])
    assert memory.recall(old).items() >= {"sha256": ONE}.items()
    assert memory.recall(old)["cuts"] == [1, 2]
    old.write_bytes(b"two")
    age(old)
    memory.learn(old, before, sha256=ONE)
    assert memory.recall(old) == {}
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


def test_whoever_distrusts_notes_reads_each_file_once(store, old, read):
    other = bytes(len(old.read_bytes()))
    before = DataDigests(Disk(store.root)).digest(old)
    note = next(store.root.glob("hashes/*.json"))
    old.write_bytes(other)
    age(old)
    known = json.loads(note.read_text())
    unchanged = {**known, "cuts": {}, "mark": list(mark(old))}  # as if the file had not changed
    note.write_text(json.dumps(unchanged))
    memory = DataDigests(Disk(store.root))
    assert memory.digest(old) == before
    memory.distrust()
    read.clear()
    found = {memory.digest(old), memory.digest(old)}
    assert found == {hashlib.sha256(other).hexdigest()}
    assert "cuts" not in memory.recall(old)
    assert read == [old.name]
