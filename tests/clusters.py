"""An experiment that tells what it computes, and commands that run it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import raylets

PATIENCE = 600.0  # seconds until a moment that never comes fails

PLUGIN = (
    raylets.NOTING
    + '''
import logging
from dataclasses import dataclass

import numpy as np

from maskpolicy import policy


@policy("noted")
@dataclass(frozen=True)
class Noted:
    """Masks the first token; its annotation says who computes it."""

    def annotate(self, passages, fitted=None):
        logging.getLogger("maskpolicy.noted").warning("annotates %d passages", len(passages))
        return {"first": [np.array([[0, 1]], dtype=np.int32) for _ in passages]}

    def select(self, passage, rng):
        return passage.columns["first"]
'''
)
YAML = """
model: mini
corpus: world
policies: [none, noted]
tasks: [zsre]
plugins: [noted.py]
world: {people: 8, general_people: 6}
general: {steps: 4, warmup: 1, batch_size: 4, precision: fp32}
intermediate: {steps: 6, warmup: 1, batch_size: 8, precision: fp32, micro_tokens: 512}
finetune: {steps: 4, warmup: 1, batch_size: 4, precision: fp32}
"""


def write_experiment(folder: Path) -> Path:
    """Write the experiment and its plugin to a folder; returns its file.

    The names of plugins end in the folder's, so that several of them fit into one process.
    """
    own = PLUGIN.replace('"noted"', f'"noted-{folder.name}"')
    (folder / "noted.py").write_text(own.replace('"unused"', f'"unused-{folder.name}"'))
    file = folder / "it.yaml"
    file.write_text(YAML.replace("[none, noted]", f"[none, noted-{folder.name}]"))
    return file


def start(file: Path, out: Path, *words: str, **variables: str) -> subprocess.Popen[str]:
    """Start `maskpolicy run` with a store and notes below `out`."""
    (out / "notes").mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "maskpolicy", "run", str(file), "--out", str(out / "out")]
    return subprocess.Popen(
        [*command, "--store", str(out / "store"), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **variables},
    )


def finish(running: subprocess.Popen[str], codes: tuple[int, ...] = (0,)) -> str:
    """Wait for a command, and return what it said."""
    try:
        said, _ = running.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        running.send_signal(signal.SIGKILL)
        raise AssertionError(f"it hangs: {running.communicate()[0]}") from None
    assert running.returncode in codes, said
    return said


def until(happened: Callable[[], Any], running: subprocess.Popen[str] | None = None) -> Any:
    """Wait for a moment and return what `happened` returns then."""
    last = time.monotonic() + PATIENCE
    while not (found := happened()):
        assert running is None or running.poll() is None, running.communicate()[0]
        assert time.monotonic() < last
        time.sleep(0.05)
    return found
