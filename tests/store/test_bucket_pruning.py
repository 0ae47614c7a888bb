"""Pruning removes from a bucket what no command needs, and nothing else."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest

from maskpolicy.store import bucket_pruning, bucket_store, upkeep
from maskpolicy.store.bucket import Bucket, open_bucket
from maskpolicy.store.bucket_claims import BucketClaims
from maskpolicy.store.holders import this_process
from maskpolicy.store.opening import open_store
from maskpolicy.store.pruning import prune

KEY, OTHER, THIRD = "a" * 64, "b" * 64, "c" * 64


@pytest.fixture
def url():
    return f"memory://{uuid4().hex}"


@pytest.fixture
def store(url, tmp_path):
    return open_store(url, tmp_path)


@pytest.fixture
def bucket(url):
    return open_bucket(url)


def commit(store, key, text="content", **record):
    with store.write(key, record) as out:
        (out / "file.txt").write_text(text)


def below(bucket, prefix):
    return [entry.name for entry in bucket.entries(prefix)]


def later(monkeypatch, **ages):
    """Let the bucket's clock go forward."""
    now = Bucket.now
    monkeypatch.setattr(Bucket, "now", lambda self: now(self) + timedelta(**ages))


def test_artifacts_and_what_can_be_resumed_stay(store, bucket):
    commit(store, KEY)
    with store.lock(OTHER):
        store.checkpoints(OTHER).save(1, lambda to: (to / "state").write_text("1"))
    before = below(bucket, "")
    freed = prune(store)
    assert below(bucket, "") == before
    assert not any(freed.values())


def test_what_is_not_needed_again_goes(store, bucket):
    commit(store, KEY)
    manifest = bucket.read(f"artifacts/{KEY}.json")
    useless = [f"dropped/{KEY}.json", f"quarantine/{KEY}-1.json", f"failed/{KEY}.json"]
    useless += [
        f"deaths/{KEY}.json",
        f"progress/{OTHER}.json",
        f"checkpoints/{KEY}/000000000001.json",
    ]
    for name in useless:
        bucket.write(name, manifest)
    prune(store)
    assert not set(useless) & set(below(bucket, ""))
    assert store.get(KEY) is not None


def test_the_claims_of_dead_processes_go_and_those_of_others_stay(store, bucket):
    claims = BucketClaims(bucket)
    dead = replace(this_process(1000), pid=2**22 + 1)
    claims.take(KEY, dead, None)
    claims.take(OTHER, replace(dead, machine="far"), None)
    bucket.write(f"claims/{THIRD}/000000001-{'0' * 32}", b"late")
    prune(store)
    assert below(bucket, "claims") == [f"claims/{OTHER}/000000001.json"]


def test_files_without_a_manifest_go_after_a_day(store, bucket, tmp_path, monkeypatch):
    commit(store, KEY)
    (tmp_path / "file").write_text("of a dead process")
    bucket.upload(tmp_path / "file", f"blobs/sha256/dd/{'d' * 64}")
    prune(store)
    assert len(below(bucket, "blobs")) == 2
    later(monkeypatch, days=2)
    prune(store)
    assert len(below(bucket, "blobs")) == 1
    assert store.verify(KEY) is None


def test_the_files_of_a_dropped_artifact_go_after_a_day(store, bucket, monkeypatch):
    commit(store, KEY, "dropped")
    commit(store, OTHER, "kept")
    store.drop(KEY)
    prune(store)
    assert len(below(bucket, "blobs")) == 2
    later(monkeypatch, days=2)
    prune(store)
    assert [bucket.read(name) for name in below(bucket, "blobs")] == [b"kept"]


def test_each_object_is_looked_at_a_few_times(store, bucket, monkeypatch):
    for number in range(40):
        bucket.write(f"failed/{number:064x}.json", b"{}")
    key, seen = bucket_pruning._key, []
    monkeypatch.setattr(bucket_pruning, "_key", lambda each: seen.append(each) or key(each))
    prune(store)
    assert len(seen) < 200


def test_older_drops_what_nothing_newer_was_made_from(store, bucket, monkeypatch):
    commit(store, KEY, "used", inputs={})
    commit(store, OTHER, "unused", inputs={})
    later(monkeypatch, days=10)
    prune(store, older=20)
    assert store.committed() == {KEY, OTHER}
    entries = Bucket.entries

    def aged(self, prefix):
        new = {f"artifacts/{THIRD}.json"}
        found = entries(self, prefix)
        return [
            replace(each, modified=each.modified + timedelta(days=10 * (each.name in new)))
            for each in found
        ]

    monkeypatch.setattr(Bucket, "entries", aged)
    commit(store, THIRD, "new", inputs={"x": KEY})
    prune(store, older=5)
    assert store.committed() == {KEY, THIRD}
    assert below(bucket, "dropped") == [f"dropped/{OTHER}.json"]


def test_older_keeps_what_a_run_has_used_since(store, url, bucket, tmp_path, monkeypatch):
    commit(store, KEY, "an input", inputs={})
    commit(store, OTHER, "used", inputs={"x": KEY})
    commit(store, THIRD, "unused", inputs={})
    store.record_use([OTHER])
    (record,) = below(bucket, "used")
    bucket.write(f"used/{THIRD}.json", b"[")
    later(monkeypatch, days=31)
    entries = Bucket.entries

    def used_now(self, prefix):
        used = timedelta(days=31)
        return [
            replace(each, modified=each.modified + used) if each.name == record else each
            for each in entries(self, prefix)
        ]

    monkeypatch.setattr(Bucket, "entries", used_now)
    prune(store, older=30)
    assert store.committed() == {KEY, OTHER}
    assert below(bucket, "used") == [record]


def test_a_use_is_recorded_once_in_half_a_day(store, url, bucket, tmp_path, monkeypatch):
    written, write = [], Bucket.write
    monkeypatch.setattr(
        Bucket, "write", lambda self, name, text: written.append(name) or write(self, name, text)
    )
    for each in (store, store, open_store(url, tmp_path / "elsewhere")):
        each.record_use([KEY, OTHER])
    assert len(written) == 1
    entry = Bucket.entry

    def aged(self, name):
        return replace(entry(self, name), modified=bucket.now() - timedelta(hours=13))

    monkeypatch.setattr(Bucket, "entry", aged)
    open_store(url, tmp_path / "elsewhere").record_use([KEY, OTHER])
    assert len([name for name in written if name.startswith("used/")]) == 2


def test_files_of_checkpoints_that_were_never_finished_go(store, bucket):
    bucket.write(f"checkpoints/{KEY}/files/dd/{'d' * 64}", b"half")
    prune(store)
    assert below(bucket, "checkpoints") == []


def test_an_emptied_cache_holds_nothing_of_dead_processes(store, bucket):
    commit(store, KEY)
    store.records()
    with store.lock(OTHER):
        store.checkpoints(OTHER).save(1, lambda to: (to / "state").write_text("1" * 10_000))
    for place in ("temporary", "fetching/temporary"):
        left = store.root / place / f"{THIRD}-0123"
        left.mkdir(parents=True)
        (left / "half").write_text("x" * 10_000)
    store.evict(KEY)
    prune(store, cache=0)
    assert upkeep.folder_size(store.root) < 1000
    with store.lock(OTHER):
        assert store.checkpoints(OTHER).latest()[0] == 1
    assert store.get(KEY) is not None


def test_an_emptied_cache_keeps_what_others_work_on(store, url, tmp_path):
    other = open_store(url, tmp_path)
    with other.lock(OTHER):
        other.checkpoints(OTHER).save(1, lambda to: (to / "state").write_text("1"))
        prune(store, cache=0)
        assert list(store.root.glob(f"checkpoints/{OTHER}/*"))


def test_copies_in_use_stay_in_the_cache(store):
    commit(store, KEY)
    bucket_pruning.prune_cache(store, 0)
    assert store.copies() == [KEY]


def test_what_a_stage_reads_stays_in_the_cache_for_as_long_as_it_does(store, monkeypatch):
    commit(store, KEY)
    commit(store, OTHER)
    hours = 3600 * 2
    for key in (KEY, OTHER):
        path = store.path(key) / "MANIFEST.json"
        os.utime(path, (time.time() - hours,) * 2)
    before = upkeep.used(store.path(KEY))
    monkeypatch.setattr(bucket_store, "IN_USE", 0.2)
    with store.reading([KEY]):
        until = time.monotonic() + 60
        while upkeep.used(store.path(KEY)) == before:
            assert time.monotonic() < until
            time.sleep(0.01)
        prune(store, cache=0)
        assert [store.path(key).exists() for key in (KEY, OTHER)] == [True, False]
