"""A training in two processes, whoever starts it: the loss of one process, within rounding."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.numpy import load_file

YAML = """
model: mini
corpus: world
policies: [none, random]
tasks: [zsre]
world: {people: 8, general_people: 6}
general: {steps: 2, warmup: 1, batch_size: 4, precision: fp32}
intermediate: {steps: 12, warmup: 1, batch_size: 8, precision: fp32, micro_tokens: 512, dropout: 0}
finetune: {steps: 2, warmup: 1, batch_size: 4, precision: fp32}
"""
TWO = "resources.intermediate.processes=2"
PATIENCE = 300  # seconds until a command that hangs fails the test


def run(
    folder: Path, *words: str, text: str = YAML, **variables: str
) -> subprocess.CompletedProcess[str]:
    (folder / "it.yaml").write_text(text)
    places = ["--store", str(folder / "store"), "--out", str(folder / "out")]
    return subprocess.run(
        [sys.executable, "-m", "maskpolicy", "run", str(folder / "it.yaml"), *words, *places],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **variables},
    )


def intermediate(folder: Path) -> tuple[Path, dict]:
    """Return the folder of the intermediate stage's artifact, and its record."""
    for path in (folder / "store" / "artifacts").glob("*/MANIFEST.json"):
        record = json.loads(path.read_text())["record"]
        if record["kind"] == "intermediate":
            return path.parent, record
    raise AssertionError(folder)


@pytest.mark.slow
def test_two_processes_reach_the_loss_of_one(tmp_path):
    folders = {}
    words = {"one": (), "two": (TWO, "--jobs", "2")}
    for name in words:
        folders[name] = tmp_path / name
        folders[name].mkdir()
        done = run(folders[name], *words[name])
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
    (one, alone), (two, together) = (intermediate(folders[name]) for name in ("one", "two"))
    assert one.name == two.name  # its key
    assert (alone["local"], together["local"]) == ({}, {"processes": 2})
    assert together["facts"]["loss"] == pytest.approx(alone["facts"]["loss"], rel=1e-4)
    assert (one / "work.json").read_text() == (two / "work.json").read_text()
    weights, same = (load_file(each / "model.safetensors") for each in (one, two))
    for name, weight in weights.items():
        assert abs(weight - same[name]).mean() < 1e-4
