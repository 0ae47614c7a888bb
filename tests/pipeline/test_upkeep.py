"""Pruning removes only what no command needs, from a folder and from a bucket."""

import os
import time
from datetime import timedelta

import pytest
import tiny
from stores import (
    FOURTH,
    KEY,
    OTHER,
    THIRD,
    below,
    beside,
    commit,
    flip,
    held,
    names,
    save,
    text_of,
)

from maskpolicy.pipeline.graph import execution
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.store import mirror, upkeep
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.pipeline.store.bucket import Bucket, now
from maskpolicy.pipeline.store.opening import open_store
from maskpolicy.pipeline.store.upkeep import prune

DAY = 86_400


@pytest.fixture
def mirrored(url, tmp_path):
    return open_store(url, tmp_path / "cache")


def age(path, seconds):
    past = time.time() - seconds
    os.utime(path, (past, past))


def test_artifacts_and_what_can_be_resumed_stay_and_all_else_goes(store):
    commit(store)
    commit(store, FOURTH)
    store.drop(FOURTH)  # another host, which does not see the lock, saves a checkpoint later
    for key in (KEY, OTHER, THIRD, FOURTH):  # orphaned, resumable, damaged, dropped after use
        save(store, key)
    flip(store.root / "checkpoints" / THIRD / f"{1:012d}" / "state")
    gone = [
        f"temporary/{OTHER}-{store.disk.HOST}-0123",
        f"temporary/{OTHER}-00000000-old",
        f"quarantine/{KEY}-0123",
        f"dropped/{KEY}.json",
        f"locks/{KEY}.lock",
        f"in_use/{THIRD}.json",
        "hashes/.part",
    ]
    mine = [f"{name}/mine.txt" for name in ("locks", "temporary", "quarantine", "checkpoints")]
    stays = [f"temporary/{OTHER}-00000000-new", *mine]
    for name in (*gone, *stays):
        (store.root / name).parent.mkdir(exist_ok=True)
        (store.root / name).write_text("x")
    for name in ("temporary", "hashes"):
        for path in (store.root / name).glob("*old*"):
            age(path, 2 * DAY)
    age(store.root / "hashes/.part", 2 * DAY)
    freed = prune(store)
    assert freed["checkpoints"] > 0
    left = {path.relative_to(store.root).as_posix() for path in store.root.rglob("*")}
    assert set(stays) <= left and not left & set(gone)
    assert names(store, "artifacts") == [KEY]
    assert names(store, "checkpoints") == [OTHER, "mine.txt"]
    assert Store(store.root).get(KEY) is not None


def test_older_drops_what_no_run_has_used_for_so_long(store):
    keys = {name: name * 64 for name in "abcdef"}
    inputs = {"c": {"x": keys["b"]}, "b": {"x": keys["a"]}, "e": {"x": keys["d"]}}
    for name in "abcde":
        commit(store, keys[name], inputs=inputs.get(name, {}))
    store.drop(keys["b"])  # transient, and yet `a` was of use to `c` through it
    save(store, keys["f"])
    for path in (*store.root.glob("artifacts/*/MANIFEST.json"), *store.root.glob("checkpoints/*")):
        age(path, 40 * DAY)
    store.touch(keys["c"])
    prune(store, older=50)
    assert names(store, "artifacts") == [keys[name] for name in "acde"]
    assert names(store, "checkpoints") == [keys["f"]]
    prune(store, older=30)
    assert names(store, "artifacts") == [keys["a"], keys["c"]]
    assert names(store, "checkpoints") == []
    assert Store(store.root).get(keys["c"]) is not None


def test_a_run_touches_what_it_finds(store):
    stages = [tiny.node("a", 1)]
    execute(stages, store)
    path = store.path(stages[0].key) / "MANIFEST.json"
    os.utime(path, (0, 0))
    execute(stages, Store(store.root))
    assert time.time() - path.stat().st_mtime < 1000


def test_what_a_run_needs_stays_with_all_that_it_was_computed_from(store):
    commit(store, KEY, inputs={})
    commit(store, OTHER, inputs={"x": KEY})
    commit(store, THIRD, inputs={})
    resumed, sealed = "d" * 64, store.peek(KEY)
    save(store, resumed)
    with store.using([OTHER, resumed]):
        store.note_dropped(resumed, sealed)  # it was dropped, and is computed again
        prune(Store(store.root), older=0)
        assert store.committed() == {KEY, OTHER}
        assert store.checkpoints(resumed).steps() == [1]
    assert store.in_use() == set()
    for _ in range(2):  # the second time, also what was dropped the first time
        prune(Store(store.root), older=0)
    assert store.committed() == set()
    assert store.checkpoints(resumed).steps() == []


def test_a_dead_process_keeps_nothing(store):
    commit(store)
    with held(lambda: Store(store.root).using([KEY])):
        prune(store, older=0)
        assert (store.committed(), store.in_use()) == ({KEY}, {KEY})
    prune(store, older=0)
    assert store.committed() == set()
    assert names(store, "in_use", "locks") == []


def test_the_list_of_a_run_on_another_host_stays_for_a_month(store):
    for key in (KEY, OTHER):
        store.disk.write_note("in_use", key, {"keys": [], "host": "00000000"})
    age(store.root / "in_use" / f"{OTHER}.json", 31 * DAY)
    prune(store)
    assert names(store, "in_use") == [f"{KEY}.json"]


@pytest.mark.slow
def test_a_run_beside_prune_computes_each_stage_once(store, count):
    """Also stages that were finished before, and that --older would take at any time."""
    stages, pruned = tiny.diamond(pause=0.05, count=str(count)), 0
    with beside(execute, stages, Store(store.root)) as running:
        while running.is_alive():
            prune(Store(store.root), older=0)
            pruned += 1
            time.sleep(0.01)
        assert running.exitcode == 0
    assert pruned > 5
    assert sorted(count.read_text().split()) == ["a", "b", "c", "d"]


def later(monkeypatch, days, unless=lambda name: False):
    """Let the bucket's clock be days ahead, and objects that `unless` names be as young."""
    entries, forward = Bucket.entries, timedelta(days=days)
    monkeypatch.setattr(upkeep, "now", lambda bucket: now(bucket) + forward)
    monkeypatch.setattr(
        Bucket,
        "entries",
        lambda self, prefix: [
            each._replace(modified=each.modified + forward) if unless(each.name) else each
            for each in entries(self, prefix)
        ],
    )


def test_what_is_not_needed_again_goes_from_a_bucket(mirrored, bucket):
    commit(mirrored)
    save(mirrored, OTHER)
    commit(mirrored, THIRD)
    mirrored.drop(THIRD)
    before = below(bucket)
    assert not any(prune(mirrored).values())
    assert below(bucket) == before
    content = bucket.read(f"artifacts/{KEY}.json")
    useless = [
        *(f"dropped/{KEY}.json", f"quarantine/{KEY}-1.json"),
        *(f"checkpoints/{KEY}/000000000001.json", f"checkpoints/{THIRD}/files/dd/{'d' * 64}"),
    ]
    for name in useless:
        bucket.write(name, content)
    save(mirrored, THIRD)  # another host was later
    prune(mirrored)
    assert below(bucket) == before
    assert mirrored.get(KEY) is not None


def test_files_without_a_manifest_go_after_a_day(mirrored, bucket, monkeypatch):
    for key in (KEY, OTHER):
        commit(mirrored, key, key)
    mirrored.drop(KEY)
    bucket.write(f"blobs/sha256/dd/{'d' * 64}", b"of a dead process")
    prune(mirrored)
    assert len(below(bucket, "blobs")) == 4
    later(monkeypatch, days=2)
    prune(mirrored)
    assert len(below(bucket, "blobs")) == 2
    assert mirrored.verify(OTHER) is None


def test_older_keeps_what_was_committed_or_used_since(mirrored, bucket, monkeypatch):
    keys = {name: name * 64 for name in "abcdef"}
    inputs = {"b": {"x": keys["a"]}, "d": {"x": keys["c"]}}
    for name in "abcde":
        commit(mirrored, keys[name], name, inputs=inputs.get(name, {}))
    save(mirrored, keys["f"])
    with mirrored.using([keys["b"]]):
        (record,) = below(bucket, "used")
    bucket.write(f"used/{THIRD}.json", b"[")
    new = {record, f"artifacts/{keys['d']}.json"}
    later(monkeypatch, 31, lambda name: name in new)
    prune(mirrored, older=40)
    assert mirrored.committed() == {keys[name] for name in "abcde"}
    prune(mirrored, older=30)
    assert mirrored.committed() == {keys[name] for name in "abcd"}
    assert below(bucket, "dropped") == [f"dropped/{keys['e']}.json"]
    assert below(bucket, "used") == [record]
    assert below(bucket, "checkpoints") == []


@pytest.mark.parametrize("older", [None, 0])
def test_checkpoints_of_a_run_on_another_machine_stay(mirrored, bucket, tmp_path, older):
    there = open_store(mirrored.place, tmp_path / "there")
    commit(there, THIRD)
    there.drop(THIRD)
    save(mirrored, OTHER)  # an earlier run, here
    with there.using([KEY, OTHER, THIRD]):
        save(there, OTHER, 5)
        save(there, THIRD, 5)  # computed again
        bucket.write(f"checkpoints/{KEY}/files/dd/{'d' * 64}", b"of the first checkpoint")
        before = below(bucket, "checkpoints")
        prune(mirrored, older=older)
        assert below(bucket, "checkpoints") == before


def test_a_run_that_goes_on_records_its_use_again(mirrored, bucket, monkeypatch):
    for module in (execution, mirror):
        monkeypatch.setattr(module, "RECORDED", timedelta(0))
    stages, written = tiny.diamond(), []

    def listen(event):
        if event.what == "finished":
            written.append([each.modified for each in bucket.entries("used")])

    execute(stages, mirrored, listen)
    assert [len(times) for times in written] == [1] * len(stages)
    assert written[0] < written[-1]


def test_the_cache_is_emptied_except_for_what_is_needed(mirrored, bucket):
    for key in (KEY, OTHER, THIRD):
        commit(mirrored, key, key)
        mirrored.get(key)
        age(mirrored.path(key) / "MANIFEST.json", 7200)
    mirrored.touch(KEY)  # within the hour
    mirrored.file(OTHER, "deep/file.txt")
    with open_store(mirrored.place, mirrored.root.parent).using([OTHER]):
        prune(mirrored, cache=0)
        assert names(mirrored, "artifacts") == [KEY, OTHER]
    age(mirrored.path(KEY) / "MANIFEST.json", 7200)
    prune(mirrored, cache=0)
    assert names(mirrored, "artifacts", "files", "temporary") == []
    assert [text_of(mirrored, key) for key in (KEY, OTHER, THIRD)] == [KEY, OTHER, THIRD]
