"""A built-in policy that is edited after a run is named: no key holds its code."""

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
policies: [random, span]
tasks: [triviaqa]
baseline: random
world: {people: 40, general_people: 40}
general: {steps: 1}
intermediate: {steps: 1}
finetune: {steps: 1}
"""


@pytest.mark.slow
def test_an_edited_policy_is_named(tmp_path):
    copy = tmp_path / "installed" / "maskpolicy"
    shutil.copytree(ROOT / "maskpolicy", copy)
    for name in ("policies", "tasks", "experiments"):
        shutil.copytree(ROOT / name, copy / name)
    (tmp_path / "it.yaml").write_text(YAML)

    def said(command: str) -> str:
        words = [sys.executable, "-m", "maskpolicy", command, "it.yaml", "--store", "store"]
        environment = {**os.environ, "PYTHONPATH": str(copy.parent)}
        done = subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        return " ".join(done.stderr.split())

    said("run")
    policy = copy / "policies" / "span.py"
    policy.write_text(policy.read_text() + "\n# a comment changes no code\n")
    assert "was edited" not in said("plan")
    policy.write_text(policy.read_text() + "\nLONGEST = 3\n")
    line = "policy span: was edited since 1 of the stages of this run were computed"
    assert line in said("plan")
    assert "policy random: was edited" not in said("plan")
