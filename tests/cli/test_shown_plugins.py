"""The policy, task, metric and experiment that docs/ shows are whole: they are used here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pages import DOCS, blocks

SHOWN = [b for name in ("policies", "tasks", "experiments") for b in blocks(DOCS / f"{name}.md")]
ROW = '{"id": "1", "country": "Peru", "capital": "Lima", "aliases": ["Ciudad de los Reyes"]}\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with the files that the pages show, each named in its first line."""
    folder = tmp_path_factory.mktemp("shown")
    for block in SHOWN:
        if block.file:
            (folder / block.file).write_text(block.text)
    for name, rows in (("train", 9), ("dev", 2)):
        path = folder / "my_data" / f"capitals-{name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(ROW.replace('"1"', f'"{n}"') for n in range(rows)))
    (folder / "my_text").mkdir()
    (folder / "my_text" / "a.txt").write_text("Lima is the capital of Peru.\n")
    return folder


def call(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "maskpolicy", *words],
        capture_output=True,
        text=True,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_policy_hides_a_word_of_the_first_sentence(folder):
    lines = [line for block in SHOWN for line in block.text.splitlines()]
    command = next(line for line in lines if "show first-sentence" in line)
    assert "--plugin my_policy.py" in command
    words = ["--plugin", "my_policy.py", "--text", "Ada wrote notes. They last.", "--json"]
    found = json.loads(call(folder, "show", "first-sentence", *words))
    assert [part in "Ada wrote notes." for _, _, part in found["spans"]] == [True]


def test_the_task_maps_its_rows(folder):
    words = ["--data", "my_data", "--plugin", "my_task.py", "--limit", "1"]
    assert json.loads(call(folder, "examples", "capitals", *words)) == {
        "id": "0",
        "group": "Peru",
        "source": "capital of Peru",
        "targets": ["Lima", "Ciudad de los Reyes"],
        "context": None,
    }


def test_the_experiment_is_planned(folder):
    out = call(folder, "plan", "my_experiment.yaml", "model=mini")
    for row in ("random, run 0", "random-30, run 0", "first-sentence target=full, run 0"):
        assert f"intermediate {row}" in out.replace("intermediate  ", "intermediate ")


def test_the_metric_is_listed(folder):
    found = json.loads(call(folder, "list", "metrics", "--plugin", "my_metric.py", "--json"))
    assert "last_word" in {each["name"] for each in found}
