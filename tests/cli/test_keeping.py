"""Stores are copied, verified, measured and pruned by commands."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from maskpolicy.store.artifacts import Store
from maskpolicy.store.opening import open_store
from maskpolicy.store.upkeep import folder_size

KEYS = [letter * 64 for letter in "abc"]


@pytest.fixture
def folder(tmp_path):
    """Return the path of a store with three artifacts."""
    store = Store(tmp_path / "store")
    for number, key in enumerate(KEYS):
        commit(store, key, f"text {number}")
    return store.root


@pytest.fixture
def url(tmp_path, monkeypatch):
    """Return the URL of an empty bucket, whose cache is in the environment."""
    (tmp_path / "bucket").mkdir()
    monkeypatch.setenv("MASKPOLICY_CACHE", str(tmp_path / "cache"))
    return f"file://{tmp_path}/bucket"


def commit(store, key, text):
    with store.write(key, {"kind": "train"}) as out:
        (out / "deep").mkdir()
        (out / "deep" / "file.txt").write_text(text)


def texts(store):
    return {key: (store.get(key).path / "deep/file.txt").read_text() for key in store.committed()}


# copy


def test_artifacts_travel_with_their_manifests(call, folder, url, tmp_path):
    assert call("store", "copy", folder, url)[:2] == (0, f"3 artifacts copied to {url}\n")
    assert call("store", "copy", url, tmp_path / "back")[0] == 0
    one, two = Store(folder), Store(tmp_path / "back")
    assert texts(one) == texts(two) == texts(open_store(url, tmp_path / "other"))
    assert [one.peek(key) for key in KEYS] == [two.peek(key) for key in KEYS]


def test_a_copy_from_or_to_a_bucket_fills_no_cache(call, folder, url, tmp_path):
    call("store", "copy", folder, url)
    call("store", "copy", url, tmp_path / "back")
    assert open_store(url, tmp_path / "cache").copies() == []


def test_a_repeated_copy_copies_what_is_missing(call, folder, url):
    call("store", "copy", folder, url)
    commit(Store(folder), "d" * 64, "new")
    assert call("store", "copy", folder, url)[1] == f"1 artifacts copied to {url}\n"
    assert call("store", "copy", folder, url)[1] == f"0 artifacts copied to {url}\n"


def test_only_what_a_run_used_is_copied(call, folder, url, tmp_path):
    stages = [{"key": KEYS[0]}, {"key": "e" * 64}]
    (tmp_path / "run.json").write_text(json.dumps({"stages": stages}))
    Store(folder).drop(KEYS[1])  # as a run drops what nothing needs again
    stages.append({"key": KEYS[1]})
    (tmp_path / "run.json").write_text(json.dumps({"stages": stages}))
    code, out, _ = call("store", "copy", folder, url, "--run", tmp_path)
    assert (code, out) == (0, f"1 artifacts copied to {url}, 1 not in {folder}\n")


def test_different_results_of_one_stage_are_told(call, folder, url):
    commit(open_store(url), KEYS[0], "other")
    code, out, err = call("store", "copy", folder, url)
    assert (code, out) == (1, f"2 artifacts copied to {url}\n")
    assert f"{KEYS[0]} has different files in both: deep/file.txt" in err
    assert texts(open_store(url))[KEYS[0]] == "other"


def test_a_damaged_artifact_is_not_copied(call, folder, url):
    (Path(folder) / "artifacts" / KEYS[0] / "deep/file.txt").write_text("jext 0")
    code, out, err = call("store", "copy", folder, url)
    assert (code, out) == (1, f"2 artifacts copied to {url}\n")
    assert f"{KEYS[0]} is damaged in {folder}: not copied" in err


@pytest.mark.parametrize("command", ["verify", "du", "prune"])
def test_a_folder_that_is_no_store_is_refused(refused, tmp_path, command):
    (tmp_path / "notes.txt").touch()
    line = refused("store", command, "--store", tmp_path)
    assert "nothing has written artifacts there: name another folder" in line


def test_a_copy_needs_two_stores_that_exist(refused, folder, url, tmp_path):
    assert "there is no such folder" in refused("store", "copy", tmp_path / "none", url)
    assert "cannot be copied to itself" in refused("store", "copy", folder, folder)
    assert "holds no finished run" in refused("store", "copy", folder, url, "--run", tmp_path)
    assert "unknown kind of address" in refused("store", "copy", folder, "ftp://host/x")


# verify


@pytest.mark.parametrize("place", ["folder", "url"])
def test_verify_finds_what_is_damaged(call, folder, url, place):
    call("store", "copy", folder, url)
    where = {"folder": str(folder), "url": url}[place]
    code, out, _ = call("store", "verify", "--store", where)
    assert (code, out) == (0, f"3 artifacts, 0 damaged: {where}\n")
    root = Path(folder) if place == "folder" else Path(url.removeprefix("file://"))
    (path,) = [path for path in root.rglob("*") if path.is_file() and path.read_text() == "text 1"]
    path.write_text("jext 1")
    code, out, err = call("store", "verify", "--store", where)
    assert code == 1
    assert "does not match" in out
    assert "3 artifacts, 1 damaged" in out
    assert "computes it again" in err


# du


@pytest.mark.parametrize("place", ["folder", "url"])
def test_du_prints_bytes_by_folder_and_kind(call, folder, url, place):
    call("store", "copy", folder, url)
    code, out, _ = call("store", "du", "--store", {"folder": str(folder), "url": url}[place])
    assert code == 0
    assert "artifacts" in out
    assert ["train", "3", "18", "B"] in [line.split() for line in out.splitlines()]


# prune


def test_prune_is_the_one_of_doctor(call, folder):
    (Path(folder) / "quarantine" / f"{KEYS[0]}-x").mkdir(parents=True)
    (Path(folder) / "quarantine" / f"{KEYS[0]}-x" / "file").write_text("x" * 1000)
    assert call("store", "prune", "--store", folder)[1] == f"freed 1000 B of {folder}\n"
    assert Store(folder).committed() == set(KEYS)


def test_prune_shrinks_the_cache_to_a_size(call, folder, url, tmp_path):
    call("store", "copy", folder, url)
    store = open_store(url, tmp_path / "cache")
    assert set(texts(store)) == set(store.copies()) == set(KEYS)
    for age, key in enumerate(KEYS):
        past = time.time() - 7200 - age * 100
        os.utime(store.path(key) / "MANIFEST.json", (past, past))
    most = folder_size(store.root / "artifacts") - 100
    assert call("store", "prune", "--store", url, "--cache-size", f"{most}")[0] == 0
    assert store.copies() == KEYS[:2]
    assert call("store", "prune", "--store", url, "--cache-size", "0GB")[0] == 0
    assert store.copies() == []
    assert set(texts(store)) == set(KEYS)


def test_a_size_is_a_number_and_a_unit(refused, folder, url):
    for size in ("much", "9" * 400, "9" * 300 + "T"):
        assert "write a number and a unit" in refused("store", "prune", "--cache-size", size)
    for days in ("1e6", "inf"):
        line = refused("store", "prune", "--store", folder, "--older", days)
        assert "write a number of days" in line
    line = refused("store", "prune", "--store", folder, "--cache-size", "1GB")
    assert "only a bucket has a cache" in line
