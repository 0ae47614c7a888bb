"""A training in two processes, whoever starts it: the loss of one process, within rounding."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from benchmarks import raylets

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


def command(folder: Path, name: str, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "it.yaml").write_text(YAML)
    places = ["--store", str(folder / "store")]
    places += ["--out", str(folder / "out")] if name == "run" else []
    return subprocess.run(
        [sys.executable, "-m", "maskpolicy", name, str(folder / "it.yaml"), *words, *places],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
    )


def intermediate(folder: Path) -> tuple[Path, dict]:
    """Return the folder of the intermediate stage's artifact, and its record."""
    for path in (folder / "store" / "artifacts").glob("*/MANIFEST.json"):
        record = json.loads(path.read_text())["record"]
        if record["kind"] == "intermediate":
            return path.parent, record
    raise AssertionError(folder)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The same experiment by one process, by `run` in two, and by `work` in two."""
    folders = {}
    for name, words in {"one": ("run",), "run": ("run", TWO), "work": ("work", TWO)}.items():
        folders[name] = tmp_path_factory.mktemp(name)
        done = command(folders[name], *words)
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
    return folders


@pytest.mark.slow
def test_two_processes_reach_the_loss_of_one(trained):
    (one, alone), (two, together) = intermediate(trained["one"]), intermediate(trained["run"])
    assert one.name == two.name  # its key
    assert (alone["local"], together["local"]) == ({}, {"processes": 2})
    assert together["facts"]["loss"] == pytest.approx(alone["facts"]["loss"], rel=1e-4)
    assert (one / "work.json").read_text() == (two / "work.json").read_text()
    weights, same = (load_file(each / "model.safetensors") for each in (one, two))
    for name, weight in weights.items():
        assert abs(weight - same[name]).mean() < 1e-4


@pytest.mark.slow
def test_a_worker_computes_what_run_computes(trained):
    found = {name: raylets.artifacts(trained[name] / "store") for name in ("run", "work")}
    assert len(found["run"]) > 12
    assert found["run"] == found["work"]


@pytest.mark.skipif(
    any(Path("/dev").glob("nvidia[0-9]*")), reason="the machine may have so many GPUs"
)
def test_gpus_that_are_not_there_are_one_line_before_any_work(tmp_path):
    for name in ("run", "work"):
        done = command(tmp_path, name, "resources.intermediate.gpus=64")
        assert done.returncode == 2
        assert "resources.intermediate: takes 64 GPUs, and this machine has 0" in done.stderr
        assert not (tmp_path / "store" / "artifacts").exists()
