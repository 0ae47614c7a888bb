"""A copy changes nothing in the store that it reads, and one bad artifact does not end it."""

from __future__ import annotations

import shutil

import pytest
from stores import tree

from maskpolicy.core.keys import digest
from maskpolicy.pipeline.store import manifest
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.pipeline.store.upkeep import copy

KEYS = [letter * 64 for letter in "abc"]


@pytest.fixture
def source(tmp_path):
    store = Store(tmp_path / "from")
    for key in KEYS:
        with store.write(key, {"kind": "x", "inputs": {}}) as out:
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


def test_a_link_is_no_file_of_an_artifact(source, target):
    path = source.path(KEYS[0]) / "file"
    path.unlink()
    path.symlink_to("/dev/zero")
    entry = ENTRY | {"size": path.lstat().st_size}
    of_stranger(source, KEYS[0], files=[entry])
    assert copy(source, target).damaged == KEYS[:1]
