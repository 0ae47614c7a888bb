"""A packed run is joined by somebody who has neither its folder nor its store."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from pathlib import Path

import fake_hub
import folders
import pytest

from maskpolicy.errors import ConfigError, DataError
from maskpolicy.runs import packing


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
    gone, alive = 4_000_000, os.getppid()
    names = [f".{name}.{writer}.part" for name in ("a.zip", "b.zip") for writer in (gone, alive)]
    for name in names:
        (tmp_path / name).write_text("half")
    packing.pack(run, tmp_path / "a.zip")
    left = {path.name for path in tmp_path.glob(".*")}
    assert left == {*names[1:]}


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
        packing.folders([tmp_path / "it.zip"]),
    ):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["it.zip"]


def test_a_zip_file_that_is_too_large_is_refused(tmp_path, run, monkeypatch):
    packing.pack(run, tmp_path / "it.zip")
    monkeypatch.setattr(packing, "_BYTES", 10)
    with pytest.raises(DataError, match="too many"), packing.folders([tmp_path / "it.zip"]):
        pass


def test_other_zip_files_are_one_line(refused, tmp_path):
    (tmp_path / "bad.zip").write_text("no zip")
    assert "is no zip file that can be read" in refused("leaderboard", tmp_path / "bad.zip")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as file:
        file.writestr("a/b.txt", "x")
    assert "make it with `pack`" in refused("leaderboard", tmp_path / "other.zip")
    assert "nowhere.zip" in refused("leaderboard", tmp_path / "nowhere.zip")


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
