"""A copy changes nothing in the store that it reads, and one bad artifact does not end it."""

from __future__ import annotations

import shutil

import pytest
from stores import KEY, OTHER, RECORDS, THIRD, tree

from maskpolicy.core.keys import digest
from maskpolicy.pipeline.store import manifest
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.pipeline.store.upkeep import copy

KEYS = [KEY, OTHER, THIRD]


@pytest.fixture
def source(tmp_path):
    store = Store(tmp_path / "from")
    for key in KEYS:
        with store.write(key, RECORDS[key]) as out:
            (out / "file").write_text(f"of {key}")
    return store


@pytest.fixture
def target(tmp_path):
    return Store(tmp_path / "to")


def test_a_damaged_artifact_stays_and_the_others_are_copied(source, target, monkeypatch):
    (source.path(KEYS[0]) / "file").write_text(f"no {KEYS[0]}")
    before, read = tree(source), Store(source.root)
    monkeypatch.setattr(read, "lock", None)  # nothing is locked there
    copied = copy(read, target)
    assert (copied.damaged, copied.new) == (KEYS[:1], KEYS[1:])
    assert tree(source) == before


def test_an_artifact_that_is_dropped_meanwhile_is_passed_over(source, target, monkeypatch):
    copyfile = shutil.copyfile

    def drop_first(one, two):
        if KEYS[1] in str(one):
            Store(source.root).drop(KEYS[1])
        return copyfile(one, two)

    monkeypatch.setattr(shutil, "copyfile", drop_first)
    copied = copy(source, target)
    assert copied.new == [KEYS[0], KEYS[2]]
    assert copied.damaged == []
    assert target.committed() == {KEYS[0], KEYS[2]}


def test_a_copy_that_lacks_a_file_is_replaced(source, target):
    copy(source, target)
    (target.path(KEYS[0]) / "file").unlink()
    assert copy(source, Store(target.root)).new == KEYS[:1]
    assert all(Store(target.root).verify(key) is None for key in KEYS)


def of_stranger(store, key, **facts):
    """Change facts of a manifest, or leave them out (None), so that its own digest is right."""
    path = store.path(key) / manifest.NAME
    changed = manifest.parse(path) | facts
    del changed["sha256"]
    changed = {name: value for name, value in changed.items() if value is not None}
    manifest.write_json(path, changed | {"sha256": digest(changed)})


OUTSIDE = ["../../../owned", "/etc/hostname", "a\\b", "..", ".", "", "a/../b", "a\0", manifest.NAME]
ENTRY = {"path": "file", "size": 3, "sha256": "0" * 64}


@pytest.mark.parametrize(
    "facts",
    [
        *({name: None} for name in ("files", "record", "machine", "seconds")),
        *({name: 7} for name in ("files", "record", "machine")),
        {"seconds": "long"},
        {"files": [[]]},
        *({"files": [ENTRY | {"path": path}]} for path in OUTSIDE),
        *({"files": [ENTRY | {name: [1]}]} for name in ENTRY),
        {"files": [ENTRY | {"size": -1}]},
        {"files": [ENTRY | {"sha256": "../" * 20}]},
    ],
    ids=str,
)
def test_the_manifest_of_a_stranger_is_checked(source, target, tmp_path, facts):
    (tmp_path / "owned").write_text("outside")
    of_stranger(source, KEYS[0], **facts)
    copied = copy(source, target)
    assert (copied.damaged, copied.new) == (KEYS[:1], KEYS[1:])
    assert source.get(KEYS[0]) is None


@pytest.mark.parametrize(
    "change",
    [{"kind": "other"}, {"version": 2}, {"params": {"lr": 1}}, {"inputs": {"a": KEYS[1]}}, None],
)
def test_an_artifact_under_the_key_of_another_record_is_damaged(source, target, change):
    record = {} if change is None else RECORDS[KEYS[0]] | change
    of_stranger(source, KEYS[0], record=record)
    assert "belongs elsewhere: its key is not that of its record" in source.verify(KEYS[0])
    copied = copy(source, target)
    assert (copied.damaged, copied.new) == (KEYS[:1], KEYS[1:])
    assert (source.get(KEYS[0]) is None) == bool(record)  # it is computed again


def test_findings_are_compared_with_what_their_key_is_made_of(source, target):
    record = {"kind": manifest.FINDINGS, "version": 1, "params": {}, "inputs": {}}
    of_stranger(source, KEYS[0], record=record)  # as earlier versions stored them
    of_stranger(source, KEYS[1], record=record | {manifest.KEYED: RECORDS[KEYS[1]]})
    of_stranger(source, KEYS[2], record=record | {manifest.KEYED: RECORDS[KEYS[1]]})
    assert [source.verify(key) is None for key in KEYS] == [True, True, False]
    assert copy(source, target).damaged == KEYS[2:]


def test_a_link_is_no_file_of_an_artifact(source, target):
    path = source.path(KEYS[0]) / "file"
    path.unlink()
    path.symlink_to("/dev/zero")
    entry = ENTRY | {"size": path.lstat().st_size}
    of_stranger(source, KEYS[0], files=[entry])
    assert copy(source, target).damaged == KEYS[:1]
