"""Digests of data files and of artifacts are kept while size, times and inode stay the same."""

import hashlib
import json
import os
import time

import pytest
from stores import KEY, OTHER, RECORDS

from maskpolicy.pipeline.store import digests
from maskpolicy.pipeline.store.artifacts import Store

ONE, TWO = (hashlib.sha256(content).hexdigest() for content in (b"one", b"two"))


def written(path, content=b"one"):
    """Write a file as if that were an hour ago."""
    path.write_bytes(content)
    then = time.time_ns() - 3_600_000_000_000
    os.utime(path, ns=(then, then))
    return path


@pytest.fixture
def old(tmp_path):
    return written(tmp_path / "data.jsonl")


@pytest.fixture
def store(tmp_path):
    """Return a store that exists."""
    made = Store(tmp_path / "store")
    with made.write("0" * 64, {}):
        pass
    return made


@pytest.fixture
def read(monkeypatch):
    """Return the list of the files that are hashed from now on."""
    paths = []

    def recorded(path):
        paths.append(path.name)
        return hashlib.sha256(path.read_bytes()).hexdigest()

    monkeypatch.setattr(digests, "sha256", recorded)
    return paths


def commit(store, key=KEY):
    """Commit an artifact with a large file, written an hour ago, and a small one."""
    with store.write(key, RECORDS[key]) as out:
        (out / "deep").mkdir()
        written(out / "deep" / "large", b"x" * (2 << 20))
        (out / "small").write_bytes(b"small")
    return store.path(key)


def notes(store):
    return list((store.root / "hashes").iterdir())


def test_a_data_file_is_read_once_by_all_processes(store, old, read):
    assert store.hash_file(str(old)) == store.hash_file(old) == ONE
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
def test_a_changed_file_is_read_again(store, old, change):
    store.hash_file(old)
    change(old)
    assert store.hash_file(old) == Store(store.root).hash_file(old) == TWO


def test_a_file_written_just_now_is_not_remembered(tmp_path, store, read):
    (tmp_path / "new").write_bytes(b"one")
    assert store.hash_file(tmp_path / "new") == store.hash_file(tmp_path / "new") == ONE
    assert read == ["new", "new"]


def escaped(path):
    return str(path).replace(" ", "\\040")


def mounted(tmp_path, monkeypatch, kind):
    """Let the file system of the tests be of another kind."""
    device = tmp_path.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    lines = [
        "1 1 0:1 / /proc rw - proc proc rw",
        f"2 1 {number} /one {escaped(tmp_path)} rw shared:1 - {kind} /dev/x ro",
        f"3 1 0:99 / {tmp_path}/data rw - ext4 /dev/y rw",
    ]
    (tmp_path / "mountinfo").write_text("\n".join(lines))
    monkeypatch.setattr(digests, "MOUNTS", tmp_path / "mountinfo")


@pytest.mark.parametrize("kind", ["squashfs", "exfat", "fuse.squashfuse", "9p", ""])
def test_no_note_is_kept_where_a_write_may_leave_the_ctime(store, old, read, monkeypatch, kind):
    if kind:
        mounted(old.parent, monkeypatch, kind)
    else:
        monkeypatch.setattr(digests, "MOUNTS", old.parent / "none")
        monkeypatch.setattr("sys.platform", "darwin")
    assert store.hash_file(old) == Store(store.root).hash_file(old) == store.hash_file(old) == ONE
    assert read == [old.name] * 3
    assert not (store.root / "hashes").exists()


@pytest.mark.parametrize(
    ("kind", "mtime", "ctime", "is_fixed"),
    [
        ("overlay", 10**18 + 1, 10**18 + 1, True),
        ("overlay", 10**18, 10**18 + 1, False),
        ("nfs4", 10**18, 10**18, True),  # of an image that a server exports
        ("nfs4", 10**18 + 1, 10**18 + 1, False),  # written by a program
        ("ext3", 10**18, 10**18, False),  # in whole seconds
    ],
)
def test_fixed_times_of_an_image_are_told_from_those_of_a_write(kind, mtime, ctime, is_fixed):
    mark = digests.Mark(3, mtime, ctime, 1, 0, f"{kind} server:/x / /x")
    assert mark.may_hide_a_write() == is_fixed


def test_a_digest_is_that_of_a_device_and_a_mount(store, old, read, tmp_path, monkeypatch):
    (tmp_path / "a disk").mkdir()
    tmp_path = tmp_path / "a disk"
    old = old.rename(tmp_path / old.name)
    before = digests.mark(old)
    assert before.device == (old.stat().st_dev if os.major(old.stat().st_dev) else 0)
    store.hash_file(old)
    mounted(tmp_path, monkeypatch, "ext4")
    mark = digests.mark(old)
    assert mark == (*before[:5], f"ext4 /dev/x /one {escaped(tmp_path)}")
    assert store.hash_file(old) == ONE
    assert read == [old.name] * 2


def test_the_pass_that_finds_cuts_also_hashes_and_is_made_once(store, old, read, monkeypatch):
    written(old, b"one\ntwo\nthree\n")
    cuts = store.cut_file(old, 5, "line")
    assert cuts == [(8, 2)]
    assert store.cut_file(old, 1, "line") == [(4, 1), (8, 2)]
    monkeypatch.setattr(digests, "scan", None)
    assert Store(store.root).cut_file(old, 5, "line") == cuts
    assert Store(store.root).hash_file(old) == hashlib.sha256(old.read_bytes()).hexdigest()
    assert read == []
    monkeypatch.undo()
    old.write_text("1\n2\n3\n4\n")
    assert store.cut_file(old, 5, "line") == [(6, 3)]


def test_whoever_distrusts_notes_reads_each_file_once(store, old, read):
    before = store.hash_file(old)
    (note,) = notes(store)
    written(old, b"two")
    mark = list(digests.mark(old))
    note.write_text(json.dumps({**json.loads(note.read_text()), "mark": mark}))
    fresh = Store(store.root)
    assert fresh.hash_file(old) == before  # as if the file had not changed
    fresh.digests.distrust()
    read.clear()
    assert fresh.hash_file(old) == fresh.hash_file(old) == TWO
    assert read == [old.name]


def test_other_processes_read_the_small_files_of_an_artifact_alone(store, read):
    commit(store)
    assert store.get(KEY) is not None
    assert read == []  # this process has written them
    assert Store(store.root).get(KEY) is not None
    assert read == ["small"]


def test_verifying_ignores_what_is_remembered(store, read):
    path = commit(store)
    assert store.verify(KEY) is None
    read.clear()
    assert Store(store.root).verify(KEY) is None
    assert sorted(read) == ["large", "small"]
    (note,) = notes(store)
    written(path / "deep" / "large", b"y" * (2 << 20))
    mark = list(digests.mark(path / "deep" / "large"))
    note.write_text(json.dumps({**json.loads(note.read_text()), "mark": mark}))
    fresh = Store(store.root)
    assert fresh.get(KEY) is not None  # as the note says that it was verified
    assert "large" in fresh.verify(KEY)
    assert path.exists()
    assert fresh.get(KEY) is None
    assert store.verify(OTHER) is None  # removed since it was listed, not damaged


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"mark": 3, "sha256": "x"}'])
def test_a_broken_note_only_costs_time(store, old, read, content):
    commit(store)
    store.hash_file(old)
    for note in notes(store):
        note.write_text(content)
    read.clear()
    for _ in range(2):
        fresh = Store(store.root)
        assert fresh.get(KEY) is not None
        assert fresh.hash_file(old) == ONE
    assert sorted(read) == ["data.jsonl", "large", "small", "small"]


def test_links_to_the_file_of_an_artifact_are_compared_too(store):
    shard = commit(store)
    with store.write(OTHER, {}) as out:
        (out / "merged").hardlink_to(shard / "deep" / "large")
    store.drop(KEY)
    assert Store(store.root).get(OTHER) is not None
    with (store.path(OTHER) / "merged").open("r+b") as file:
        file.write(b"y")
    assert Store(store.root).get(OTHER) is None
