"""Errors of learned policies that cannot be fitted are one line."""

from pathlib import Path

import folders
import pytest
import small
import yaml

FIT = {"steps": 4, "batch_size": 8, "eval_every": 2, "precision": "fp32"}
DIVERGES = {"steps": 2, "warmup": 0, "lr": 1e30}


@pytest.mark.parametrize(
    ("answer", "fit", "code", "says"),
    [
        ("nowhere at all", {}, 2, "no answer occurs in its context ("),
        (None, DIVERGES, 1, "run 0: the weights became nan"),
    ],
)
def test_a_fit_that_fails_is_one_line_and_leaves_nothing(call, here, answer, fit, code, says):
    small.with_world(here)
    (here / "it.txt").write_text("\n\n".join(small.TEXTS))
    for row in folders.edited(here / "world" / "tasks", "structured_zeroshot-train-kilt.jsonl"):
        row["output"][0]["answer"] = answer or row["output"][0]["answer"]
    policy = {"name": "supervised", "train_on": ["zsre"], "hidden": 8}
    keys = {"model": "./bart", "corpus": {"files": ["it.txt"]}, "data": "world/tasks"}
    keys |= {"policies": [policy], "baseline": "supervised", "tasks": ["wow"], "fit": FIT | fit}
    Path("it.yaml").write_text(yaml.safe_dump(keys))
    found, _, err = call("run", "it.yaml", "--store", "store")
    assert found == code
    last = err.splitlines()[-1]
    assert (
        last.startswith("error: ") if code == 2 else last.endswith("the same command tries again")
    )
    assert any(says in line for line in err.splitlines())
    assert "Traceback" not in err
    assert not list(Path("store").glob("artifacts/*/report.json"))
