"""Packed runs are read without their folder and store."""

import gc
import json
import shutil
import zipfile
from pathlib import Path

import folders
import pytest

import maskpolicy as mp
from maskpolicy.app import packing
from maskpolicy.core.errors import ConfigError, DataError


@pytest.fixture
def run() -> Path:
    return folders.write(Path("mine"), {"none": 0.2, "random": 0.6}, n=12)


@pytest.fixture
def packed(run) -> Path:
    return packing.pack(run, Path("it.zip"))


def board(call, *words: object) -> dict:
    return json.loads(call("leaderboard", *words, "--json")[1])


def test_a_packed_run_gives_the_same_leaderboard(call, done, run):
    (run / "logs").mkdir()
    (run / "logs" / "events").write_text("large")
    (run / "notes.txt").write_text("of the user")
    expected = board(call, run)
    assert call("pack", run, "--out", "it.zip")[:2] == (0, "written to it.zip\n")
    assert packing.pack(run, Path("b.zip")).read_bytes() == Path("it.zip").read_bytes()
    names = zipfile.ZipFile("it.zip").namelist()
    assert {name.split("/")[0] for name in names} == {"mine"}
    assert not any("logs" in name or "notes" in name for name in names)
    other = folders.write(Path("other"), {"none": 0.2, "span": 0.4}, n=12)
    joined = board(call, packing.pack(other, Path("other.zip")), run)
    assert {row["policy"] for row in joined["rows"]} == {"none", "random", "span"}
    shutil.rmtree(run)
    assert board(call, "it.zip") == expected
    done("leaderboard", "it.zip", "--html", "it.html")
    assert "random" in Path("it.html").read_text()


def test_runs_of_one_name_are_packed_to_files_of_their_own(call):
    for place in ("runs/findings/a", "runs/paper/a", "runs/a", "a"):
        folders.write(Path(place), {"none": 0.2}, n=12)
    names = [packing.default_file(Path(place)).name for place in ("runs/a", "a", "runs/paper/a")]
    assert names == ["a.zip", "a.zip", "paper__a.zip"]
    assert call("pack", "runs/findings/a")[1] == "written to findings__a.zip\n"
    assert zipfile.ZipFile("findings__a.zip").namelist()[0].startswith("a/")


def test_a_zip_file_that_is_too_large_is_an_error(packed, monkeypatch):
    monkeypatch.setattr(packing, "_BYTES", 10)
    with pytest.raises(DataError, match="too many"), packing.opened([packed]):
        pass


def test_a_packed_run_is_read_like_its_folder(call, run, packed):
    loaded = mp.load(packed, store="store")
    assert loaded.scores().equals(mp.load(run, store="store").scores())
    assert len(loaded.answers(policy="random", task="zsre")) == 36
    folder = loaded.runs[0].folder
    words = ("--json", "--store", "store")
    of_run, of_packed = (call("analyze", "coverage", each, *words) for each in (run, packed))
    assert of_run[:2] == of_packed[:2] and of_run[0] == 0
    assert "a packed run: --out DIR writes" in of_packed[2]
    del loaded
    gc.collect()
    assert not folder.exists()


@pytest.mark.parametrize(
    "words",
    [
        ("analyze", "lengths", "it.zip"),
        ("show", "random", "--text", "Ada met Bob.", "--run", "it.zip"),
        ("export", "--out", "model", "--task", "zsre", "it.zip", "random"),
    ],
)
def test_errors_say_that_a_packed_run_has_no_store(refused, run, words):
    folders.change(run, "*", stages={"tokenizer mini": "0" * 64})
    packing.pack(run, Path("it.zip"))
    said = refused(*words)
    assert "it.zip: a packed run has no store" in said
    assert "name the store of that run with --store" in said
    with pytest.raises(mp.MaskpolicyError, match="a packed run has no store") as caught:
        mp.load("it.zip").plot("lengths")
    assert "--store" not in str(caught.value)


def test_a_run_goes_to_the_hub_and_is_joined_from_there(call, done, refused, hub, run):
    expected, push = board(call, run), ("pack", run, "--out", "mine.zip", "--push", "me/results")
    out, _ = done(*push, "--private")
    assert "pushed to https://hub/datasets/me/results" in out
    assert "maskpolicy leaderboard hf://datasets/me/results" in out
    assert hub.private == {"datasets/me/results": True}
    assert hub.files["datasets/me/results"] == {"mine.zip": Path("mine.zip").read_bytes()}
    hub.files["datasets/me/results@refs/pr/1"] = hub.files["datasets/me/results"]
    for revision in ("", "@refs/pr/1"):
        assert board(call, f"hf://datasets/me/results{revision}") == expected
    assert call(*push)[0] == 0  # into the repository that is there
    line = refused("leaderboard", "hf://datasets/me/nothing")
    assert "hf://datasets/me/nothing: cannot be fetched: 404" in line
    assert "error: --push another/it: 403" in call(*push[:-1], "another/it")[2]
    hub.is_reachable = False
    assert "cannot be reached" in call(*push)[2]


def test_a_joined_board_does_not_replace_the_board_of_a_run(done, refused, run):
    other = folders.write(Path("other"), {"none": 0.2, "span": 0.4}, n=12)
    assert "--out mine: holds a run" in refused("leaderboard", run, other, "--out", run)
    assert not (run / "leaderboard.json").exists()
    done("leaderboard", run, other, "--out", "both")
    done("leaderboard", run, other, "--out", "both")


def test_a_page_of_several_runs_replaces_neither_that_of_a_run_nor_given_scores(refused, done, run):
    other = folders.write(Path("other"), {"none": 0.2, "span": 0.4}, n=12)
    page = run / "leaderboard.html"
    assert f"--html {page}: holds a run" in refused("leaderboard", run, other, "--html", page)
    both = mp.load(run, other)
    for save, path in ((both.page, page), (both.save, run)):
        with pytest.raises(ConfigError, match=f"{path}.*: holds a run, whose own board"):
            save(path)
    Path("it.csv").write_text("system,example,score\na,1,0\na,2,1\nb,1,1\nb,2,0\n")
    done("board", "it.csv", "--out", "given")
    assert "given: holds given scores" in refused("leaderboard", run, "--out", "given")
    Path("results").mkdir()  # of the user's own
    assert both.page("leaderboard.html").is_file()


def test_a_tilde_in_an_option_or_argument_is_the_home_folder(done, run, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    done("leaderboard", run, "--html=~/it.html", "--out=~/forms")
    assert mp.load(run).save("~/saved") == tmp_path / "home" / "saved"
    shutil.copytree(run, tmp_path / "home" / "run")
    assert mp.load("~/run").scores()["score"].equals(mp.load(run).scores()["score"])
    assert len(list((tmp_path / "home").iterdir())) == 4
    assert not Path("~").exists()
