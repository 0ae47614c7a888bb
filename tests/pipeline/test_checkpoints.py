"""Checkpoints are whole or not there, and the newest good one is found, also on another machine."""

from uuid import uuid4

import pytest
from stores import KEY, below, commit, flip, names, save

from maskpolicy.pipeline.store.opening import open_store


@pytest.fixture(params=["folder", "bucket"])
def place(request, tmp_path):
    return tmp_path / "store" if request.param == "folder" else f"memory://{uuid4().hex}"


@pytest.fixture
def store(place, tmp_path):
    return open_store(place, tmp_path / "cache")


@pytest.fixture
def fresh(place, tmp_path):
    """Return a function that opens the store as another machine does, with an empty cache."""
    return lambda: open_store(place, tmp_path / uuid4().hex)


def latest(store):
    """Return step and text of the newest checkpoint, or None."""
    newest = store.checkpoints(KEY).latest()
    return newest and (newest[0], (newest[1] / "state").read_text())


def damage(store, step, name="state"):
    """Damage a checkpoint where another machine reads it."""
    if store.mirror is None:
        flip(store.root / "checkpoints" / KEY / f"{step:012d}" / name)
        return
    bucket = store.mirror.bucket
    if name == "MANIFEST.json":
        bucket.write(f"checkpoints/{KEY}/{step:012d}.json", b"{")
    for each in below(bucket, f"checkpoints/{KEY}/files"):
        if name == "state" and bucket.read(each) == f"state {step}".encode():
            bucket.write(each, b"other")


def test_the_two_newest_are_kept_and_another_machine_resumes(store, fresh):
    assert latest(store) is None and store.checkpoints(KEY).steps() == []
    save(store, KEY, 1, 9, 10)
    for each in (store, fresh()):
        assert each.checkpoints(KEY).steps() == [9, 10]
        assert latest(each) == (10, "state 10")
    if store.mirror:
        assert len(below(store.mirror.bucket, f"checkpoints/{KEY}/files")) == 2
    other = fresh()
    commit(other)
    assert fresh().checkpoints(KEY).steps() == []
    assert names(other, "checkpoints", "temporary") == []


@pytest.mark.parametrize("name", ["state", "MANIFEST.json"])
def test_a_damaged_checkpoint_falls_back_and_does_not_stop_the_next_one(store, fresh, name):
    save(store, KEY, 1, 2)
    damage(store, 2, name)
    other = fresh()
    assert latest(other) == (1, "state 1")
    assert other.checkpoints(KEY).steps() == [1]
    save(other, KEY, 3)
    assert latest(fresh()) == (3, "state 3")
    damage(other, 1, name)
    damage(other, 3, name)
    assert latest(fresh()) is None


def test_a_damaged_copy_is_replaced_from_the_bucket(store):
    save(store, KEY, 1, 2)
    flip(store.root / "checkpoints" / KEY / f"{2:012d}" / "state")
    assert latest(store) == ((2, "state 2") if store.mirror else (1, "state 1"))


def test_a_checkpoint_with_the_manifest_of_another_step_is_not_used(tmp_path):
    store = open_store(tmp_path / "store")
    save(store, KEY, 1, 2)
    folder = store.root / "checkpoints" / KEY
    (folder / f"{2:012d}").rename(folder / f"{3:012d}")
    assert latest(store) == (1, "state 1")
    assert len(names(store, "quarantine")) == 1


def test_checkpoints_of_two_hosts_do_not_stop_each_other(tmp_path, monkeypatch):
    """As when both compute one stage, because their file system does not share locks."""
    one, two = (open_store(tmp_path / "store").checkpoints(KEY) for _ in range(2))

    def at_once(to):
        two.save(2, lambda there: (there / "state").write_text("state 2"))
        (to / "state").write_text("state 2")

    one.save(2, at_once)
    monkeypatch.setattr(one, "clear", lambda name: None)  # the other one comes after it
    one.save(2, at_once)
    monkeypatch.undo()
    assert one.steps() == two.steps() == [2]
    two.clear()
    one.clear()
    one._disk.discard(KEY, tmp_path / "store" / "checkpoints" / KEY)
    assert one.latest() is None


def test_tidy_removes_the_checkpoints_of_a_committed_stage(store, fresh):
    commit(store)
    save(store, KEY, 1)
    fresh().tidy(KEY)
    assert fresh().checkpoints(KEY).steps() == []
