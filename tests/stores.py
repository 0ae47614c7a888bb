"""Commits, interruptions, damage, and processes of the tiny graph, for tests of stores."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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


def start(script, *words, **environment):
    """Start tiny.py, tiny_bucket.py, or the text of a script in a new process."""
    command = ["-c", script] if "\n" in script else [TESTS / script]
    path = os.pathsep.join((str(TESTS.parent), str(TESTS)))
    return subprocess.Popen(
        [sys.executable, *command, *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": path} | environment,
    )


def ended(process):
    """Wait for a process; return its exit code and its lines on stderr."""
    _, errors = process.communicate()
    return process.returncode, errors
