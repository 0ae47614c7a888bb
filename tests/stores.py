"""Commits, interruptions, damage, and processes of the tiny graph, for tests of stores."""

import gc
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

import pytest
from clusters import PATIENCE

from maskpolicy.core.keys import digest
from maskpolicy.pipeline.graph.execution import execute

TESTS = Path(__file__).parent
_RECORDS = [
    {"kind": "train", "version": 1, "params": {"seed": seed}, "inputs": {}} for seed in range(4)
]
RECORDS = {digest(record): record for record in _RECORDS}
KEY, OTHER, THIRD, FOURTH = sorted(RECORDS)


def commit(store, key=KEY, text="content", meanwhile=None, **record):
    """Commit deep/file.txt with a text, and a file that is the same in all artifacts.

    `meanwhile` is called before the commit, when both are written.
    """
    with store.write(key, record or RECORDS.get(key, {})) as out:
        (out / "deep").mkdir()
        (out / "deep" / "file.txt").write_text(text)
        (out / "same.txt").write_text("the same in all artifacts")
        if meanwhile is not None:
            meanwhile()
    return store.path(key)


def text_of(store, key=KEY):
    """Return the text of an artifact, or None if the store lacks it."""
    artifact = store.get(key)
    return artifact and (artifact.path / "deep" / "file.txt").read_text()


def save(store, key=KEY, *steps):
    """Leave checkpoints, as a process that ended does."""
    for step in steps or (1,):
        content = f"state {step}"
        store.checkpoints(key).save(step, lambda to, c=content: (to / "state").write_text(c))


def compute(wanted, store, **more):
    """Compute stages, which all stay in the store, without an error."""
    outcomes = execute(wanted, store, targets=wanted, **more)
    assert [outcome.error for outcome in outcomes.values() if outcome.error] == []


def interrupted(store, stage, step):
    """Compute a stage, and press control-C at one of its steps."""

    def listen(event):
        if event.stage.key == stage.key and event.done == step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute([stage], store, listen)


def flip(path):
    """Flip one bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def names(store, *folders):
    """Return the names in sub-folders of a store."""
    return [path.name for folder in folders for path in sorted((store.root / folder).glob("*"))]


def tree(store):
    """Return all paths of a store with their times of change."""
    return {path: path.stat().st_mtime_ns for path in store.root.rglob("*")}


def below(bucket, prefix=""):
    """Return the names of the objects of a bucket below a prefix."""
    return [entry.name for entry in bucket.entries(prefix)]


def killed_often(script, command, *words):
    """Give tiny.py or tiny_bucket.py a folder in memory; return how many kills it made."""
    fast = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    path = os.pathsep.join((str(TESTS.parent), str(TESTS)))
    with tempfile.TemporaryDirectory(dir=fast) as folder:
        done = subprocess.run(
            [sys.executable, TESTS / script, command, folder, *words],
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONPATH": path},
        )
    assert done.stderr == ""
    return int(done.stdout)


@contextmanager
def beside(work, *given, **named):
    """Call a function in a forked process, which is killed if the block ends before it."""
    other = get_context("fork").Process(target=work, args=given, kwargs=named)
    gc.freeze()  # what this process holds of libraries with threads is not for a fork to destroy
    other.start()
    gc.unfreeze()
    try:
        yield other
    finally:
        other.kill()
        other.join(PATIENCE)


@contextmanager
def held(enter):
    """Let a forked process enter what a function returns, and kill it at the end of the block."""
    ready = get_context("fork").Event()

    def hold():
        with enter():
            ready.set()
            signal.pause()

    with beside(hold):
        assert ready.wait(PATIENCE)
        yield
