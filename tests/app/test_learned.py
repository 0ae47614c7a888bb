"""Errors of learned policies that cannot be fitted are one line."""

import shutil
from pathlib import Path

import folders
import pytest
import small
import yaml

SUPERVISED = {"name": "supervised", "train_on": ["zsre"], "hidden": 8}
META = {"name": "meta-learned", "train_on": ["zsre"], "init": SUPERVISED}
FIT = {"steps": 4, "batch_size": 8, "eval_every": 2, "precision": "fp32"}
SHORT = {"steps": 1, "batch_size": 2, "precision": "fp32"}
TRAIN = "structured_zeroshot-train-kilt.jsonl"
NO_CONTEXT = "no train example of task 'triviaqa' has a context: put the task's evidence"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with a BART, a text and a world of tasks."""
    folder = small.with_world(tmp_path_factory.mktemp("learned"))
    (folder / "it.txt").write_text("\n\n".join(small.TEXTS))
    return folder


@pytest.fixture
def run(folder, tmp_path, call, store):
    """Return a function that runs a row with a policy's block, given a change of its tasks."""

    def run(block, change=None, **fit):
        data = shutil.copytree(folder / "world" / "tasks", tmp_path / "data")
        if change is not None:
            change(data)
        keys = {"model": str(folder / "bart"), "corpus": {"files": [str(folder / "it.txt")]}}
        keys |= {"data": str(data), "policies": [block], "baseline": block["name"]}
        keys |= {"tasks": ["wow"], "fit": {**FIT, **fit}, "intermediate": SHORT}
        (tmp_path / "it.yaml").write_text(yaml.safe_dump(keys))
        return call("run", "it.yaml", "--store", store)

    return run


def rewritten(change):
    """Return a function that changes each training row in a folder of tasks."""

    def rewrite(data):
        for row in folders.edited(data, TRAIN):
            change(row["output"])

    return rewrite


def with_empty_evidence(data):
    for path in (data / "evidence").rglob("*.txt"):
        path.write_text(" \n")


@pytest.mark.parametrize(
    ("task", "change", "says"),
    [
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
def test_a_fit_that_fails_is_one_line_and_leaves_nothing(run, store, task, change, says):
    diverging = {} if task else {"lr": 1e30, "warmup": 0, "steps": 2}
    block = {**SUPERVISED, "train_on": [task]} if task else META
    code, _, err = run(block, change, **diverging)
    assert code == (2 if task else 1)
    last = err.splitlines()[-1]
    assert last.startswith("error: ") if task else last.endswith("the same command tries again")
    assert any(says in line for line in err.splitlines())
    assert "Traceback" not in err
    assert not list(store.glob("artifacts/*/report.json"))
