"""A training in two processes: the loss of one process, within rounding."""

from __future__ import annotations

import json
from pathlib import Path

import clusters
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


def intermediate(folder: Path) -> tuple[Path, dict]:
    """Return the folder of the intermediate stage's artifact, and its record."""
    for path in (folder / "store" / "artifacts").glob("*/MANIFEST.json"):
        record = json.loads(path.read_text())["record"]
        if record["kind"] == "intermediate":
            return path.parent, record
    raise AssertionError(folder)


@pytest.mark.slow
def test_two_processes_reach_the_loss_of_one(tmp_path):
    file = tmp_path / "it.yaml"
    file.write_text(YAML)
    two = ("resources.intermediate.processes=2", "--jobs", "2")
    for name, words in (("one", ("--jobs", "1")), ("two", two)):
        said = clusters.finish(clusters.start(file, tmp_path / name, *words))
        assert "Traceback" not in said
    (one, alone), (two, together) = (intermediate(tmp_path / name) for name in ("one", "two"))
    assert one.name == two.name  # its key
    assert (alone["local"], together["local"]) == ({}, {"processes": 2})
    assert together["facts"]["loss"] == pytest.approx(alone["facts"]["loss"], rel=1e-4)
    assert (one / "work.json").read_text() == (two / "work.json").read_text()
    weights, same = (load_file(each / "model.safetensors") for each in (one, two))
    for name, weight in weights.items():
        assert abs(weight - same[name]).mean() < 1e-4
