"""Digests of files are remembered while size, time and inode stay the same."""

from __future__ import annotations

import hashlib
import os
import time

import pytest

from maskpolicy.errors import DataError
from maskpolicy.store.artifacts import Store
from maskpolicy.store.hashes import Remembered, Verified


@pytest.fixture
def old(tmp_path):
    """Return a file that was written an hour ago."""
    path = tmp_path / "data.jsonl"
    path.write_bytes(b"one")
    age(path)
    return path


def age(path):
    """Put the time of change an hour back."""
    then = time.time_ns() - 3_600_000_000_000
    os.utime(path, ns=(then, then))


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def swap_unseen(path, content: bytes):
    """Change the bytes of a file and nothing by which it is remembered."""
    before = path.stat()
    with path.open("r+b") as file:
        file.write(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_digest_is_remembered_between_processes(tmp_path, old):
    store = Store(tmp_path / "store")
    assert store.hash_file(old) == digest(b"one")
    assert not store.root.exists()  # it is made by what is computed, not by what is looked at
    with store.write("0" * 64, {}):
        pass
    swap_unseen(old, b"two")
    assert store.hash_file(old) == digest(b"one")
    assert Store(tmp_path / "store").hash_file(old) == digest(b"one")


def test_a_changed_file_is_read_again(tmp_path, old):
    memory = Remembered(tmp_path / "hashes.sqlite")
    memory.digest(old)
    old.write_bytes(b"two")
    assert memory.digest(old) == digest(b"two")


def test_another_file_of_the_same_size_and_time_is_read(tmp_path, old):
    memory = Remembered(tmp_path / "hashes.sqlite")
    memory.digest(old)
    other = tmp_path / "other"
    other.write_bytes(b"two")
    os.utime(other, ns=(old.stat().st_atime_ns, old.stat().st_mtime_ns))
    other.replace(old)
    assert memory.digest(old) == digest(b"two")


def test_a_digest_is_remembered_by_a_process_before_there_is_a_store(tmp_path, old):
    memory = Remembered(tmp_path / "none" / "hashes.sqlite")
    memory.digest(old)
    swap_unseen(old, b"two")
    assert memory.digest(old) == digest(b"one")
    assert not (tmp_path / "none").exists()


def test_a_file_written_just_now_is_not_remembered(tmp_path):
    memory = Remembered(tmp_path / "hashes.sqlite")
    path = tmp_path / "new"
    path.write_bytes(b"one")
    memory.digest(path)
    swap_unseen(path, b"two")
    assert memory.digest(path) == digest(b"two")


def test_a_broken_memory_only_costs_time(tmp_path, old):
    (tmp_path / "hashes.sqlite").write_bytes(b"no database" * 1000)
    assert Remembered(tmp_path / "hashes.sqlite").digest(old) == digest(b"one")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.txt: no such file"):
        Store(tmp_path / "store").hash_file(tmp_path / "nowhere.txt")


def test_a_large_file_is_read_once_per_process(tmp_path, old):
    memory = Verified()
    memory.digest(old)
    swap_unseen(old, b"two")
    assert memory.digest(old) == digest(b"one")
    assert Verified().digest(old) == digest(b"two")
