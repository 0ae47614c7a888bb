"""A packed run is joined by somebody who has neither its folder nor its store."""

from __future__ import annotations

import gc
import json
import os
import shutil
import zipfile
from pathlib import Path

import fake_hub
import folders
import pytest
from folders import DEAD, half_written

import maskpolicy as mp
from maskpolicy.errors import ConfigError, DataError, StoreError
from maskpolicy.runs import packing
from maskpolicy.store.artifacts import Store

TOKENIZER = {"tokenizer mini": "0" * 64}
COUNTS = """
from dataclasses import dataclass

from maskpolicy import Findings, analysis


@analysis("counts")
@dataclass(frozen=True)
class Counts:
    '''How many results there are.'''

    def analyse(self, runs, store):
        return Findings(("n",), tuple({"n": len(run.results)} for run in runs))
"""


@pytest.fixture
def run(tmp_path) -> Path:
    return folders.write(tmp_path / "mine", {"none": 0.2, "random": 0.6}, n=12)


def board(call, *words: object) -> dict:
    return json.loads(call("leaderboard", *words, "--json")[1])


def test_a_packed_run_gives_the_same_leaderboard(call, run, tmp_path):
    (run / "logs").mkdir()
    (run / "logs" / "events").write_text("large")
    (run / "notes.txt").write_text("of the user")
    expected = board(call, run)
    code, out, _ = call("pack", run, "--out", tmp_path / "packed.zip")
    assert (code, out) == (0, f"written to {tmp_path / 'packed.zip'}\n")
    names = zipfile.ZipFile(tmp_path / "packed.zip").namelist()
    assert {name.split("/")[0] for name in names} == {"mine"}
    assert not any("logs" in name or "notes" in name for name in names)
    shutil.rmtree(run)
    assert board(call, tmp_path / "packed.zip") == expected


def test_equal_runs_are_packed_to_equal_bytes(run, tmp_path):
    packed = [packing.pack(run, tmp_path / name).read_bytes() for name in ("a.zip", "b.zip")]
    assert packed[0] == packed[1]


def test_what_a_killed_pack_left_is_removed_by_the_next_one(run, tmp_path):
    parts = [
        half_written(tmp_path / name, writer)
        for name in ("a.zip", "b.zip")
        for writer in (DEAD, os.getppid())
    ]
    packing.pack(run, tmp_path / "a.zip")
    assert [part.exists() for part in parts] == [False, True, True, True]


def test_a_packed_run_is_joined_with_a_folder(call, run, tmp_path):
    other = folders.write(tmp_path / "other", {"none": 0.2, "span": 0.4}, n=12)
    packing.pack(other, tmp_path / "other.zip")
    found = board(call, run, tmp_path / "other.zip")
    assert [row["policy"] for row in found["rows"]] == ["none", "random", "span"]


def test_a_page_is_made_from_a_packed_run(call, run, tmp_path):
    packing.pack(run, tmp_path / "it.zip")
    assert call("leaderboard", tmp_path / "it.zip", "--html", tmp_path / "it.html")[0] == 0
    assert "random" in (tmp_path / "it.html").read_text()


def test_a_folder_without_results_is_not_packed(refused, tmp_path):
    assert "no results" in refused("pack", tmp_path, "--out", tmp_path / "it.zip")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["../out.json", "/etc/out.json", "mine/../../out.json"])
def test_a_zip_file_that_leads_out_of_its_folder_is_refused(tmp_path, name):
    with zipfile.ZipFile(tmp_path / "it.zip", "w") as file:
        file.writestr(name, "{}")
    with (
        pytest.raises(DataError, match="leads out of its folder"),
        packing.opened([tmp_path / "it.zip"]),
    ):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["it.zip"]


def test_a_zip_file_that_is_too_large_is_refused(tmp_path, run, monkeypatch):
    packing.pack(run, tmp_path / "it.zip")
    monkeypatch.setattr(packing, "_BYTES", 10)
    with pytest.raises(DataError, match="too many"), packing.opened([tmp_path / "it.zip"]):
        pass


def test_other_zip_files_are_one_line(refused, tmp_path):
    (tmp_path / "bad.zip").write_text("no zip")
    assert "is no zip file that can be read" in refused("leaderboard", tmp_path / "bad.zip")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as file:
        file.writestr("a/b.txt", "x")
    assert "make it with `pack`" in refused("leaderboard", tmp_path / "other.zip")
    assert "nowhere.zip: no such file" in refused("leaderboard", tmp_path / "nowhere.zip")


@pytest.mark.parametrize("name", ["it.tar", "it", "it.ZIP"])
def test_a_file_of_another_kind_is_not_written(refused, run, tmp_path, name):
    said = refused("pack", run, "--out", tmp_path / name)
    assert f"{name}: `pack` writes a zip file: end the name in .zip" in said
    assert not (tmp_path / name).exists()


def test_runs_of_one_name_are_packed_to_files_of_their_own(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for place in ("runs/findings/a", "runs/paper/a", "runs/a", "a"):
        folders.write(Path(place), {"none": 0.2}, n=12)
    names = [packing.default_file(Path(place)).name for place in ("runs/a", "a", "runs/paper/a")]
    assert names == ["a.zip", "a.zip", "paper-a.zip"]
    assert call("pack", "runs/findings/a")[1] == "written to findings-a.zip\n"
    assert zipfile.ZipFile("findings-a.zip").namelist()[0].startswith("a/")


def test_a_packed_run_is_not_packed_again(refused, run, tmp_path):
    packed = packing.pack(run, tmp_path / "it.zip")
    assert "it.zip: is packed already" in refused("pack", packed, "--out", tmp_path / "b.zip")


def test_errors_name_the_zip_file(refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile("it.zip", "w") as file:
        file.writestr("mine/results/a.json", "[")
    said = refused("leaderboard", "it.zip")
    assert said.startswith("error: it.zip/mine/results/a.json: not JSON")
    with pytest.raises(DataError, match=r"^it\.zip/mine/results/a\.json: not JSON"):
        mp.load("it.zip")


def test_a_packed_run_is_read_like_its_folder(call, refused, run, tmp_path):
    packed = packing.pack(run, tmp_path / "it.zip")
    (tmp_path / "mine.py").write_text(COUNTS)
    words = ("--store", tmp_path / "store", "--plugin", tmp_path / "mine.py")
    loaded = mp.load(packed, store=tmp_path / "store")
    assert loaded.scores().equals(mp.load(run, store=tmp_path / "store").scores())
    assert len(loaded.answers(policy="random", task="zsre")) == 36
    folder = loaded.runs[0].folder
    found = [call("analyze", "counts", each, "--json", *words) for each in (run, packed)]
    assert found[0][:2] == found[1][:2] and found[0][0] == 0
    assert "a packed run: --out DIR writes" in found[1][2]
    del loaded
    gc.collect()
    assert not folder.exists()


@pytest.mark.parametrize(
    "words",
    [
        ("analyze", "lengths"),
        ("show", "random", "--text", "Ada met Bob.", "--run"),
        ("export", "--out", "model", "--task", "zsre"),
    ],
)
def test_what_needs_a_store_says_that_a_packed_run_has_none(
    refused, run, tmp_path, monkeypatch, words
):
    monkeypatch.chdir(tmp_path)
    for path in (run / "results").iterdir():
        result = json.loads(path.read_text())
        path.write_text(json.dumps({**result, "stages": result["stages"] | TOKENIZER}))
    packing.pack(run, Path("it.zip"))
    more = ("random",) if words[0] == "export" else ()
    said = refused(*words, "it.zip", *more)
    assert "it.zip: a packed run has no store" in said
    assert "name the store of that run with --store" in said


def test_what_a_folder_beside_a_packed_run_lacks_is_named(run, tmp_path):
    packed, store = packing.pack(run, tmp_path / "it.zip"), Store(tmp_path / "store")
    said = f"random: its corpus is not in the store {store.place}"
    with (
        packing.opened([run, packed]) as runs,
        pytest.raises(StoreError) as caught,
        runs.naming(store),
    ):
        raise StoreError(said)
    assert str(caught.value) == f"{said} ({packed}: a packed run has no store of its own)"


def test_a_figure_that_needs_a_store_says_so_in_words_of_python(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    packing.pack(run, Path("it.zip"))
    with pytest.raises(mp.MaskpolicyError, match="a packed run has no store") as caught:
        mp.load("it.zip").plot("lengths")
    assert "--store" not in str(caught.value)


def test_a_file_with_several_runs_is_none_to_show(refused, run, tmp_path):
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as file:
        for name in ("a", "b"):
            for path in sorted((run / "results").iterdir()):
                file.write(path, f"{name}/results/{path.name}")
    said = refused("show", "random", "--text", "a b", "--run", tmp_path / "two.zip")
    assert "two.zip: holds 2 runs: unpack it, and name one" in said


def test_a_damaged_zip_file_is_one_line(refused, run, tmp_path):
    packed = packing.pack(run, tmp_path / "it.zip")
    content = bytearray(packed.read_bytes())
    start = 30 + len(zipfile.ZipFile(packed).infolist()[0].filename)  # of the first file's data
    content[start : start + 8] = b"\xff" * 8
    packed.write_bytes(content)
    assert "is no zip file that can be read" in refused("leaderboard", packed)


@pytest.mark.parametrize("place", ["hf://me/it", "hf://datasets/me", "hf://datasets/me/../it"])
def test_a_name_that_is_none_of_the_hub_is_refused(place):
    with pytest.raises(ConfigError, match="write hf://datasets/OWNER/NAME"):
        packing.fetched(place)


@pytest.mark.slow
def test_a_run_goes_to_the_hub_and_is_joined_from_there(call, run, tmp_path):
    expected = board(call, run)
    packed = tmp_path / "mine.zip"
    with fake_hub.serving() as hub:
        words = ("pack", run, "--out", packed, "--push", "me/results", "--private")
        done = fake_hub.command(hub, tmp_path / "home", *words)
        assert done.returncode == 0, done.stderr
        assert f"pushed to {hub.address}/datasets/me/results" in done.stdout
        repository = hub.repositories["datasets/me/results"]
        assert repository.private
        assert repository.files["mine.zip"] == packed.read_bytes()
        place = "hf://datasets/me/results"
        assert f"maskpolicy leaderboard {place}" in done.stdout
        for _ in range(2):  # the second time from the cache
            done = fake_hub.command(hub, tmp_path / "other-home", "leaderboard", place, "--json")
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout) == expected
        done = fake_hub.command(hub, tmp_path / "home", "leaderboard", "hf://datasets/me/nothing")
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
        assert "hf://datasets/me/nothing: cannot be fetched" in done.stderr
        again = fake_hub.command(
            hub, tmp_path / "home", *words[:-1]
        )  # into the repository that is there
        assert again.returncode == 0, again.stderr
        refused = fake_hub.command(hub, tmp_path / "home", *words, token="another")
        assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)
        assert "error: --push me/results: " in refused.stderr
    done = fake_hub.command(hub, tmp_path / "home", *words)
    assert "cannot be reached" in done.stderr
