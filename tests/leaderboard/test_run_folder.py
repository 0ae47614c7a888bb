"""A run writes only to folders of its own."""

import re
import shutil
import threading
from fnmatch import fnmatch
from pathlib import Path

import pytest
from folders import half_written

from maskpolicy.app.contents import CONTENTS
from maskpolicy.core.errors import ConfigError, DataError, StoreError
from maskpolicy.experiment import verbatim
from maskpolicy.leaderboard.results import run_folder
from maskpolicy.pipeline.store.artifacts import Store


@pytest.mark.parametrize(
    "files",
    [
        {"results": None},  # a folder of the user
        {"run.json": None},
        {verbatim.WRITTEN: "model: mini\npolicies: [none]\n"},
        {verbatim.WRITTEN: "", "thesis.tex": ""},
        {run_folder.BEING_WRITTEN: "", "thesis.tex": ""},
    ],
)
def test_a_run_does_not_write_to_a_folder_with_files_of_the_user(tmp_path, files):
    for name, text in files.items():
        if text is None:
            (tmp_path / name).mkdir()
        else:
            (tmp_path / name).write_text(text)
    with pytest.raises(StoreError, match="holds other files: choose another --out"):
        run_folder.check(tmp_path)


def test_a_run_writes_to_its_folder_again(tmp_path):
    folder, mine = tmp_path / "run", tmp_path / "mine.yaml"
    mine.write_text("model: mini\n")
    half = folder / ".experiment.yaml.7.part"  # of a command that was killed
    run_folder.check(folder)
    assert not folder.exists()
    folder.mkdir()
    half.write_text("half")
    run_folder.check(folder)
    verbatim.save(verbatim.read_experiment(mine, (), ()), folder)
    (folder / "results").mkdir()
    run_folder.check(folder)
    names = {path.name for path in folder.iterdir()}
    assert names == {half.name, verbatim.WRITTEN, "results"}  # all stay as they were
    (folder / verbatim.WRITTEN).unlink()
    with pytest.raises(StoreError, match="holds other files"):
        run_folder.check(folder)
    (folder / run_folder.BEING_WRITTEN).touch()  # half written
    run_folder.check(folder)


@pytest.mark.parametrize("left", [b"", b"\0" * 512])
def test_a_run_writes_to_a_folder_again_that_lost_power(tmp_path, left):
    (tmp_path / "results").mkdir()
    (tmp_path / verbatim.WRITTEN).write_bytes(left)
    run_folder.check(tmp_path)
    mine = tmp_path / "mine.yaml"
    mine.write_text("model: mini\n")
    verbatim.save(verbatim.read_experiment(mine), tmp_path)
    assert verbatim.is_saved(tmp_path)


def test_all_that_a_run_leaves_has_a_name_of_a_runs_folder():
    for pattern in CONTENTS:
        name = pattern.partition("/")[0]
        assert any(fnmatch(name, known) for known in run_folder.NAMES)


def test_a_run_does_not_write_to_the_folder_of_another_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "run"
    mine, other = tmp_path / "it.yaml", tmp_path / "others" / "it.yaml"
    other.parent.mkdir()
    mine.write_text("model: mini\n")
    other.write_text("model: mini\nseeds: [1]\n")
    verbatim.save(verbatim.read_experiment(mine), folder)
    mine.write_text("model: mini\nseeds: [2]\n")
    run_folder.check(folder, verbatim.read_experiment(mine, ["seeds=[3]"]))  # edited
    asked = verbatim.read_experiment(other)
    said = f"{folder}: holds the results of it.yaml: choose another --out"
    with pytest.raises(StoreError, match=f"^{re.escape(said)}$"):
        run_folder.check(folder, asked)
    other.write_text("model: mini\n")  # as mine was, but relative paths may name other files
    with pytest.raises(StoreError, match=r"holds the results of it\.yaml"):
        run_folder.check(folder, verbatim.read_experiment(other))
    mine.unlink()  # moved
    run_folder.check(folder, asked)
    verbatim.save(verbatim.read_experiment(Path("findings/closed-book")), tmp_path / "shipped")
    asked = verbatim.read_experiment(Path("paper/closed-book"))
    assert run_folder.owner_of(tmp_path / "shipped", asked) == "findings/closed-book"
    assert run_folder.owner_of(tmp_path / "none", asked) == ""


def test_labels_that_differ_in_case_alone_need_a_disk_that_tells_case_apart(tmp_path, monkeypatch):
    labels = ["none", "MLM", "mlm"]
    run_folder.check_labels(tmp_path / "new", labels)

    def exists(path):  # as on a disk that ignores case
        return path.name.casefold() in {one.name.casefold() for one in path.parent.iterdir()}

    monkeypatch.setattr(Path, "exists", exists)
    run_folder.check_labels(tmp_path, ["none", "MLM", "mlm 2"])
    with pytest.raises(ConfigError, match="the labels MLM and mlm differ only in case"):
        run_folder.check_labels(tmp_path, labels)
    assert list(tmp_path.iterdir()) == []


def test_of_two_commands_that_write_one_folder_the_second_waits(tmp_path):
    def write() -> None:
        with run_folder.writing(tmp_path):
            (tmp_path / "second").touch()

    with run_folder.writing(tmp_path):
        second = threading.Thread(target=write)
        second.start()
        second.join(0.2)
        assert second.is_alive() and not (tmp_path / "second").exists()
        with pytest.raises(DataError, match="is being written"):
            run_folder.check_whole(tmp_path)
    second.join()
    assert (tmp_path / "second").exists()


def test_who_alone_writes_a_folder_removes_what_killed_commands_left(tmp_path):
    left = [half_written(tmp_path / name, 1) for name in ("a.md", "results/b.json")]
    with run_folder.writing(tmp_path):
        assert not any(path.exists() for path in left)
    run_folder.check_whole(tmp_path)


def saved(folder, store):
    """Write run.json of a run without stages."""
    folder.mkdir(parents=True)
    run_folder.save_record(folder, "it", {"seconds": 1.5, "jobs": 2}, [], Store(store))
    return folder


def test_how_a_run_went_reads_back_and_run_and_store_may_move_together(tmp_path):
    (tmp_path / "here" / "store").mkdir(parents=True)
    record = run_folder.read_record(saved(tmp_path / "here" / "it", tmp_path / "here" / "store"))
    assert (record["experiment"], record["seconds"], record["jobs"]) == ("it", 1.5, 2)
    assert "torch" in record["versions"]
    assert run_folder.read_record(tmp_path) is None
    shutil.move(tmp_path / "here", tmp_path / "there")
    assert run_folder.store_of(tmp_path / "there" / "it") == str(tmp_path / "there" / "store")
    assert run_folder.store_of(saved(tmp_path / "gone", tmp_path / "never made")) is None
    (tmp_path / "run.json").write_text('{"store": "s3://bucket/prefix"}')
    assert run_folder.store_of(tmp_path) == "s3://bucket/prefix"
    (tmp_path / "run.json").write_text("[]")
    with pytest.raises(DataError, match=r"run.json: not written by .*: remove it"):
        run_folder.store_of(tmp_path)


def test_the_store_of_a_run_below_a_link_is_found(tmp_path):
    (tmp_path / "scratch" / "deep").mkdir(parents=True)
    (tmp_path / "here" / "store").mkdir(parents=True)
    (tmp_path / "here" / "runs").symlink_to(tmp_path / "scratch" / "deep")
    folder = saved(tmp_path / "here" / "runs" / "it", tmp_path / "here" / "store")
    assert run_folder.store_of(folder) == str(tmp_path / "here" / "store")
