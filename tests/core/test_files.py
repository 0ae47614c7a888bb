"""Folders for results, files below folders, weights, and paths in shared texts."""

import gzip
import json
import os
import tempfile
from pathlib import Path

import pytest
from folders import half_written
from refusals import refused

from maskpolicy.app.commands import _line
from maskpolicy.core.errors import ConfigError, DataError, StoreError
from maskpolicy.core.files import (
    files_below,
    read_json,
    relative_paths,
    remove_parts,
    weights_in,
    write_file,
)
from maskpolicy.data.datafiles import readers
from maskpolicy.pipeline.store.artifacts import Store


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/me/work/runs/a/x.json: line 3", "x.json: line 3"),
        ("in /home/me/work/data/nq.jsonl, twice", "in ../../data/nq.jsonl, twice"),
        ("data=/home/me/else", "data=../../../else"),
        ("'/mnt/disk/wiki.txt' and /opt/b/c", "'…/wiki.txt' and …/c"),
        ("/home/other/secret/x", "…/x"),
        ("a /home/jane doe (x)/p/data, /home/jane doe (x)/p/runs/a/b", "a ../../data, b"),
        ("file:///mnt/disk/x", "…/x"),
        ("see https://example.org/a/b and s3://bucket/a/b", None),
        ("../../data/nq.jsonl or a/b/c and/or/not, …/x, ~/a/b", None),
        ("</script></b>", None),
        ("1/2/3 of /s", None),
    ],
)
def test_no_path_in_a_text_is_absolute(text, shown):
    home = "/home/jane doe (x)/p/runs/a" if "jane" in text else "/home/me/work/runs/a"
    assert relative_paths(text, Path(home)) == (text if shown is None else shown)


def test_an_interrupted_write_leaves_the_old_file_alone(tmp_path, monkeypatch):
    write_file(tmp_path / "a.json", b"old")

    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_file(tmp_path / "a.json", b"new")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a.json", b"old")]


def test_a_half_written_file_stays_for_a_day(tmp_path):
    new, old = (half_written(tmp_path / "a.json", seconds) for seconds in (80_000, 90_000))
    remove_parts(tmp_path, "b.json")
    assert sorted(tmp_path.iterdir()) == sorted([new, old])
    remove_parts(tmp_path)
    assert list(tmp_path.iterdir()) == [new]


def test_special_files_are_not_read(tmp_path):
    (tmp_path / "zero.json").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "folder.json").mkdir()
    for path in sorted(tmp_path.iterdir()):
        with pytest.raises(DataError, match=rf"{path.name}: is not a regular file: remove it"):
            read_json(path)


def test_files_behind_links_are_below_a_folder_and_loops_end(tmp_path):
    top, other = tmp_path / "top", tmp_path / "other"
    for path in (top / "b" / "one", top / "b.txt", other / "deep" / "two"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    (top / "a").symlink_to(other)
    (top / "twice").symlink_to(other / "deep")
    (other / "up").symlink_to(top)
    (other / "self").symlink_to(other)
    (top / "lost").symlink_to(tmp_path / "nowhere")
    (top / "round").symlink_to(top / "round")
    names = [path.relative_to(top).as_posix() for path in files_below(top)]
    assert names == ["a/deep/two", "b/one", "b.txt", "twice/two"]


def model_of(folder, index, names):
    (folder / "config.json").write_text("{}")
    shards = {f"weight {number}": name for number, name in enumerate(names)}
    (folder / index).write_text(json.dumps({"weight_map": shards}))
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"x")


@pytest.mark.parametrize("index", ["model.safetensors.index.json", "pytorch_model.bin.index.json"])
def test_weights_are_those_that_an_index_names(tmp_path, index):
    model_of(tmp_path, index, ["sub/one.safetensors", "two", "three.bin"])
    names = {path.relative_to(tmp_path).as_posix() for path in weights_in(tmp_path)}
    assert names == {"sub/one.safetensors", "two", "three.bin"}


def test_weights_are_those_that_the_configuration_names(tmp_path):
    model_of(tmp_path, "mine.safetensors.index.json", ["sub/one"])
    (tmp_path / "mine.safetensors.index.json").rename(tmp_path / "sub" / "index.json")
    for name, known in {"sub/index.json": {"one"}, "sub/one": {"one"}, "gone": set()}.items():
        (tmp_path / "config.json").write_text(json.dumps({"transformers_weights": name}))
        assert {path.name for path in weights_in(tmp_path)} == known


@pytest.mark.parametrize("name", ["../ext/w.safetensors", "/ext/w.safetensors", "sub/../../w"])
def test_an_index_that_leads_out_of_its_folder_is_an_error(tmp_path, name):
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(ConfigError, match=r"names weights outside of its folder .*save_pretrained"):
        weights_in(tmp_path)


def test_a_full_folder_of_temporary_files_is_named(small_disk, tmp_path, monkeypatch):
    packed, folder = tmp_path / "it.parquet.gz", small_disk("size=100k")
    packed.write_bytes(gzip.compress(os.urandom(200_000)))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    line = refused(lambda: list(readers.rows(packed)), error=StoreError)
    assert line.startswith(f"{packed}: no room to unpack it in {folder} (No space left")
    assert "$TMPDIR" in line

    def compute():
        written = Store(tmp_path / "store").write("0" * 64, {})
        with written, tempfile.TemporaryDirectory() as temporary:
            (Path(temporary) / "file").write_bytes(b"x" * 200_000)

    line = refused(compute, error=StoreError)
    assert line.startswith(f"the folder of temporary files, {folder}, is full (No space left")
    assert "$TMPDIR" in line
    with (folder / "rest").open("wb", buffering=0) as rest:
        rest.write(b"x" * 200_000)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(folder)])
    with pytest.raises(OSError) as caught:
        tempfile.mkdtemp()
    line = _line(caught.value)
    assert "No usable temporary directory" in line and "$TMPDIR" in line
