"""A store with a bucket returns the committed bytes on any machine, or nothing."""

import itertools
import json
import logging
import shutil
from datetime import timedelta
from functools import partial
from uuid import uuid4

import clusters
import forked
import pytest
import tiny
from stores import KEY, OTHER, below, commit, killed_often, names, text_of

from maskpolicy.core.errors import StoreError
from maskpolicy.core.keys import digest
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.store import manifest
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.pipeline.store.bucket import Bucket, open_bucket
from maskpolicy.pipeline.store.mirror import Mirror
from maskpolicy.pipeline.store.opening import open_store
from maskpolicy.pipeline.store.upkeep import copy

OF_ALL_KINDS = pytest.mark.parametrize("url", ["file", "s3"], indirect=True)


@pytest.fixture
def host(url, tmp_path):
    """Return a function that opens the bucket as a machine, which is named by its cache."""
    return lambda name="here": open_store(url, tmp_path / name)


def spoil(bucket, text):
    """Change one bit of the file in the bucket that has a text."""
    (name,) = [n for n in below(bucket, "blobs") if bucket.read(n) == text.encode()]
    bucket.write(name, bytes([text.encode()[0] ^ 1]) + text.encode()[1:])


@OF_ALL_KINDS
def test_another_machine_finds_a_commit(host, bucket, url):
    here, there = host("here"), host("there")
    commit(here, text="hello", kind="x")
    assert here.place == there.place == url
    assert there.peek(KEY) == there.recall(KEY) == here.get(KEY).manifest
    assert text_of(there) == "hello"
    assert there.get(KEY).manifest == here.get(KEY).manifest
    assert there.committed() == {KEY}
    assert names(here, "temporary", "locks") == names(there, "temporary", "locks") == []
    commit(here, OTHER, "two")
    assert len(below(bucket, "blobs")) == 3  # a file that both have lies there once
    bucket.delete(below(bucket, "blobs"))
    assert text_of(host("there")) == "hello"  # it is not fetched again
    shutil.rmtree(here.root)
    assert host("here").get(KEY) is None


def test_processes_of_a_machine_fetch_at_the_same_time(host, monkeypatch):
    commit(host("here"), text="hello")
    one, two, pull = host("there"), host("there"), Mirror.pull

    def pull_beside(self, key, folder, withdraws):
        two.tidy(KEY)
        with two.lock(KEY), two.disk.temporary(KEY):
            return pull(self, key, folder, withdraws)

    def pull_late(self, key, folder, withdraws):  # another process commits meanwhile
        sealed = pull(self, key, folder, withdraws)
        shutil.copytree(folder, two.path(KEY))
        return sealed

    monkeypatch.setattr(Mirror, "pull", pull_beside)
    assert text_of(one) == text_of(two) == "hello"
    assert names(one, "temporary", "locks") == []
    two.forget(KEY)
    monkeypatch.setattr(Mirror, "pull", pull_late)
    assert text_of(one) == "hello"


def test_a_damaged_copy_is_fetched_again(host):
    path = commit(host(), text="hello") / "deep" / "file.txt"
    path.write_text("jello")
    assert text_of(host()) == "hello"
    path.unlink()
    assert text_of(host()) == "hello"


def test_a_file_that_arrives_damaged_is_fetched_once_more(host, monkeypatch, caplog):
    commit(host("here"), text="hello")
    download, damaged = Bucket.download, set()

    def download_badly(self, name, path):
        sha256 = download(self, name, path)
        if name in damaged:
            return sha256
        damaged.add(name)
        path.write_text("half")
        return "0" * 64

    monkeypatch.setattr(Bucket, "download", download_badly)
    assert text_of(host("there")) == "hello"
    assert len(damaged) == 2
    assert not caplog.records


def stranger(bucket, change):
    """Let a function change a manifest so that its own digest is right."""
    changed = json.loads(bucket.read(f"artifacts/{KEY}.json"))
    change(changed)
    del changed["sha256"]
    content = manifest.encode(changed | {"sha256": digest(changed)})
    bucket.write(f"artifacts/{KEY}.json", content)


DAMAGES = {
    "a flipped bit": lambda bucket: spoil(bucket, "hello"),
    "no files": lambda bucket: bucket.delete(below(bucket, "blobs")),
    "an empty manifest": lambda bucket: bucket.write(f"artifacts/{KEY}.json", b""),
    "another manifest": lambda bucket: bucket.write(f"artifacts/{KEY}.json", b"[1]"),
    "a file outside": lambda bucket: stranger(
        bucket, lambda sealed: sealed["files"][0].update(path="../../../outside")
    ),
    "another record": lambda bucket: stranger(
        bucket, lambda sealed: sealed["record"].update(version=2)
    ),
}


@OF_ALL_KINDS
@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_damaged_in_the_bucket_is_computed_again(host, bucket, damage, caplog, tmp_path):
    commit(host("here"), text="hello")
    DAMAGES[damage](bucket)
    there = host("there")
    if damage in ("an empty manifest", "another manifest"):
        assert there.peek(KEY) is None  # as a run looks for stages that others need
    assert there.verify(KEY) is not None
    assert copy(there, Store(tmp_path / "copy")).damaged == [KEY]
    assert below(bucket, "quarantine") == []  # a copy changes nothing
    assert there.get(KEY) is None
    assert "an artifact is damaged and will be computed again" in caplog.text
    assert len(below(bucket, "quarantine")) == 1
    commit(there, text="hello")
    assert there.verify(KEY) is None
    assert text_of(host("elsewhere")) == "hello"
    assert not list(tmp_path.rglob("outside"))


@pytest.mark.parametrize("text", ["first", "second"])
def test_both_compute_the_first_commit_stays_and_a_difference_is_logged(host, text, caplog):
    here, there = host("here"), host("there")
    commit(here, text=text, meanwhile=partial(commit, there, text="first"))
    told = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert len(told) == (text == "second")
    assert all("was computed twice" in line and "(deep/file.txt)" in line for line in told)
    assert [text_of(each) for each in (here, there, host("third"))] == ["first"] * 3


def test_a_file_that_prune_might_remove_is_written_again(host, bucket, monkeypatch):
    commit(host("here"), KEY)
    monkeypatch.setattr("maskpolicy.pipeline.store.bucket.GRACE", timedelta(0))  # it is old
    upload, written = Bucket.upload, []

    def counted(self, path, name):
        written.append(name if upload(self, path, name) else None)
        return written[-1] is not None

    monkeypatch.setattr(Bucket, "upload", counted)
    commit(host("here"), OTHER)
    assert set(written) == set(below(bucket, "blobs"))


def test_a_dropped_artifact_leaves_its_manifest_and_the_files_of_others(host, monkeypatch):
    here, there = host("here"), host("there")
    commit(here, KEY, "one")
    commit(here, OTHER, "two")
    there.get(KEY)
    read, seen = Bucket.read, []
    monkeypatch.setattr(Bucket, "read", lambda self, name: seen.append(name) or read(self, name))
    assert there.drop(KEY)
    assert not any(OTHER in name for name in seen)
    assert not there.path(KEY).exists() and there.get(KEY) is None
    here.drop(KEY)  # as it looks there still for a moment
    assert there.recall(KEY)["key"] == host("new").recall(KEY)["key"] == KEY
    assert text_of(host("elsewhere"), OTHER) == "two"
    commit(there, KEY, "one")
    assert text_of(host("elsewhere")) == "one"


class Interrupted:
    """A bucket that calls a function before its n-th request."""

    def __init__(self, bucket, moment, call):
        self.url, self.bucket, self.moment, self.call = bucket.url, bucket, moment, call

    def __getattr__(self, name):
        self.moment -= 1
        if self.moment == -1:
            self.call()
        return getattr(self.bucket, name)


def drop(store):
    commit(store, OTHER, "other")
    store.drop(KEY)


@pytest.mark.parametrize("first", [commit, drop])
@pytest.mark.parametrize("second", [commit, drop])
def test_before_each_request_another_machine_does_all_of_its_work(first, second, tmp_path, caplog):
    for moment in itertools.count():
        bucket = open_bucket(f"memory://{uuid4().hex}")
        there = Store(tmp_path / f"{moment} there", Mirror(bucket))
        commit(there)
        if first is commit:
            there.drop(KEY)
        interrupted = Interrupted(bucket, moment, partial(second, there))
        first(Store(tmp_path / f"{moment} here", Mirror(interrupted)))
        last = Store(tmp_path / f"{moment} last", Mirror(bucket))
        assert last.recall(KEY)["key"] == KEY
        assert [last.verify(key) for key in last.committed()] == [None] * len(last.committed())
        assert below(bucket, "quarantine") == []
        if interrupted.moment >= 0:
            break
    assert moment > 5
    assert not caplog.records


RUN = """
import tiny
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.store.opening import open_store
"""


@OF_ALL_KINDS
def test_two_machines_end_with_the_same_bytes(url, tmp_path):
    def run(cache):
        at = f"open_store({url!r}, {str(tmp_path / cache)!r})"
        return forked.Script(f"{RUN}execute(tiny.diamond(pause=0.02), {at})")

    running = [run("one"), run("two")]
    assert [clusters.finish(each) for each in running] == ["", ""]
    third = open_store(url, tmp_path / "third")
    for stage in tiny.diamond():
        third.get(stage.key)
    assert tiny.content(third, tiny.diamond()) == tiny.alone(tiny.diamond())


@pytest.mark.slow
def test_a_machine_that_is_killed_at_some_request_leaves_nothing_broken():
    assert killed_often("tiny_bucket.py", "killed", "23") > 100


def test_a_stage_takes_few_requests_and_is_fetched_by_one_for_its_manifest_and_each_file(
    tmp_path, server
):
    first, second = (tiny.node(f"stage {number}", number, every=9) for number in range(2))
    store = open_store(server.url, tmp_path / "here")
    execute([first], store)  # the first commit of a process prepares the bucket, too
    server.requests.clear()
    execute([second], store)
    assert len(server.requests) < 30
    other = open_store(server.url, tmp_path / "there")
    server.requests.clear()
    assert other.get(second.key) is not None
    assert len(server.requests) == 1 + 2


def test_each_bucket_has_a_folder_in_the_cache(tmp_path):
    caches = [open_store(f"memory://{uuid4().hex}", tmp_path).root for _ in range(2)]
    assert len(set(caches)) == 2
    assert all(cache.parent == tmp_path for cache in caches)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cache .*: cannot be written: .*--cache or \$MASKPOLICY"):
        open_store("memory://x", tmp_path / "file")
