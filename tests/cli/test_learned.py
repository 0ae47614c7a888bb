"""What a learned policy cannot be fitted on is one line and exit code 2, in run and pretrain."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import small
import yaml

from maskpolicy.world import make, write

SUPERVISED = {"name": "supervised", "train_on": ["zsre"], "hidden": 8}
META = {"name": "meta-learned", "train_on": ["zsre"], "init": SUPERVISED}
SHORT = {
    "fit": {"steps": 4, "batch_size": 8, "eval_every": 2, "precision": "fp32"},
    "intermediate": {"steps": 1, "batch_size": 2, "precision": "fp32"},
}
TRAIN = "structured_zeroshot-train-kilt.jsonl"


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A BART, a text and a world of tasks."""
    folder = tmp_path_factory.mktemp("made")
    small.bart().save_pretrained(folder / "bart")
    small.tokenizer().save_pretrained(folder / "bart")
    (folder / "it.txt").write_text("\n\n".join(small.TEXTS))
    write(make({"people": 12, "general_people": 6, "kinds": ["people"]}), folder / "world")
    return folder


@pytest.fixture(params=["run", "pretrain"])
def command(request, made, tmp_path):
    """Return a function from a policy's block, and a change of the tasks' folder, to a command."""

    def command(block, change=None, **settings):
        data = shutil.copytree(made / "world" / "tasks", tmp_path / "data")
        if change is not None:
            change(data)
        fitted = {**SHORT["fit"], **settings}
        if request.param == "run":
            given = {"model": str(made / "bart"), "corpus": {"files": [str(made / "it.txt")]}}
            given |= {"data": str(data), "policies": [block], "baseline": block["name"]}
            given |= {"tasks": ["wow"], **SHORT, "fit": fitted}
            (tmp_path / "it.yaml").write_text(yaml.safe_dump(given))
            words = ["run", tmp_path / "it.yaml"]
        else:
            words = ["pretrain", "--model", made / "bart", "--corpus", made / "it.txt"]
            words += ["--policy", block["name"], f"data={data}"]
            fields = {f"policy.{key}": value for key, value in block.items() if key != "name"}
            for part, budget in {**SHORT, "fit": fitted}.items():
                fields |= {f"{part}.{key}": value for key, value in budget.items()}
            words += [f"{key}={json.dumps(value)}" for key, value in fields.items()]
        return [*words, "--store", tmp_path / "store", "--out", tmp_path / "out"]

    return command


@pytest.mark.parametrize(
    ("block", "says"),
    [
        ({**SUPERVISED, "train_on": ["zser"]}, "train_on[0]: unknown task 'zser': did you mean"),
        ({**META, "init": {**SUPERVISED, "train_on": ["zser"]}}, "init.train_on[0]: unknown task"),
        ({**META, "backend": "jax"}, "backend: unknown value 'jax': choose from functional, high"),
        ({**SUPERVISED, "train_on": []}, "train_on: is empty: name at least one task"),
    ],
)
def test_a_name_that_is_not_known_is_refused_where_it_stands(command, refused, block, says):
    words = command(block)
    error = refused(*words)
    assert says in error
    where = "policy" if words[0] == "pretrain" else "policies[0]"
    assert f"{where}." in error or f"{where}:" in error


def test_a_task_without_training_data_is_refused_before_any_work(command, refused):
    error = refused(*command(SUPERVISED, lambda data: (data / TRAIN).unlink()))
    assert "task 'zsre': " in error
    assert f"has no {TRAIN}" in error
    assert "put the file there, or name another folder as data" in error


def without_rows(data):
    (data / TRAIN).write_text("")


def without_answers(data):
    rewrite(data, lambda row: row["output"].clear())


def with_other_answers(data):
    rewrite(data, lambda row: row["output"][0].update(answer="nowhere at all"))


def rewrite(data, change):
    rows = [json.loads(line) for line in (data / TRAIN).read_text().splitlines()]
    for row in rows:
        change(row)
    (data / TRAIN).write_text("".join(json.dumps(row) + "\n" for row in rows))


def without_evidence(data):
    shutil.rmtree(data / "evidence")


def with_empty_evidence(data):
    for path in (data / "evidence").rglob("*.txt"):
        path.write_text(" \n")


NO_CONTEXT = "no train example of task 'triviaqa' has a context: put the task's evidence"


@pytest.mark.parametrize(
    ("task", "change", "says"),
    [
        (
            "zsre",
            without_rows,
            "no usable row (there is no row at all): task",
        ),
        ("zsre", without_answers, "0 malformed): task 'zsre' needs rows with answers"),
        ("zsre", with_other_answers, "no answer occurs in its context ("),
        ("triviaqa", without_evidence, NO_CONTEXT),
        ("triviaqa", with_empty_evidence, NO_CONTEXT),
    ],
)
@pytest.mark.parametrize("start", [SUPERVISED, META])
def test_a_task_that_teaches_nothing_is_one_line_and_leaves_no_fit(
    command, call, tmp_path, start, task, change, says
):
    own = {**SUPERVISED, "train_on": [task]}
    block = own if start is SUPERVISED else {**META, "train_on": [task], "init": own}
    code, _, err = call(*command(block, change))
    assert code == 2
    assert err.splitlines()[-1].startswith("error: ")
    assert any(says in line for line in err.splitlines())
    assert "Traceback" not in err
    assert not list((tmp_path / "store" / "artifacts").glob("*/report.json"))


def test_a_loss_that_is_no_number_is_one_line_and_leaves_no_fit(command, call, tmp_path):
    code, _, err = call(*command(SUPERVISED, lr=1e30, warmup=0, steps=2))
    assert code == 1
    assert any("run 0: the weights became nan" in line for line in err.splitlines())
    assert err.splitlines()[-1].endswith("the same command tries again")
    assert not list((tmp_path / "store" / "artifacts").glob("*/report.json"))
