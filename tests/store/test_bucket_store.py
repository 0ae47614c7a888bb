"""A store in a bucket gives back what was committed from any machine, or nothing."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
import s3
import tiny_bucket
from hypothesis import example, given, settings
from hypothesis import strategies as st
from turns import Turns

from maskpolicy.errors import ClaimLost, StoreError
from maskpolicy.graph.execution import execute
from maskpolicy.graph.nodes import Stage, stage
from maskpolicy.keys import digest
from maskpolicy.store import manifest
from maskpolicy.store.bucket import MARKER, Bucket, open_bucket
from maskpolicy.store.bucket_claims import BucketClaims
from maskpolicy.store.bucket_store import BucketStore
from maskpolicy.store.holders import this_process
from maskpolicy.store.opening import open_store

KEY, OTHER = "a" * 64, "b" * 64


@pytest.fixture(params=["file", "s3"])
def url(request, tmp_path, monkeypatch):
    """Yield the URL of an empty bucket."""
    if request.param == "file":
        (tmp_path / "bucket").mkdir()
        yield f"file://{tmp_path}/bucket"
        return
    with s3.serve() as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        yield server.url


@pytest.fixture
def host(url, tmp_path):
    """Return a function that opens the bucket as a machine, which is named by its cache."""
    return lambda name="here": open_store(url, tmp_path / name)


@pytest.fixture
def bucket(url):
    return open_bucket(url)


def commit(store, key=KEY, text="content", **record):
    with store.write(key, record) as out:
        (out / "deep").mkdir()
        (out / "deep" / "file.txt").write_text(text)
        (out / "same.txt").write_text("the same in all artifacts")
    return store.path(key)


def below(bucket, prefix):
    return [entry.name for entry in bucket.entries(prefix)]


def leftovers(store):
    folders = ("temporary", "fetching/temporary", "fetching/locks")
    return [path for name in folders for path in (store.root / name).glob("*")]


def spoil(bucket, text):
    """Change one bit of the file in the bucket that has a text."""
    (name,) = [n for n in below(bucket, "blobs") if bucket.read(n) == text.encode()]
    bucket.write(name, bytes([text.encode()[0] ^ 1]) + text.encode()[1:])


# what is committed


def test_nothing_is_made_by_looking(host, bucket):
    store = host()
    assert store.get(KEY) is store.peek(KEY) is store.recall(KEY) is store.holder(KEY) is None
    assert store.records() == []
    assert not store.has(KEY)
    assert not store.is_busy(KEY)
    assert below(bucket, "") == []


def test_a_commit_is_found_from_another_machine(host, bucket):
    here, there = host("here"), host("there")
    commit(here, text="hello", kind="x")
    found = there.get(KEY)
    assert (found.path / "deep" / "file.txt").read_text() == "hello"
    assert found.path.is_relative_to(there.root)
    assert found.manifest == here.get(KEY).manifest == there.peek(KEY) == there.recall(KEY)
    assert there.committed() == {KEY}
    assert not leftovers(here) + leftovers(there)
    assert below(bucket, "claims") == []


def test_what_was_fetched_is_not_fetched_again(host, bucket):
    commit(host("here"))
    host("there").get(KEY)
    bucket.delete(below(bucket, "blobs"))
    assert host("there").get(KEY) is not None


def test_equal_files_lie_in_the_bucket_once(host, bucket):
    store = host()
    commit(store, KEY, "one")
    commit(store, OTHER, "two")
    assert len(below(bucket, "blobs")) == 3


def test_an_exception_commits_nothing_and_keeps_the_checkpoints(host, bucket):
    store = host()
    with pytest.raises(ValueError, match="no"), store.write(KEY, {}) as out:
        (out / "half").write_text("half")
        store.checkpoints(KEY).save(1, lambda to: (to / "state").write_text("1"))
        raise ValueError("no")
    assert store.get(KEY) is None
    assert below(bucket, "artifacts") == below(bucket, "blobs") == []
    assert host("there").checkpoints(KEY).steps() == [1]


def test_a_manifest_is_read_once(host, bucket, monkeypatch):
    here = host("here")
    commit(here, KEY, logical=["x"])
    commit(here, OTHER, logical=["x"])
    here.drop(KEY)
    there = host("there")
    assert {found["key"] for found in there.records()} == {KEY, OTHER}
    read = Bucket.read
    seen = []
    monkeypatch.setattr(Bucket, "read", lambda self, name: seen.append(name) or read(self, name))
    assert {found["key"] for found in host("there").records()} == {KEY, OTHER}
    assert seen == [MARKER]


def test_manifests_that_are_prefetched_are_not_read_again(host, monkeypatch):
    commit(host("here"), KEY)
    commit(host("here"), OTHER)
    there = host("there")
    there.prefetch([KEY, OTHER, "c" * 64])
    monkeypatch.setattr(Bucket, "read", None)
    assert [there.peek(key)["key"] for key in (KEY, OTHER)] == [KEY, OTHER]
    assert there.peek("c" * 64) is None


def test_manifests_in_memory_are_bounded(host, monkeypatch):
    store = host()
    keys = [f"{number:064x}" for number in range(4)]
    monkeypatch.setattr("maskpolicy.store.bucket_store._PARSED", 2)
    for number, key in enumerate(keys):
        commit(store, key, str(number))
        assert store.peek(key)["key"] == key
    assert len(store._parsed) <= 2
    assert {found["key"] for found in store.records()} == set(keys)


def test_one_file_is_fetched_alone(host, bucket):
    commit(host("here"), text="hello")
    there = host("there")
    path = there.file(KEY, "deep/file.txt")
    assert (path.name, path.read_text()) == ("file.txt", "hello")
    assert not there.path(KEY).exists()
    path.write_text("jello")
    assert there.file(KEY, "deep/file.txt").read_text() == "hello"
    assert there.file(KEY, "none") is there.file(OTHER, "file") is None


# damage


@pytest.mark.parametrize("damage", ["flip", "lose", "cut"])
def test_a_damaged_copy_is_fetched_again(host, damage, caplog):
    store = host()
    path = commit(store, text="hello") / "deep" / "file.txt"
    if damage == "lose":
        path.unlink()
    else:
        path.write_text("jello" if damage == "flip" else "he")
    assert (host().get(KEY).path / "deep" / "file.txt").read_text() == "hello"
    assert "a copy is damaged and is fetched again" in caplog.text


def test_a_file_that_arrives_damaged_is_fetched_once_more(host, monkeypatch, caplog):
    commit(host("here"), text="hello")
    download, damaged = Bucket.download, set()

    def download_badly(self, name, path):
        digest = download(self, name, path)
        if name in damaged:
            return digest
        damaged.add(name)
        path.write_text("half")
        return "0" * 64

    monkeypatch.setattr(Bucket, "download", download_badly)
    found = host("there").get(KEY)
    assert len(damaged) == 2
    assert (found.path / "deep" / "file.txt").read_text() == "hello"
    assert not caplog.records


@pytest.mark.parametrize("damage", ["flip", "lose"])
def test_what_is_damaged_in_the_bucket_is_computed_again(host, bucket, damage, caplog):
    commit(host("here"), text="hello")
    if damage == "flip":
        spoil(bucket, "hello")
    else:
        bucket.delete(below(bucket, "blobs"))
    there = host("there")
    assert there.get(KEY) is None
    assert "will be computed again" in caplog.text
    assert len(below(bucket, "quarantine")) == 1
    commit(there, text="hello")
    assert (host("elsewhere").get(KEY).path / "deep" / "file.txt").read_text() == "hello"


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]"])
def test_a_broken_manifest_is_computed_again(host, bucket, content):
    commit(host("here"))
    bucket.write(f"artifacts/{KEY}.json", content)
    there = host("there")
    assert there.peek(KEY) is None
    assert there.get(KEY) is None
    commit(there)
    assert host("elsewhere").get(KEY) is not None


def test_to_commit_replaces_a_broken_manifest_at_once(host, bucket):
    commit(host("here"))
    bucket.write(f"artifacts/{KEY}.json", bucket.read(f"artifacts/{KEY}.json")[:-30])
    there = host("there")
    with there.lock(KEY):
        assert there.peek(KEY) is None  # as a run looks for stages that others need
        commit(there)
        assert there.peek(KEY) is not None
    assert len(below(bucket, "quarantine")) == 1
    assert host("elsewhere").verify(KEY) is None


def test_a_manifest_cannot_name_files_outside_of_its_artifact(host, bucket, tmp_path):
    commit(host("here"))
    known = json.loads(bucket.read(f"artifacts/{KEY}.json"))
    known["files"] = [{**known["files"][0], "path": "../../../outside"}]
    del known["sha256"]
    known["sha256"] = digest(known)
    bucket.write(f"artifacts/{KEY}.json", manifest.encode(known))
    assert host("there").get(KEY) is None
    assert not list(tmp_path.rglob("outside"))


def test_nothing_is_removed_while_another_works_on_the_key(host, bucket):
    commit(host("here"), text="hello")
    spoil(bucket, "hello")
    with host("elsewhere").lock(KEY):
        assert host("there").get(KEY) is None
        assert below(bucket, "artifacts")


# two writers


def taken_over(bucket, key=KEY):
    """Take a key, as another machine does that has seen no sign of life of its holder."""
    claims = BucketClaims(bucket)
    far = replace(this_process(1000), machine="far")
    return claims, claims.take(key, far, claims.read(key))


def test_who_has_lost_a_key_commits_nothing(host, bucket):
    store = host()
    with pytest.raises(ClaimLost), store.write(KEY, {}) as out:
        store.checkpoints(KEY).save(1, lambda to: (to / "state").write_text("1"))
        taken_over(bucket)
        with pytest.raises(ClaimLost):
            store.checkpoints(KEY).save(2, lambda to: (to / "state").write_text("2"))
        (out / "file").write_text("late")
    assert below(bucket, "artifacts") == []
    assert host("there").checkpoints(KEY).steps() == [1]


@pytest.mark.parametrize("text", ["first", "second"])
def test_a_second_result_is_compared_with_the_first(host, bucket, text, caplog, monkeypatch):
    monkeypatch.setattr(BucketClaims, "holds", lambda *_: True)  # as between check and commit
    here, there = host("here"), host("there")
    with here.write(KEY, {"kind": "train"}) as out:
        (out / "file.txt").write_text(text)
        claims, claim = taken_over(bucket)
        claims.end(claim)
        with there.write(KEY, {"kind": "train"}) as other:
            (other / "file.txt").write_text("first")
    told = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert len(told) == (text == "second")
    assert all("train was computed twice" in line and "(file.txt)" in line for line in told)
    assert (here.get(KEY).path / "file.txt").read_text() == "first"


# dropping


def test_a_dropped_artifact_leaves_its_manifest_and_the_files_of_others(host, bucket):
    here, there = host("here"), host("there")
    commit(here, KEY, "one")
    commit(here, OTHER, "two")
    there.get(KEY)
    assert there.drop(KEY)
    assert here.get(KEY) is there.get(KEY) is None
    assert here.recall(KEY)["key"] == KEY
    assert not there.path(KEY).exists()
    assert (host("elsewhere").get(OTHER).path / "same.txt").is_file()


def test_to_drop_an_artifact_takes_nothing_from_one_committed_meanwhile(host, bucket, monkeypatch):
    here, there = host("here"), host("there")
    commit(here, KEY, "one")
    delete = Bucket.delete

    def commit_first(self, names):
        names = list(names)
        if any(name.startswith("blobs/") for name in names):
            commit(there, OTHER, "two")
        delete(self, names)

    monkeypatch.setattr(Bucket, "delete", commit_first)
    assert here.drop(KEY)
    if not host("there").has(OTHER):
        commit(there, OTHER, "two")
    assert host("elsewhere").verify(OTHER) is None


def test_to_drop_an_artifact_reads_no_others(host, monkeypatch):
    here = host()
    commit(here, KEY)
    commit(here, OTHER)
    read = Bucket.read
    seen = []
    monkeypatch.setattr(Bucket, "read", lambda self, name: seen.append(name) or read(self, name))
    here.drop(KEY)
    assert not any(OTHER in name for name in seen)


def test_a_copy_of_other_bytes_than_the_artifact_is_fetched_again(host):
    here, there = host("here"), host("there")
    commit(here, text="one")
    there.drop(KEY)
    commit(there, text="two")
    assert (host("here").get(KEY).path / "deep" / "file.txt").read_text() == "two"
    with host("here").lock(KEY):
        assert (host("here").get(KEY).path / "deep" / "file.txt").read_text() == "two"


def test_a_file_that_prune_might_remove_is_written_again(host, bucket, monkeypatch):
    commit(host(), KEY)
    entry, upload = Bucket.entry, Bucket.upload
    written = []

    def half_a_day_old(self, name):
        found = entry(self, name)
        return found and replace(found, modified=found.modified - timedelta(hours=13))

    monkeypatch.setattr(Bucket, "entry", half_a_day_old)
    monkeypatch.setattr(
        Bucket, "upload", lambda self, path, name: written.append(name) or upload(self, path, name)
    )
    commit(host(), OTHER)
    assert set(written) == set(below(bucket, "blobs"))


def test_an_artifact_that_is_committed_again_replaces_an_old_copy(host):
    here, there = host("here"), host("there")
    commit(here)
    there.get(KEY)
    here.drop(KEY)
    with there.lock(KEY):
        assert there.get(KEY) is None
        commit(there)
    assert there.get(KEY) is not None


# checkpoints


def test_another_machine_resumes_from_the_newest_checkpoint(host, bucket):
    here, there = host("here"), host("there")
    with pytest.raises(ValueError, match="dies"), here.write(KEY, {}):
        for step in (1, 2, 3):
            save = here.checkpoints(KEY).save
            save(step, lambda to, step=step: (to / "state").write_text(f"state {step}"))
        raise ValueError("dies")
    assert len([name for name in below(bucket, f"checkpoints/{KEY}") if "files" in name]) == 2
    with there.write(KEY, {}) as out:
        step, folder = there.checkpoints(KEY).latest()
        assert (step, (folder / "state").read_text()) == (3, "state 3")
        (out / "file").write_text("done")
    assert below(bucket, "checkpoints") == []
    assert not list(there.root.glob("checkpoints/*"))


def test_a_damaged_checkpoint_falls_back(host, bucket):
    here, there = host("here"), host("there")
    with here.lock(KEY):
        for step in (1, 2):
            save = here.checkpoints(KEY).save
            save(step, lambda to, step=step: (to / "state").write_text(f"state {step}"))
    (name,) = [n for n in below(bucket, "checkpoints") if bucket.read(n) == b"state 2"]
    bucket.write(name, b"state X")
    (here.root / f"checkpoints/{KEY}/000000000002/state").write_text("state Y")
    for store, expected in ((here, 1), (there, 1)):
        with store.lock(KEY):
            step, folder = store.checkpoints(KEY).latest()
            assert (step, (folder / "state").read_text()) == (expected, f"state {expected}")


def test_a_damaged_checkpoint_does_not_stop_the_next_one(host, bucket):
    store = host()
    with store.lock(KEY):
        for step in (1, 2):
            bucket.write(f"checkpoints/{KEY}/{0:012d}.json", b"{")
            save = store.checkpoints(KEY).save
            save(step, lambda to, step=step: (to / "state").write_text(f"state {step}"))
        assert store.checkpoints(KEY).latest()[0] == 2


def test_tidy_removes_the_checkpoints_of_a_committed_stage(host, bucket):
    store = host()
    with store.lock(KEY):
        store.checkpoints(KEY).save(1, lambda to: (to / "state").write_text("1"))
        commit(host("here"), OTHER)
    bucket.write(f"artifacts/{KEY}.json", bucket.read(f"artifacts/{OTHER}.json"))
    host("there").tidy(KEY)
    assert below(bucket, "checkpoints") == []


# notes


def test_notes_are_read_on_other_machines(host):
    here, there = host("here"), host("there")
    assert there.failures.keys() == set()
    here.failures.write(KEY, {"error": "bad"})
    assert there.failures.read(KEY) == {"error": "bad"}
    assert there.failures.keys() == {KEY}
    there.failures.remove(KEY)
    here.failures.remove(KEY)
    assert here.failures.read(KEY) is None


def test_a_note_that_cannot_be_read_is_none(host, bucket):
    bucket.write(f"progress/{KEY}.json", b"[")
    assert host().progress.read(KEY) is None


# the cache


def test_a_cache_that_cannot_be_written_is_named(url, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cache .*: cannot be written: .*--cache or \$MASKPOLICY"):
        open_store(url, tmp_path / "file")


FULL = """
import resource, sys
from maskpolicy.errors import StoreError
from maskpolicy.store.opening import open_store
store = open_store(sys.argv[1], sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
try:
    store.get("a" * 64)
except StoreError as error:
    print(error)
"""


def test_a_full_cache_is_one_line(host, url, tmp_path):
    commit(host("here"), text="x" * 100_000)
    command = [sys.executable, "-c", FULL, url, str(tmp_path / "there")]
    done = subprocess.run(command, capture_output=True, text=True)
    (line,) = done.stdout.splitlines()
    assert line.startswith(f"cache {tmp_path}/there/")
    assert "no room to write" in line
    assert "choose another --cache" in line
    assert done.stderr == ""
    assert host("there").get(KEY) is not None


def test_each_bucket_has_a_folder_in_the_cache(tmp_path):
    caches = [open_store(f"memory://{uuid4().hex}", tmp_path).root for _ in range(2)]
    assert len(set(caches)) == 2
    assert all(cache.parent == tmp_path for cache in caches)


def test_the_cache_may_be_removed_at_any_time(host):
    store = host()
    commit(store)
    shutil.rmtree(store.root)
    assert store.get(KEY) is not None


def test_size_tells_bucket_and_cache(host):
    store = host()
    path = commit(store)
    sizes = store.size()
    assert sizes["blobs"] == sum(each.stat().st_size for each in path.rglob("*.txt"))
    assert sizes["cache"] > sizes["blobs"]


def test_a_store_of_a_bucket_is_named_by_its_url(host, url):
    assert isinstance(host(), BucketStore)
    assert host().place == url


@settings(max_examples=25)
@given(st.lists(st.integers(0, 2), min_size=10, max_size=60))
@example([2] * 8 + [0, 2])  # nobody computes
def test_in_any_order_of_requests_an_artifact_is_whole_or_absent(order):
    bucket = open_bucket(f"memory://{uuid4().hex}")
    with tempfile.TemporaryDirectory() as caches:
        computed = []

        def write(mine):
            store = BucketStore(mine, Path(caches, str(mine.who)))
            with store.try_lock(KEY) as is_mine:
                if is_mine and store.get(KEY) is None:
                    commit(store, KEY, "text")
                    computed.append(mine.who)

        def drop(mine):
            store = BucketStore(mine, Path(caches, str(mine.who)))
            commit(store, OTHER, "other")
            store.drop(KEY)

        Turns(bucket, order).run(write, write, drop)
        store = BucketStore(bucket, Path(caches, "last"))
        if store.has(KEY):
            assert store.verify(KEY) is None
        elif computed:
            assert store.recall(KEY) is not None
        else:  # both found the key held while `drop` looked for an artifact
            assert store.recall(KEY) is None
        assert store.verify(OTHER) is None
        assert len(computed) - len(below(bucket, "dropped")) <= 1
        assert below(bucket, "claims") == below(bucket, "quarantine") == []


# several processes


def start(*words):
    """Start the tiny graph on a bucket in a process of its own."""
    tests = Path(tiny_bucket.__file__).parent
    return subprocess.Popen(
        [sys.executable, tiny_bucket.__file__, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": f"{tests.parent}{os.pathsep}{tests}"},
    )


def test_two_machines_compute_each_stage_once(url, tmp_path):
    count = tmp_path / "count"
    running = [start("run", url, tmp_path / name, count, "0.02") for name in ("one", "two")]
    for each in running:
        _, errors = each.communicate()
        assert (each.returncode, errors) == (0, "")
    assert sorted(count.read_text().split()) == ["a", "b", "c", "d"]


@pytest.mark.slow
@pytest.mark.parametrize(("what", "every"), [("killed", 41), ("stopped", 53)])
def test_a_machine_that_fails_at_some_request_leaves_nothing_broken(what, every):
    fast = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=fast) as folder:
        output, errors = start(what, folder, every).communicate()
    assert errors == ""
    assert int(output) > 300


@dataclass(frozen=True)
class Number:
    """Which stage it is."""

    number: int


@stage("three-files")
def three_files(params: Number, inputs, out, run) -> None:
    for name in ("a", "b", "c"):
        (out / name).write_text(f"{name} of {params.number}")


def test_a_stage_takes_as_many_requests_as_docs_scale_says(tmp_path, monkeypatch):
    first, second = (Stage("three-files", f"stage {n}", Number(n), {}) for n in range(2))
    with s3.serve() as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        store = open_store(server.url, tmp_path / "here")
        execute([first], store)  # the first claim of a process tests the bucket, too
        server.requests.clear()
        execute([second], store)
        assert len(server.requests) < 40
        other = open_store(server.url, tmp_path / "there")
        server.requests.clear()
        assert other.get(second.key) is not None
        assert len(server.requests) == 3 + 3


def test_an_outage_in_the_middle_is_one_line(tmp_path, monkeypatch):
    with s3.serve() as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        store = open_store(server.url, tmp_path)
        server.denied = {"PUT"}
        with pytest.raises(StoreError, match="no permission: check AWS_ACCESS_KEY_ID"):
            commit(store)
        assert store.get(KEY) is None
