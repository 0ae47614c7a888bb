"""kill -9 in the middle of the whole pipeline, and the same command: the same bytes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from maskpolicy import config, graph, stages
from maskpolicy.store import Store

YAML = """
model: mini
corpus: world
policies: [none, salient-span]
tasks: [zsre]
keep: [finetune]
world: {people: 20, general_people: 6}
general: {steps: 20, warmup: 5, passages: 4, dropout: 0.1, checkpoint_every: 0.01}
intermediate: {steps: 20, warmup: 5, passages: 4, dropout: 0.1, checkpoint_every: 0.01}
finetune: {steps: 10, warmup: 5, passages: 4, eval_every: 5, checkpoint_every: 0.01}
"""
PATIENCE = 120  # seconds until a moment that never comes fails the test


def start(folder: Path, name: str) -> subprocess.Popen[str]:
    """Start `maskpolicy run` on a store and an output folder of that name."""
    words = [folder / "it.yaml", "--store", folder / name / "store", "--out", folder / name / "out"]
    return subprocess.Popen(
        [sys.executable, "-m", "maskpolicy", "run", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
    )


def finish(running: subprocess.Popen[str]) -> None:
    said, _ = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0, said


def killed(folder: Path, pattern: str) -> None:
    """Run the command, and kill it as soon as the store holds what the pattern says."""
    store = folder / "killed" / "store"
    running = start(folder, "killed")
    until = time.monotonic() + PATIENCE
    while not list(store.glob(pattern)):
        assert running.poll() is None, f"over before {pattern}: {running.communicate()[0]}"
        assert time.monotonic() < until, pattern
        time.sleep(0.002)
    running.send_signal(signal.SIGKILL)
    running.communicate(timeout=PATIENCE)
    assert running.returncode == -signal.SIGKILL


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Run one experiment untouched, and once killed in three stages; returns folder and graph."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "it.yaml").write_text(YAML)
    built = stages.build(config.load(folder / "it.yaml"))
    cell = built.cells["salient-span", "zsre", 0]
    intermediate = built.pretrained["salient-span", 0]
    general = built.pretrained["none", 0]
    store = Store(folder / "killed" / "store")
    whole = start(folder, "whole")
    for stage in (general, intermediate):
        killed(folder, f"checkpoints/{stage.key}/[0-9]*/MANIFEST.json")
        assert store.get(stage.key) is None
        assert store.checkpoints(stage.key).latest() is not None
    killed(folder, f"temporary/{cell.key}-*")
    assert store.get(cell.key) is None
    finish(start(folder, "killed"))
    finish(whole)
    return folder, built


def contents(folder: Path, *without: str) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in without
    }


def test_results_predictions_and_the_leaderboard_have_the_same_bytes(runs):
    folder, _ = runs
    whole = contents(folder / "whole" / "out", "run.json")
    assert contents(folder / "killed" / "out", "run.json") == whole
    assert {"leaderboard.json", "leaderboard.md", "leaderboard.csv"} <= whole.keys()
    assert {"results/none--zsre--0.json", "predictions/salient-span--zsre--0.jsonl"} <= whole.keys()


def test_every_tensor_of_every_model_is_the_same(runs):
    folder, built = runs
    compared = 0
    for stage in graph.topological(built.stages):
        one, other = (
            Store(folder / name / "store").path(stage.key) / "model.safetensors"
            for name in ("whole", "killed")
        )
        if stage.kind in ("general", "intermediate", "finetune"):
            tensors = load_file(one), load_file(other)
            assert tensors[0].keys() == tensors[1].keys()
            assert all(torch.equal(tensors[1][name], each) for name, each in tensors[0].items())
            compared += 1
    assert compared == 4


def test_every_artifact_has_the_same_files(runs):
    folder, built = runs
    for stage in graph.topological(built.stages):
        one, other = (
            contents(Store(folder / name / "store").path(stage.key), "MANIFEST.json")
            for name in ("whole", "killed")
        )
        assert one == other, stage.name
        assert one


def test_nothing_is_left_over(runs):
    folder, _ = runs
    for name in ("checkpoints", "temporary", "quarantine"):
        assert list((folder / "killed" / "store" / name).glob("*/*")) == []
