"""Commands take the URL of a bucket wherever they take a store."""

from __future__ import annotations

import json

import pytest
import s3
from small import EXPERIMENT


@pytest.fixture(scope="module")
def server():
    with s3.serve() as bucket:
        yield bucket


@pytest.fixture
def here(tmp_path, server, monkeypatch):
    """Return a folder with an experiment, in which commands reach the server."""
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASKPOLICY_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MASKPOLICY_STORE", raising=False)
    (tmp_path / "tiny.yaml").write_text(EXPERIMENT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_a_run_in_a_bucket_is_that_in_a_folder(here, server, call):
    url = server.url
    assert call("run", "tiny.yaml", "--store", url, "--out", "one", "--jobs", 1)[0] == 0
    assert call("run", "tiny.yaml", "--store", "store", "--out", "two", "--jobs", 1)[0] == 0
    for name in ("leaderboard.json", "leaderboard.md"):
        assert (here / "one" / name).read_bytes() == (here / "two" / name).read_bytes()
    assert json.loads((here / "one" / "run.json").read_text())["store"] == url

    # another machine, whose cache is empty
    elsewhere = ("--store", url, "--cache", here / "elsewhere")
    code, out, _ = call("plan", "tiny.yaml", *elsewhere)
    assert (code, "to do" in out, "done" in out) == (0, False, True)
    assert call("run", "tiny.yaml", *elsewhere, "--out", "three")[0] == 0
    board = (here / "one" / "leaderboard.json").read_bytes()
    assert (here / "three" / "leaderboard.json").read_bytes() == board
    copies = [path.name for path in (here / "elsewhere").glob("*/artifacts/*")]
    assert len(copies) < len(server.objects) / 4  # what nothing needs stays in the bucket
    words = ("export", "one", "random", "--out", "model", *elsewhere)
    assert call(*words)[0] == 0
    assert (here / "model" / "model.safetensors").is_file()


def test_a_url_that_a_run_names_is_not_called_unasked(here, refused):
    (here / "run.json").write_text('{"store": "s3://somebody/else"}')
    (here / "results").mkdir()
    line = refused("analyze", "coverage", here)
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
def test_a_bucket_that_cannot_be_used_is_one_line_before_any_work(here, refused, command, server):
    (here / "t.txt").write_text("Some text.")
    line = refused(*command, "--store", "s3://another/prefix")
    assert "store s3://another/prefix: no such bucket: create it" in line
    assert not (here / "cache").exists()


def test_a_bucket_that_cannot_be_written_is_one_line_before_any_work(here, server, refused):
    server.denied = {"PUT"}
    try:
        line = refused("run", "tiny.yaml", "--store", f"s3://{server.name}/other")
    finally:
        server.denied = set()
    assert "no permission: check AWS_ACCESS_KEY_ID" in line
