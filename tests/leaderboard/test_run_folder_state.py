"""A run writes only to folders of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

from maskpolicy.app.contents import CONTENTS
from maskpolicy.core.errors import ConfigError, DataError, StoreError
from maskpolicy.experiment import verbatim
from maskpolicy.leaderboard.results import run_folder_state


@pytest.mark.parametrize("name", ["results", "logs", "predictions", "questions", "run.json"])
def test_a_folder_with_names_that_a_run_uses_is_not_taken(tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(StoreError, match="holds files of another origin: choose another --out"):
        run_folder_state.check(tmp_path)


def test_an_experiment_of_the_users_own_does_not_make_a_folder_that_of_a_run(tmp_path):
    (tmp_path / "experiment.yaml").write_text("model: mini\npolicies: [none]\n")
    with pytest.raises(StoreError, match="choose another --out"):
        run_folder_state.check(tmp_path)


def test_the_folder_of_a_run_is_taken_again(tmp_path):
    folder, mine = tmp_path / "run", tmp_path / "mine.yaml"
    mine.write_text("model: mini\n")
    half = folder / ".experiment.yaml.7.part"  # of a command that was killed
    run_folder_state.check(folder)
    assert not folder.exists()
    folder.mkdir()
    half.write_text("half")
    run_folder_state.check(folder)
    verbatim.save(verbatim.read_experiment(mine, (), ()), folder)
    (folder / "results").mkdir()
    run_folder_state.check(folder)
    names = {path.name for path in folder.iterdir()}
    assert names == {half.name, verbatim.WRITTEN, "results"}  # all stay as they were
    (folder / verbatim.WRITTEN).unlink()
    with pytest.raises(StoreError, match="holds files of another origin"):
        run_folder_state.check(folder)


@pytest.mark.parametrize("left", [b"", b"\0" * 512])
def test_the_folder_of_a_run_that_lost_power_is_taken_again(tmp_path, left):
    (tmp_path / "results").mkdir()
    (tmp_path / verbatim.WRITTEN).write_bytes(left)
    run_folder_state.check(tmp_path)
    mine = tmp_path / "mine.yaml"
    mine.write_text("model: mini\n")
    verbatim.save(verbatim.read_experiment(mine), tmp_path)
    assert verbatim.is_saved(tmp_path)


def test_a_folder_that_a_run_was_writing_is_taken_again(tmp_path):
    (tmp_path / run_folder_state.BEING_WRITTEN).touch()
    (tmp_path / "results").mkdir()
    run_folder_state.check(tmp_path)
    (tmp_path / verbatim.WRITTEN).write_text("model: mini\n")
    with pytest.raises(StoreError, match="choose another --out"):
        run_folder_state.check(tmp_path)


@pytest.mark.parametrize("mark", [verbatim.WRITTEN, run_folder_state.BEING_WRITTEN])
def test_an_empty_file_does_not_make_a_folder_with_other_files_that_of_a_run(tmp_path, mark):
    (tmp_path / mark).touch()
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(StoreError, match="choose another --out"):
        run_folder_state.check(tmp_path)


def test_all_that_a_run_leaves_has_a_name_of_a_runs_folder():
    for content in CONTENTS:
        name = content.name.partition("/")[0]
        assert any(fnmatch(name, pattern) for pattern in run_folder_state.NAMES)


def test_the_folder_of_another_files_experiment_is_not_taken(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "run"
    mine, other = tmp_path / "it.yaml", tmp_path / "others" / "it.yaml"
    other.parent.mkdir()
    mine.write_text("model: mini\n")
    other.write_text("model: mini\nseeds: [1]\n")
    verbatim.save(verbatim.read_experiment(mine), folder)
    mine.write_text("model: mini\nseeds: [2]\n")
    run_folder_state.check(folder, verbatim.read_experiment(mine, ["seeds=[3]"]))  # edited
    asked = verbatim.read_experiment(other)
    said = f"{folder}: holds the results of it.yaml: choose another --out"
    with pytest.raises(StoreError, match=f"^{re.escape(said)}$"):
        run_folder_state.check(folder, asked)
    other.write_text("model: mini\n")  # as it was when it was run: the same experiment
    run_folder_state.check(folder, verbatim.read_experiment(other))
    mine.unlink()  # moved
    run_folder_state.check(folder, asked)


def test_a_shipped_experiment_is_named_as_run_takes_it(tmp_path):
    folder = tmp_path / "run"
    verbatim.save(verbatim.read_experiment(Path("findings/closed-book")), folder)
    asked = verbatim.read_experiment(Path("paper/closed-book"))
    assert run_folder_state.owner_of(folder, asked) == "findings/closed-book"
    assert run_folder_state.owner_of(tmp_path / "none", asked) == ""


def test_labels_that_differ_in_case_alone_are_told_where_the_disk_cannot(tmp_path, monkeypatch):
    labels = ["none", "MLM", "mlm"]
    run_folder_state.check_labels(tmp_path / "new", labels)

    def exists(path):  # as on a disk that ignores case
        return path.name.casefold() in {one.name.casefold() for one in path.parent.iterdir()}

    monkeypatch.setattr(Path, "exists", exists)
    run_folder_state.check_labels(tmp_path, ["none", "MLM", "mlm 2"])
    with pytest.raises(ConfigError, match="the labels MLM and mlm differ only in case"):
        run_folder_state.check_labels(tmp_path, labels)
    assert list(tmp_path.iterdir()) == []


def test_of_two_commands_that_write_one_folder_the_second_waits(tmp_path):
    text = (
        "import sys; from pathlib import Path\n"
        "from maskpolicy.leaderboard.results.run_folder_state import writing\n"
        "print('ready', flush=True)\n"
        "with writing(Path(sys.argv[1])):\n"
        "    (Path(sys.argv[1]) / 'second').touch()\n"
    )
    with run_folder_state.writing(tmp_path):
        command = [sys.executable, "-c", text, tmp_path]
        second = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert second.stdout.read(5) == b"ready"
        with pytest.raises(subprocess.TimeoutExpired):
            second.wait(0.2)
        assert not (tmp_path / "second").exists()
        with pytest.raises(DataError, match="is being written"):
            run_folder_state.check_whole(tmp_path)
    assert second.wait() == 0
    assert (tmp_path / "second").exists()
    run_folder_state.check_whole(tmp_path)
