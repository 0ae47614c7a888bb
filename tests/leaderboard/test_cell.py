"""Files of results and of predictions: how they are read, and which file an error names."""

import json
from pathlib import Path

import folders
import numpy as np
import pytest

import maskpolicy as mp
from maskpolicy.app import packing
from maskpolicy.core.errors import DataError
from maskpolicy.core.metrics import Total
from maskpolicy.leaderboard.results import predictions
from maskpolicy.leaderboard.results.cell import Result, cell_name, names_of, read_run


@pytest.mark.parametrize("turn", [1, -1])
def test_a_stage_is_found_by_name_or_kind_and_the_mixed_corpus_in_any_order(turn):
    names = ["corpus general", "corpus intermediate", "corpus intermediate mix.general=0.2"]
    stages = {name: f"key of {name}" for name in ("fitted y", *names[::turn])}
    one = Result("rehearsal", "zsre", 0, "closed-book", {}, stages, None, error="e")
    assert one.corpus_key == "key of corpus intermediate mix.general=0.2"
    assert one.stage_key("fitted") == one.stage_key("fitted y") == "key of fitted y"
    assert one.stage_key("fit") is None


def test_labels_make_distinct_file_names():
    labels = ["random", "random ratio=0.3", "random-ratio=0.3", "a/b", "a-b", "a--b", "..", "é"]
    names = {cell_name(label, "zsre", 0) for label in labels}
    assert len(names) == len(labels)
    assert all("/" not in name and not name.startswith(".") for name in names)
    assert cell_name("random", "zsre", 1) == "random--zsre--1"


def test_a_run_near_a_folder_without_results_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("runs", "mine", "results").mkdir(parents=True)
    Path("runs", "mine", "leaderboard.html").touch()
    for given in ("runs", "mine", "runs/mine/leaderboard.html"):
        with pytest.raises(DataError, match=r"^\S+: no .*, such as runs/mine$"):
            read_run(Path(given))
    with pytest.raises(DataError, match=r"`maskpolicy run` wrote$"):
        read_run(Path("elsewhere"))


@pytest.mark.parametrize(
    ("places", "names"),
    [
        (["/runs/a"], ["a"]),
        (["/runs/a", "/runs/b"], ["a", "b"]),
        (["/runs/paper/a", "/runs/findings/a", "/runs/b"], ["paper/a", "findings/a", "b"]),
        (["/x/p/a", "/y/p/a", "/y/q/a"], ["x/p/a", "y/p/a", "q/a"]),
        (["/a", "/x/a"], ["/a", "x/a"]),
        (["/x/a", "/x/a"], ["a", "a"]),  # one run
    ],
)
def test_a_name_is_as_long_as_others_make_it(places, names):
    assert names_of([Path(place) for place in places]) == names


def test_tables_in_python_name_the_runs_apart(tmp_path):
    runs, zips = [], []
    for name, lr in (("one", 0.1), ("other", 0.5)):
        budget = {**folders.BUDGET, "lr": lr}
        made = folders.write(tmp_path / name / "it", {"none": 0.2}, ("zsre",), finetune=budget)
        runs.append(made)
        zips.append(packing.pack(made, tmp_path / f"{name}.zip"))
    for places in (runs, zips):
        found = mp.load(*places, store=tmp_path / "store", mixed=True)
        assert {*found.scores().run} == {*found.answers().run} == {"one/it", "other/it"}


def result(score: float = 0.75, n: int = 4) -> Result:
    metrics = Total("exact_match", score, n, 1)
    return Result("random", "zsre", 0, "knowledge-intensive", {}, {}, metrics)


@pytest.fixture
def path(tmp_path):
    rows = folders.answers("zsre", [True, False, True, True])
    (tmp_path / "it.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "it.jsonl"


def test_answers_are_in_the_order_of_the_file_and_known_by_ids_and_groups(path, tmp_path):
    one = predictions.read_answers(result(), path)
    assert np.array_equal(one.scores, [1, 0, 1, 1])
    assert np.array_equal(one.groups, [0, 0, 0, 1])
    other = tmp_path / "other.jsonl"
    other.write_text(path.read_text().replace("an answer", "nothing"))
    same = predictions.read_answers(result(), other)
    other.write_text(path.read_text().replace("page 1", "page 0"))
    moved = predictions.read_answers(result(), other)
    assert one.examples == same.examples != moved.examples
    assert predictions.read_answers(result(), tmp_path / "none.jsonl") is None


@pytest.mark.parametrize(("score", "n"), [(0.75, 5), (0.5, 4)])
def test_answers_must_be_those_of_the_result(path, score, n):
    with pytest.raises(DataError, match=r"4 answers that score 0\.7500"):
        predictions.read_answers(result(score, n), path)
