"""The folder of a run: its owner, its contents, and how `--verify` checks it."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import pytest
import small
from folders import DEAD, half_written
from tiny import Nothing

from maskpolicy.app.arguments import ExperimentOptions
from maskpolicy.app.contents import CONTENTS, FinishedRun, write
from maskpolicy.app.file_to_folder import _default_folder, compute, prepare
from maskpolicy.core.errors import DataError, StoreError
from maskpolicy.experiment import verbatim
from maskpolicy.experiment.parse import load_experiment
from maskpolicy.leaderboard.results.cell import read_run
from maskpolicy.pipeline.executors.engines import Executor
from maskpolicy.pipeline.graph.events import silent
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.graph.nodes import Stage, stage
from maskpolicy.pipeline.stages import Graph
from maskpolicy.pipeline.store.artifacts import Store

ROOT = Path(__file__).parents[2]
TEXT = "model: mini\ncorpus: world\npolicies: [none, random]\ntasks: [zsre]\n"


@stage("folder-examples")
def examples(params: Nothing, inputs, out, run) -> None:
    (out / "test.jsonl").write_text('{"id": "a", "source": "Where is Ulm?", "targets": ["here"]}\n')


@dataclass(frozen=True)
class Cell:
    score: float


@stage("folder-cell")
def cell(params: Cell, inputs, out, run) -> None:
    metrics = {"metric": "exact_match", "version": 1, "score": params.score, "n": 1}
    answer = {"id": "a", "group": "g", "prediction": "b", "score": params.score}
    (out / "result.json").write_text(json.dumps(metrics))
    (out / "predictions.jsonl").write_text(json.dumps(answer) + "\n")


@pytest.fixture
def finished(tmp_path) -> FinishedRun:
    """A run whose stages write their results without a training."""
    path = tmp_path / "mine.yaml"
    path.write_text(TEXT)
    asked = Stage("folder-examples", "zsre", Nothing())
    cells = {
        (row, "zsre", 0): Stage("folder-cell", row, Cell(score), {"examples": asked})
        for row, score in (("none", 0.0), ("random", 1.0))
    }
    store = Store(tmp_path / "store")
    outcomes = execute([asked, *cells.values()], store, targets=[asked, *cells.values()])
    graph = Graph(tuple(cells.values()), cells, {})
    timing = {"seconds": 1.5, "jobs": 1, "parts": []}
    return FinishedRun(load_experiment(path), graph, outcomes, store, tmp_path / "run", timing)


def test_a_run_writes_what_the_table_and_the_docs_say_and_nothing_else(finished):
    assert [result.percent for result in finished.run.results] == [0.0, 100.0]
    assert (finished.folder / "results" / "random--zsre--0.json").is_file()
    assert not (finished.folder / "leaderboard.json").exists()  # made of results, so after them
    write(finished)
    there = [path.relative_to(finished.folder).as_posix() for path in finished.folder.rglob("*.*")]
    patterns = [content.name for content in CONTENTS]
    assert all(any(fnmatch(name, pattern) for pattern in patterns) for name in there), there
    wanted = [content.name for content in CONTENTS if content.write is not None]
    wanted.remove("analyses/")  # these rows have no intermediate stage
    assert all(any(fnmatch(name, pattern) for name in there) for pattern in wanted), there
    assert json.loads((finished.folder / "run.json").read_text())["jobs"] == 1
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    about = page.partition("## The folder")[2].partition("\n##")[0]
    assert all(f"`{name}`" in about for name in patterns if not name.startswith("leaderboard."))


def test_a_half_written_folder_is_an_error_until_it_is_written_again(finished, monkeypatch):
    def interrupted(board, path):
        raise KeyboardInterrupt

    parts = [
        half_written(finished.folder / folder / "a.json", writer)
        for folder in ("", "results", "questions", "analyses")
        for writer in (DEAD, os.getppid())
    ]
    write(finished)
    assert [part.exists() for part in parts] == [False, True] * 4  # a living writer's stay
    with monkeypatch.context() as patched:
        patched.setattr("maskpolicy.app.contents.save_page", interrupted)
        with pytest.raises(KeyboardInterrupt):
            write(finished)
    with pytest.raises(DataError, match="is being written, or its command ended while it wrote"):
        read_run(finished.folder)
    write(finished)
    assert len(read_run(finished.folder).results) == 2


@pytest.mark.parametrize(
    ("file", "folder"),
    [
        ("paper/closed-book", "runs/paper/closed-book"),
        ("findings/closed-book", "runs/findings/closed-book"),
        (ROOT / "experiments" / "findings" / "closed-book.yaml", "runs/findings/closed-book"),
        ("smoke", "runs/smoke"),
        ("mine/closed-book.yaml", "runs/closed-book"),
    ],
)
def test_experiments_of_one_file_name_have_folders_of_their_own(
    tmp_path, monkeypatch, file, folder
):
    monkeypatch.chdir(tmp_path)
    Path("mine").mkdir()
    Path("mine/closed-book.yaml").write_text("model: mini\n")
    written = verbatim.read_experiment(Path(file))
    assert _default_folder(written) == Path(folder)
    verbatim.save(written, tmp_path / "kept")
    kept = verbatim.read_experiment(tmp_path / "kept" / verbatim.WRITTEN)
    assert _default_folder(kept) == tmp_path / "kept"


@pytest.fixture
def two(tmp_path, monkeypatch):
    """Two experiments of one name."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        Path(name).mkdir()
        Path(name, "it.yaml").write_text(f"# {name}{small.EXPERIMENT}")


@pytest.mark.usefixtures("two")
def test_the_folder_of_another_experiment_is_an_error_in_run_and_a_note_in_plan(call, refused):
    verbatim.save(verbatim.read_experiment(Path("a/it.yaml")), Path("runs/it"))
    says = "error: runs/it: holds the results of a/it.yaml: choose another --out"
    assert says in refused("run", "b/it.yaml")
    assert [path.name for path in Path("runs/it").iterdir()] == [verbatim.WRITTEN]
    assert not Path(".maskpolicy").exists()
    said = call("plan", "b/it.yaml")[1]
    assert "`run` writes runs/it, which holds the results of a/it.yaml: give `run` anoth" in said
    assert json.loads(call("plan", "a/it.yaml", "--json")[1])["folder"] == "runs/it"


@pytest.mark.usefixtures("two")
def test_a_folder_that_another_command_claims_meanwhile_is_an_error():
    prepared = prepare(ExperimentOptions(Path("b/it.yaml"), store="store"))
    verbatim.save(verbatim.read_experiment(Path("a/it.yaml")), prepared.folder)
    with pytest.raises(StoreError, match=r"runs/it: holds the results of a/it\.yaml: choose"):
        compute(prepared, Executor(), nullcontext(silent))
    kept = verbatim.read_experiment(prepared.folder / verbatim.WRITTEN)
    assert kept.file == Path("a/it.yaml").resolve()


@pytest.mark.usefixtures("two")
def test_a_run_that_does_not_start_leaves_no_folder_behind(refused, tmp_path):
    assert "none" in refused("run", "a/it.yaml", "corpus={files: [none.txt]}", "model=./none")
    words = ("run", "a/it.yaml", "--out", "c/d")
    assert "GPU" in refused(*words, "resources.finetune.gpus=64")
    assert "unknown" in refused(*words, "--only", "nope")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
