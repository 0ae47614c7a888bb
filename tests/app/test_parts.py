"""A run's folder after several commands: parts of an experiment, and one that shrank."""

import json
import shutil
from pathlib import Path

import folders
import pytest
import small

from maskpolicy.app.commands import app
from maskpolicy.core import hardware
from maskpolicy.leaderboard.results.cell import read_run

FINETUNE = {"steps": 2, "warmup": 1, "batch_size": 4, "max_source": 24}
ROWS = ["none", "random", "original"]
TINY = small.experiment(policies=ROWS, tasks=["zsre", "wow"], finetune=FINETUNE)


@pytest.fixture(scope="module")
def parted(tmp_path_factory):
    """Run one cell of a tiny experiment, then one task; folder, and the folders after each."""
    folder = tmp_path_factory.mktemp("parted")
    (folder / "tiny.yaml").write_text(TINY)
    words = ["run", folder / "tiny.yaml", "--store", folder / "store", "--out", folder / "out"]
    for name, only in (("cell", "random/zsre"), ("task", "/wow"), ("row", "none")):
        assert not app([*map(str, words), "--only", only], standalone_mode=False)
        shutil.copytree(folder / "out", folder / name)
    return folder


def board(folder: Path) -> tuple[dict[str, set[str]], str]:
    """Return the tasks of each row that have a score, and all notes."""
    found = json.loads((folder / "leaderboard.json").read_text())
    rows = {
        row["policy"]: {task for task, score in row["scores"].items() if score}
        for row in found["rows"]
    }
    return rows, "\n".join(found["notes"])


def test_a_part_runs_alone_and_the_board_says_what_was_left_out(parted):
    rows, notes = board(parted / "cell")
    assert rows == {"random": {"zsre"}}
    assert "5 cells were left out by --only: none--zsre--0, none--wow--0, " in notes
    assert "none, the baseline, was left out: rows are compared with random" in notes
    ran = json.loads((parted / "cell" / "run.json").read_text())["stages"]
    kinds = [stage["kind"] for stage in ran]
    assert (kinds.count("annotate"), kinds.count("finetune")) == (0, 1)


def test_a_part_keeps_what_is_there_already(parted):
    assert board(parted / "task")[0] == {
        "none": {"wow"},
        "random": {"zsre", "wow"},
        "original": {"wow"},
    }
    rows, notes = board(parted / "row")
    assert rows["none"] == {"zsre", "wow"}
    assert "1 cell was left out by --only: original--zsre--0" in notes
    again = read_run(parted / "row")
    assert again.left_out == ("original--zsre--0",)
    assert len(again.results) == 5


def test_a_part_keeps_results_as_they_are_when_the_store_is_gone(parted, tmp_path):
    again = folders.collect_without_store(parted, "row", tmp_path)
    assert json.loads((again / "results/random--zsre--0.json").read_text())["text"]
    assert folders.contents(again / "results") == folders.contents(parted / "row" / "results")


def run(done, parted, out, *words, text=TINY):
    (out.parent / "tiny.yaml").write_text(text)
    words = ("run", out.parent / "tiny.yaml", "--store", parted / "store", "--out", out, *words)
    done(*words)


def test_a_part_does_not_show_what_other_settings_gave(done, parted, tmp_path):
    out = shutil.copytree(parted / "row", tmp_path / "out")
    text = TINY.replace("finetune:\n  steps: 2", "finetune:\n  steps: 3")
    run(done, parted, out, "--only", "/zsre", text=text)
    assert board(out)[0]["none"] == {"zsre"}
    assert (out / "results" / "none--wow--0.json").is_file()
    assert {result.task for result in read_run(out).results} == {"zsre"}


def test_an_experiment_that_shrank_deletes_nothing(done, parted, tmp_path):
    out = shutil.copytree(parted / "row", tmp_path / "out")
    text = small.experiment(policies=ROWS[:2], tasks=["wow"], finetune=FINETUNE)
    before = {path.name for path in (out / "results").iterdir()}
    run(done, parted, out, text=text)
    rows, notes = board(out)
    assert rows == {"none": {"wow"}, "random": {"wow"}}
    assert "kept in results/: 3 results of cells that the experiment no longer has" in notes
    assert {path.name for path in (out / "results").iterdir()} == before
    assert (out / "questions" / "zsre.jsonl").is_file()
    run(done, parted, out, "--only", "none/wow", text=text)
    assert board(out)[0] == rows
    joined, _ = done("leaderboard", out, "--json")
    assert {row["policy"] for row in json.loads(joined)["rows"]} == set(rows)


def test_a_row_with_another_label_is_not_told_as_a_lost_one(done, parted, tmp_path):
    out = shutil.copytree(parted / "row", tmp_path / "out")
    rows = ["none", {"name": "random", "label": "renamed"}, "original"]
    text = small.experiment(policies=rows, tasks=["zsre", "wow"], finetune=FINETUNE)
    run(done, parted, out, text=text)
    assert (out / "results" / "random--zsre--0.json").is_file()
    rows, notes = board(out)
    assert "renamed" in rows and "no longer has" not in notes


def test_a_plan_of_a_part_lists_nothing_else(call, parted):
    words = ("plan", parted / "tiny.yaml", "--store", parted / "store", "seeds=[7]")
    lines = call(*words, "--only", "original/wow", "-v")[1].splitlines()
    assert sum("evaluate original" in line for line in lines) == 1
    assert not any("-examples zsre" in line for line in lines)
    table = next(
        n for n, line in enumerate(lines) if line.split()[:3] == ["task", "test", "examples"]
    )
    assert [line.split()[0] for line in lines[table + 1 :]] == ["wow"]


def test_a_plan_counts_as_many_jobs_as_the_run_will_have(call, tmp_path, monkeypatch):
    monkeypatch.setattr(hardware, "small_processes", lambda: 8)
    (tmp_path / "tiny.yaml").write_text(TINY)
    words = ("plan", tmp_path / "tiny.yaml", "--store", tmp_path / "store", "--json")
    found = json.loads(call(*words, "--only", "none/wow")[1])
    assert found["expected"]["workers"] == 3  # evaluation, majority and audit
