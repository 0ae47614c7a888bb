"""What a running process needs is not pruned."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
import tiny

from maskpolicy.store.artifacts import Store
from maskpolicy.store.pruning import prune

FIRST, SECOND, OTHER = "a" * 64, "b" * 64, "c" * 64


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def commit(store, key, **inputs):
    with store.write(key, {"kind": "any", "inputs": inputs}) as out:
        (out / "file.txt").write_text("content")


def test_what_a_run_needs_stays_with_all_that_it_was_made_from(store):
    commit(store, FIRST)
    commit(store, SECOND, x=FIRST)
    commit(store, OTHER)
    with store.using([SECOND]):
        prune(Store(store.root), older=0)
        assert store.committed() == {FIRST, SECOND}
    assert store.in_use() == set()
    prune(Store(store.root), older=0)
    assert store.committed() == set()


def test_a_checkpoint_that_a_run_will_resume_from_stays(store):
    with store.lock(FIRST):
        store.checkpoints(FIRST).save(1, lambda to: (to / "state").write_text("1"))
    with store.using([FIRST]):
        prune(Store(store.root), older=0)
        assert store.checkpoints(FIRST).steps() == [1]
    prune(Store(store.root), older=0)
    assert store.checkpoints(FIRST).steps() == []


HOLD = """
import sys, time
from maskpolicy.store.artifacts import Store
with Store(sys.argv[1]).using(["a" * 64]):
    print("ready", flush=True)
    time.sleep(600)
"""


def test_a_dead_process_keeps_nothing(store):
    commit(store, FIRST)
    command = [sys.executable, "-c", HOLD, str(store.root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout.readline() == "ready\n"
        prune(store, older=0)
        assert store.committed() == {FIRST}
        running.kill()
    prune(store, older=0)
    assert store.committed() == set()
    assert list(store.root.glob("in_use/*")) == list(store.root.glob("locks/*")) == []


def test_a_store_that_cannot_be_written_is_used_nevertheless(store, monkeypatch):
    def refuse(*words, **named):
        raise PermissionError(13, "Permission denied")

    commit(store, FIRST)
    monkeypatch.setattr(Path, "mkdir", refuse)
    with store.using([FIRST]):
        assert store.get(FIRST) is not None


@pytest.mark.slow
def test_a_run_beside_prune_computes_each_stage_once(tmp_path):
    """Also stages that were finished before, and that --older would take at any time."""
    root, count = tmp_path / "store", tmp_path / "count"
    command = [sys.executable, tiny.__file__, "run", str(root), str(count), "0.05"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout.readline() == "ready\n"
        pruned = 0
        while running.poll() is None:
            prune(Store(root), older=0)
            pruned += 1
            time.sleep(0.01)
    assert running.returncode == 0
    assert pruned > 5
    assert sorted(count.read_text().split()) == ["a", "b", "c", "d"]
