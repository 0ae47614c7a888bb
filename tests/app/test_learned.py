"""Errors of learned policies that cannot be fitted are one line, in run and pretrain."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import small
import yaml

from maskpolicy.data.world import make, write

SUPERVISED = {"name": "supervised", "train_on": ["zsre"], "hidden": 8}
META = {"name": "meta-learned", "train_on": ["zsre"], "init": SUPERVISED}
FIT = {"steps": 4, "batch_size": 8, "eval_every": 2, "precision": "fp32"}
SHORT = {"steps": 1, "batch_size": 2, "precision": "fp32"}
TRAIN = "structured_zeroshot-train-kilt.jsonl"
NO_CONTEXT = "no train example of task 'triviaqa' has a context: put the task's evidence"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with a BART, a text and a world of tasks."""
    folder = tmp_path_factory.mktemp("learned")
    small.saved(folder / "bart")
    (folder / "it.txt").write_text("\n\n".join(small.TEXTS))
    write(make({"people": 12, "general_people": 6, "kinds": ["people"]}), folder / "world")
    return folder


@pytest.fixture(params=["run", "pretrain"])
def command(request, folder, tmp_path):
    """Return a function from a policy's block, and a change of the tasks' folder, to a command."""

    def command(block, change=None, **settings):
        data = shutil.copytree(folder / "world" / "tasks", tmp_path / "data")
        if change is not None:
            change(data)
        parts = {"fit": {**FIT, **settings}, "intermediate": SHORT}
        model, text = str(folder / "bart"), str(folder / "it.txt")
        if request.param == "run":
            keys = {"model": model, "corpus": {"files": [text]}, "tasks": ["wow"], **parts}
            keys |= {"data": str(data), "policies": [block], "baseline": block["name"]}
            (tmp_path / "it.yaml").write_text(yaml.safe_dump(keys))
            words = ["run", tmp_path / "it.yaml"]
        else:
            words = ["pretrain", "--model", model, "--corpus", text, "--policy", block["name"]]
            parts["policy"] = {key: value for key, value in block.items() if key != "name"}
            words += [
                f"{k}.{n}={json.dumps(v)}" for k, part in parts.items() for n, v in part.items()
            ]
            words.append(f"data={data}")
        return [*words, "--store", tmp_path / "store", "--out", tmp_path / "out"]

    return command


def test_a_task_without_training_data_is_an_error_before_any_work(command, refused):
    error = refused(*command(SUPERVISED, lambda data: (data / TRAIN).unlink()))
    assert "task 'zsre': " in error and f"has no {TRAIN}" in error
    assert "put the file there, or name another folder as data" in error


def rewritten(change):
    """Return a function that changes each training row in a folder of tasks."""

    def rewrite(data):
        rows = [json.loads(line) for line in (data / TRAIN).read_text().splitlines()]
        for row in rows:
            change(row["output"])
        (data / TRAIN).write_text("".join(json.dumps(row) + "\n" for row in rows))

    return rewrite


def with_empty_evidence(data):
    for path in (data / "evidence").rglob("*.txt"):
        path.write_text(" \n")


@pytest.mark.parametrize(
    ("task", "change", "says"),
    [
        (
            "zsre",
            lambda data: (data / TRAIN).write_text(""),
            "no usable row (there is no row at all): task",
        ),
        (
            "zsre",
            rewritten(lambda output: output.clear()),
            "0 malformed): task 'zsre' needs rows with answers",
        ),
        (
            "zsre",
            rewritten(lambda output: output[0].update(answer="nowhere at all")),
            "no answer occurs in its context (",
        ),
        ("triviaqa", lambda data: shutil.rmtree(data / "evidence"), NO_CONTEXT),
        ("triviaqa", with_empty_evidence, NO_CONTEXT),
        (None, None, "run 0: the weights became nan"),
    ],
)
@pytest.mark.parametrize("command", ["run"], indirect=True)
def test_a_fit_that_fails_is_one_line_and_leaves_nothing(
    command, call, tmp_path, task, change, says
):
    diverging = {} if task else {"lr": 1e30, "warmup": 0, "steps": 2}
    block = {**SUPERVISED, "train_on": [task]} if task else META
    code, _, err = call(*command(block, change, **diverging))
    assert code == (2 if task else 1)
    last = err.splitlines()[-1]
    assert last.startswith("error: ") if task else last.endswith("the same command tries again")
    assert any(says in line for line in err.splitlines())
    assert "Traceback" not in err
    assert not list((tmp_path / "store" / "artifacts").glob("*/report.json"))
