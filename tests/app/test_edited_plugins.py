"""Code and files that no key holds are named: edited built-in policies, what plugins read."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
YAML = """
model: mini
corpus: world
policies: [random, span, reads]
plugins: [plugin/reads.py]
tasks: [triviaqa]
baseline: random
world: {people: 40, general_people: 40}
general: {steps: 1}
intermediate: {steps: 1}
finetune: {steps: 1}
"""
PLUGIN = """
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import outside, beside, xml.dom.minidom
from maskpolicy import policy

HERE = Path(__file__).parent
(HERE / "written").write_text("x")


@policy("reads")
@dataclass(frozen=True)
class Reads:
    files = ["declared"]

    def depends(self):
        return (HERE / "depends").read_text()

    def annotate(self, passages, fitted=None):
        count = int(np.loadtxt(HERE.parent / "count.txt"))
        texts = [(HERE / name).read_text() for name in ("written", "declared", "depends")]
        return {"first": [np.array([[0, count]], dtype=np.int32) for _ in passages]}

    def select(self, passage, rng):
        return passage.columns["first"]
"""


@pytest.mark.slow
def test_an_edited_policy_and_what_plugins_read_are_named(tmp_path):
    copy = tmp_path / "installed" / "maskpolicy"
    shutil.copytree(ROOT / "maskpolicy", copy)
    for name in ("policies", "tasks", "experiments"):
        shutil.copytree(ROOT / name, copy / name)
    (tmp_path / "it.yaml").write_text(YAML)
    plugin = tmp_path / "plugin"
    plugin.mkdir()
    (tmp_path / "count.txt").write_text("1")
    (copy.parent / "outside.py").write_text("")
    for name in ("beside.py", "declared", "depends"):
        (plugin / name).write_text("")
    (plugin / "reads.py").write_text(PLUGIN)

    def said(command: str) -> str:
        words = [sys.executable, "-m", "maskpolicy", command, "it.yaml", "--store", "store"]
        environment = {**os.environ, "PYTHONPATH": str(copy.parent)}
        done = subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        return " ".join(done.stderr.split())

    reads = f"plugin of {plugin}: reads {{}}, in no key: an edit computes nothing again"
    first = said("check")
    assert first.count("in no key") == 2
    for path in (copy.parent / "outside.py", tmp_path / "count.txt"):
        assert reads.format(path) in first
    assert said("run").count("in no key") == 1
    policy = copy / "policies" / "span.py"
    policy.write_text(policy.read_text() + "\n# a comment changes no code\n")
    assert "was edited" not in said("plan")
    policy.write_text(policy.read_text() + "\nLONGEST = 3\n")
    line = "policy span: was edited since 1 of the stages of this run were computed"
    assert line in said("plan")
    assert "policy random: was edited" not in said("plan")
