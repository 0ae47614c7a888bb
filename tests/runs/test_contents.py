"""What a run's folder holds: everything in it is in the table, and docs/outputs.md names it."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import pytest
from folders import DEAD, half_written
from tiny import Nothing

from maskpolicy.cli.running import _print
from maskpolicy.config.parse import load_experiment
from maskpolicy.errors import DataError
from maskpolicy.graph.execution import execute
from maskpolicy.graph.nodes import Stage, stage
from maskpolicy.graph.stage_run import StageRun
from maskpolicy.results.cell import read_run
from maskpolicy.runs.contents import CONTENTS, FinishedRun, write
from maskpolicy.stages import Graph
from maskpolicy.store.artifacts import Store

TEXT = "model: mini\ncorpus: world\npolicies: [none, random]\ntasks: [zsre]\n"


@stage("folder-examples")
def examples(params: Nothing, inputs: Mapping[str, Path], out: Path, run: StageRun) -> None:
    (out / "test.jsonl").write_text('{"id": "a", "source": "Where is Ulm?", "targets": ["here"]}\n')


@dataclass(frozen=True)
class Cell:
    score: float


@stage("folder-cell")
def cell(params: Cell, inputs: Mapping[str, Path], out: Path, run: StageRun) -> None:
    metrics = {"metric": "exact_match", "version": 1, "score": params.score, "n": 1}
    answer = {"id": "a", "group": "g", "prediction": "b", "score": params.score}
    (out / "result.json").write_text(json.dumps(metrics))
    (out / "predictions.jsonl").write_text(json.dumps(answer) + "\n")


@pytest.fixture
def finished(tmp_path):
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


def test_a_run_writes_what_the_table_says_and_nothing_else(finished):
    write(finished)
    there = [path.relative_to(finished.folder).as_posix() for path in finished.folder.rglob("*.*")]
    patterns = [content.name for content in CONTENTS]
    assert all(any(fnmatch(name, pattern) for pattern in patterns) for name in there), there
    wanted = [content.name for content in CONTENTS if content.write is not None]
    wanted.remove("analyses/")  # these rows have no intermediate stage
    assert all(any(fnmatch(name, pattern) for name in there) for pattern in wanted), there
    assert json.loads((finished.folder / "run.json").read_text())["jobs"] == 1


def test_results_are_written_before_anything_is_made_of_them(finished):
    assert [result.percent for result in finished.run.results] == [0.0, 100.0]
    assert (finished.folder / "results" / "random--zsre--0.json").is_file()
    assert not (finished.folder / "leaderboard.json").exists()


def test_a_folder_that_was_not_written_whole_is_refused_until_it_is(finished, monkeypatch):
    write(finished)
    with monkeypatch.context() as patched:
        patched.setattr("maskpolicy.runs.contents.save_page", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            write(finished)
    with pytest.raises(DataError, match="is being written, or its command ended while it wrote"):
        read_run(finished.folder)
    write(finished)
    assert len(read_run(finished.folder).results) == 2
    assert not list(finished.folder.glob(".*"))


def _interrupted(board, path):
    raise KeyboardInterrupt


def test_a_board_is_printed_in_ascii_where_nothing_else_can_be(finished, monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", stream)
    _print(finished, [], 0.0, 1, show_page=False)
    stream.flush()
    assert b"random" in stream.buffer.getvalue()


def test_parts_of_dead_writers_are_removed_everywhere_in_the_folder(finished):
    parts = [
        half_written(finished.folder / folder / "a.json", writer)
        for folder in ("", "results", "questions", "analyses")
        for writer in (DEAD, os.getppid())
    ]
    write(finished)
    assert [part.exists() for part in parts] == [False, True] * 4


def test_the_documentation_names_all_that_a_run_leaves():
    text = (Path(__file__).parents[2] / "docs" / "outputs.md").read_text(encoding="utf-8")
    about = text.partition("## The folder")[2].partition("\n## ")[0]
    names = [content.name for content in CONTENTS if not content.name.startswith("leaderboard.")]
    assert all(f"`{name}`" in about for name in names)
