"""A holder that loses its key between the check of its claim and the change changes nothing."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from maskpolicy.errors import ClaimLost
from maskpolicy.store.artifacts import Store

KEY = "a" * 64


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@pytest.fixture
def overtaken(store, monkeypatch):
    """Let another holder take the key before the first rename of the store; returns that one."""
    other, rename = Store(store.root), store._disk.place
    with ExitStack() as claims:

        def place(source, target):
            (claim,) = (store.root / "locks" / KEY).iterdir()
            claim.unlink()  # as after a lease without a sign of life
            claims.enter_context(other.lock(KEY))
            monkeypatch.undo()
            rename(source, target)

        monkeypatch.setattr(store._disk, "place", place)
        yield other


def fill(folder):
    (folder / "state").write_text("late")


def test_no_artifact_is_committed(store, overtaken):
    with pytest.raises(ClaimLost), store.write(KEY, {}) as out:
        fill(out)
    assert overtaken.get(KEY) is None
    with overtaken.write(KEY, {}) as out:
        (out / "state").write_text("in time")
    assert (overtaken.path(KEY) / "state").read_text() == "in time"


def test_no_checkpoint_is_saved(store, overtaken):
    with pytest.raises(ClaimLost), store.lock(KEY):
        store.checkpoints(KEY).save(1, fill)
    assert overtaken.checkpoints(KEY).steps() == []
    overtaken.checkpoints(KEY).save(1, lambda to: (to / "state").write_text("in time"))
    assert (overtaken.checkpoints(KEY).latest()[1] / "state").read_text() == "in time"


def test_no_checkpoint_is_removed(store, request):
    with store.lock(KEY):
        store.checkpoints(KEY).save(1, fill)
        other = request.getfixturevalue("overtaken")
        with pytest.raises(ClaimLost):
            store.checkpoints(KEY).clear()
    assert other.checkpoints(KEY).latest()[0] == 1


def test_no_artifact_is_dropped(store, request):
    with store.write(KEY, {}) as out:
        fill(out)
    other = request.getfixturevalue("overtaken")
    assert not store.drop(KEY)
    assert other.get(KEY) is not None
    assert list((store.root / "temporary").iterdir()) == []


def test_no_artifact_is_quarantined(store, request):
    with store.write(KEY, {}) as out:
        fill(out)
    (store.path(KEY) / "state").write_text("lost")
    other = request.getfixturevalue("overtaken")
    with pytest.raises(ClaimLost):
        store.get(KEY)
    assert store.path(KEY).exists()
    assert other.get(KEY) is None  # whose work it is now
    assert len(list((store.root / "quarantine").iterdir())) == 1
