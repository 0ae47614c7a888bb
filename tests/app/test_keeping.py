"""maskpolicy store: copy, verify, measure and prune folders and buckets."""

import json
import os
import time
from pathlib import Path

import pytest
from small import EXPERIMENT
from stores import FOURTH, KEY, OTHER, THIRD, commit, names, text_of
from tiny import node

from maskpolicy.app.file_to_folder import _damaged
from maskpolicy.core import hardware
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.pipeline.store.opening import open_store
from maskpolicy.pipeline.store.upkeep import size

KEYS = [KEY, OTHER, THIRD]


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


def texts(store):
    return {key: text_of(store, key) for key in sorted(store.committed())}


def test_artifacts_travel_with_their_manifests_and_fill_no_cache(call, done, folder, url, tmp_path):
    assert call("store", "copy", folder, url)[:2] == (0, f"3 artifacts copied to {url}\n")
    done("store", "copy", url, tmp_path / "back")
    assert names(open_store(url, tmp_path / "cache"), "artifacts") == []
    one, two = Store(folder), Store(tmp_path / "back")
    assert texts(one) == texts(two) == texts(open_store(url, tmp_path / "other"))
    assert [one.peek(key) for key in KEYS] == [two.peek(key) for key in KEYS]
    commit(one, FOURTH, "new")
    for number in (1, 0):
        said = f"{number} artifacts copied to {url}\n"
        assert call("store", "copy", folder, url)[1] == said


def test_only_what_a_run_used_is_copied(call, folder, url, tmp_path):
    Store(folder).drop(KEYS[1])  # as a run drops what nothing needs again
    stages = [{"key": key} for key in (KEYS[0], KEYS[1], "e" * 64)]
    (tmp_path / "run.json").write_text(json.dumps({"stages": stages}))
    code, out, _ = call("store", "copy", folder, url, "--run", tmp_path)
    assert (code, out) == (0, f"1 artifacts copied to {url}, 1 not in {folder}\n")


def test_different_and_damaged_artifacts_are_named_and_not_copied(call, folder, url):
    commit(open_store(url), KEYS[0], "other")
    (Path(folder) / "artifacts" / KEYS[1] / "deep/file.txt").write_text("jext 1")
    code, out, err = call("store", "copy", folder, url)
    assert (code, out) == (1, f"1 artifacts copied to {url}\n")
    assert f"{KEYS[0]} has different files in both: deep/file.txt" in err
    assert f"{KEYS[1]} is damaged in {folder}: not copied" in err
    assert texts(open_store(url)) == {KEYS[0]: "other", KEYS[2]: "text 2"}


def test_artifacts_that_a_gpu_computed_may_differ(call, done, tmp_path, monkeypatch, caplog):
    """Stages of other kinds, and those of CPUs, may not."""
    monkeypatch.setattr(hardware, "gpu_in_use", lambda: "H100")
    one, two = Store(tmp_path / "one"), Store(tmp_path / "two")
    for kind, key in (("corpus", KEYS[0]), ("finetune", KEYS[1])):
        for store, text in ((one, "a"), (two, "b"), (two, "c")):
            with store.write(key, {"kind": kind}) as out:
                (out / "file.txt").write_text(text)
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
    assert "H100 rounds differently each time" in caplog.messages[1]
    code, _, err = call("store", "copy", one.root, two.root)
    assert code == 1
    assert f"{KEYS[1]} has different files in both, as H100 rounds differently each time: f" in err
    one.drop(KEYS[0])
    done("store", "copy", one.root, two.root)


@pytest.mark.parametrize("place", ["folder", "url"])
def test_verify_finds_what_is_damaged_and_du_measures(call, folder, url, place):
    call("store", "copy", folder, url)
    where = {"folder": str(folder), "url": url}[place]
    code, out, _ = call("store", "du", "--store", where)
    assert (code, "artifacts" in out) == (0, True)
    assert ["train", "3", "93", "B"] in [line.split() for line in out.splitlines()]
    code, out, _ = call("store", "verify", "--store", where)
    assert (code, out) == (0, f"3 artifacts, 0 damaged: {where}\n")
    root = Path(folder) if place == "folder" else Path(url.removeprefix("file://"))
    (path,) = [path for path in root.rglob("*") if path.is_file() and path.read_text() == "text 1"]
    path.write_text("jext 1")
    code, out, err = call("store", "verify", "--store", where)
    assert code == 1
    assert "does not match" in out and "3 artifacts, 1 damaged" in out
    assert "computes it again" in err


def test_a_run_that_verifies_a_bucket_repairs_it_although_its_own_copies_are_whole(url, tmp_path):
    a, store = node("a"), open_store(url, tmp_path / "cache")
    execute([a], store)
    store.get(a.key)
    (path, *_) = (tmp_path / "bucket" / "blobs").rglob("*/*/*")
    path.write_bytes(b"damaged")
    assert list(_damaged([a], store)) == [a]
    assert not execute([a], store)[a.key].hit
    assert store.verify(a.key) is None


def test_prune_prints_what_it_frees(call, folder):
    (Path(folder) / "quarantine" / f"{KEYS[0]}-x").mkdir(parents=True)
    (Path(folder) / "quarantine" / f"{KEYS[0]}-x" / "file").write_text("x" * 1000)
    assert call("store", "prune", "--store", folder)[1] == f"freed 1000 B of {folder}\n"
    assert Store(folder).committed() == set(KEYS)


def test_prune_shrinks_the_cache_to_a_size(call, done, folder, url, tmp_path):
    call("store", "copy", folder, url)
    store = open_store(url, tmp_path / "cache")
    assert list(texts(store)) == names(store, "artifacts") == KEYS
    for age, key in enumerate(KEYS):
        past = time.time() - 7200 - age * 100
        os.utime(store.path(key) / "MANIFEST.json", (past, past))
    for most, left in ((f"{size(store)['cache'] - 100}", KEYS[:2]), ("0GB", [])):
        done("store", "prune", "--store", url, "--cache-size", most)
        assert names(store, "artifacts") == left
    assert list(texts(store)) == KEYS


@pytest.fixture
def place(here, server, monkeypatch):
    """Return a folder with an experiment, in which commands reach the server."""
    monkeypatch.setenv("MASKPOLICY_CACHE", str(here / "cache"))
    (here / "tiny.yaml").write_text(EXPERIMENT)
    return here


@pytest.mark.slow
def test_a_run_in_a_bucket_equals_one_in_a_folder(place, server, done):
    url = server.url
    done("run", "tiny.yaml", "--store", url, "--out", "one", "--jobs", 1)
    done("run", "tiny.yaml", "--store", "store", "--out", "two", "--jobs", 1)
    for name in ("leaderboard.json", "leaderboard.md"):
        assert (place / "one" / name).read_bytes() == (place / "two" / name).read_bytes()
    assert json.loads((place / "one" / "run.json").read_text())["store"] == url

    # another machine, whose cache is empty
    elsewhere = ("--store", url, "--cache", place / "elsewhere")
    out, _ = done("plan", "tiny.yaml", *elsewhere)
    assert ("to do" in out, "done" in out) == (False, True)
    done("run", "tiny.yaml", *elsewhere, "--out", "three")
    board = (place / "one" / "leaderboard.json").read_bytes()
    assert (place / "three" / "leaderboard.json").read_bytes() == board
    copies = [path.name for path in (place / "elsewhere").glob("*/artifacts/*")]
    assert len(copies) < len(server.objects) / 4  # what nothing needs stays in the bucket
    words = ("export", "one", "random", "--out", "model", *elsewhere)
    done(*words)
    assert (place / "model" / "model.safetensors").is_file()


def test_a_url_that_a_run_names_is_not_opened_unless_it_is_given(place, refused):
    (place / "run.json").write_text('{"store": "s3://somebody/else"}')
    (place / "results").mkdir()
    line = refused("analyze", "coverage", place)
    assert "names the store s3://somebody/else" in line
    assert "if you trust it, add --store s3://somebody/else" in line


@pytest.mark.parametrize(
    "command",
    [
        ("run", "tiny.yaml"),
        ("plan", "tiny.yaml"),
        ("status", "tiny.yaml"),
        ("analyze", "coverage", "."),
        ("export", ".", "random", "--out", "model"),
        ("show", "random", "--text", "Some text."),
        ("pretrain", "--model", "mini", "--policy", "random", "--corpus", "t.txt", "--out", "m"),
        ("doctor",),
        *(("store", name) for name in ("verify", "du", "prune")),
    ],
)
def test_a_bucket_that_cannot_be_used_is_one_line_before_any_work(place, refused, command, server):
    (place / "t.txt").write_text("Some text.")
    line = refused(*command, "--store", "s3://another/prefix")
    assert "store s3://another/prefix: no such bucket: create it" in line
    assert not (place / "cache").exists()


def test_a_bucket_that_cannot_be_written_is_one_line_before_any_work(place, server, refused):
    server.denied = {"PUT"}
    line = refused("run", "tiny.yaml", "--store", f"s3://{server.name}/other")
    assert "no permission: check AWS_ACCESS_KEY_ID" in line


@pytest.mark.parametrize("place", ["folder", "url"])
def test_an_artifact_that_a_run_drops_while_a_store_is_verified_is_not_damaged(folder, url, place):
    store = open_store({"folder": str(folder), "url": url}[place])
    commit(store, KEY, "text")
    assert KEY in store.committed()
    store.drop(KEY)
    assert store.verify(KEY) is None


def test_the_folder_of_a_bucket_is_no_store(call, refused, folder, url):
    call("store", "copy", folder, url)
    place = url.removeprefix("file://")
    said = refused("store", "copy", folder, place)
    assert said == f"error: store {place}: holds a bucket: name its URL, {url} here\n"
