"""The store gives back what was committed, or nothing, whatever happens in between."""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import tiny

from maskpolicy.errors import ConfigError, DataError, StageError, StoreError
from maskpolicy.graph.execution import execute
from maskpolicy.store.artifacts import Store
from maskpolicy.store.pruning import prune

KEY, OTHER = "a" * 64, "b" * 64
TINY = [sys.executable, tiny.__file__]


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def commit(store, key=KEY, text="content", **record):
    with store.write(key, record) as out:
        (out / "deep").mkdir()
        (out / "deep" / "file.txt").write_text(text)
    return store.path(key)


def save(store, key, text="1"):
    """Leave a checkpoint of step 1, as a process that ended does."""
    with store.lock(key):
        store.checkpoints(key).save(1, lambda to: (to / "state").write_text(text))


def flip(path):
    """Flip one bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def names(store, folder):
    return sorted(path.name for path in (store.root / folder).glob("*"))


def start(*arguments, **environment):
    """Start the tiny graph in a process of its own."""
    root = str(Path(tiny.__file__).parent.parent)
    return subprocess.Popen(
        [*TINY, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": root} | environment,
    )


# what is committed


def test_nothing_is_made_by_looking(store):
    assert store.get(KEY) is None
    assert store.peek(KEY) is None
    assert store.records() == []
    assert not store.is_busy(KEY)
    assert not store.root.exists()


def test_a_commit_is_found_by_another_process(store):
    commit(store, text="hello")
    found = Store(store.root).get(KEY)
    assert (found.path / "deep" / "file.txt").read_text() == "hello"
    assert names(store, "temporary") == []


def test_the_manifest_says_what_was_made_and_how(store):
    commit(store, kind="x", params={"lr": 0.1})
    manifest = store.get(KEY).manifest
    assert manifest["record"] == {"kind": "x", "params": {"lr": 0.1}}
    assert manifest["files"] == [
        {
            "path": "deep/file.txt",
            "size": 7,
            "sha256": "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73",
        }
    ]
    assert {"maskpolicy", "python", "torch"} <= set(manifest["versions"])
    assert manifest["seconds"] >= 0


def test_facts_noted_before_the_exit_are_in_the_manifest(store):
    record = {"facts": {}}
    with store.write(KEY, record):
        record["facts"]["device"] = "cpu"
    assert store.get(KEY).manifest["record"]["facts"] == {"device": "cpu"}


def test_an_exception_commits_nothing_and_keeps_the_checkpoints(store):
    with pytest.raises(ValueError, match="no"), store.write(KEY, {}) as out:
        (out / "half").write_text("half")
        store.checkpoints(KEY).save(1, lambda to: (to / "state").write_text("1"))
        raise ValueError("no")
    assert store.get(KEY) is None
    assert names(store, "temporary") == []
    assert store.checkpoints(KEY).steps() == [1]


def test_a_commit_clears_the_checkpoints(store):
    with store.write(KEY, {}):
        store.checkpoints(KEY).save(1, lambda to: (to / "state").write_text("1"))
    assert names(store, "checkpoints") == []


def test_the_first_commit_of_a_key_stays(store):
    commit(store, text="first")
    path = commit(store, text="second")
    assert (path / "deep" / "file.txt").read_text() == "first"


def test_a_leftover_of_a_dead_process_is_removed_by_the_next_owner(store):
    for key in (KEY, OTHER):
        (store.root / "temporary" / f"{key}-0123").mkdir(parents=True)
    commit(store)
    assert names(store, "temporary") == [f"{OTHER}-0123"]


def test_a_stage_may_not_write_the_manifest(store):
    with pytest.raises(StageError, match=r"MANIFEST\.json"), store.write(KEY, {}) as out:
        (out / "MANIFEST.json").write_text("{}")


def test_a_stage_may_not_write_links(store):
    with pytest.raises(StageError, match="plain files"), store.write(KEY, {}) as out:
        (out / "link").symlink_to("/etc/hostname")


def test_a_record_that_is_not_json_is_refused_before_the_work(store):
    with (
        pytest.raises(ConfigError, match=r"record\.local"),
        store.write(KEY, {"local": Path("x")}),
    ):
        raise AssertionError("the work was begun")


def test_a_key_is_a_digest(store):
    with pytest.raises(StoreError, match="not a key"), store.lock("../elsewhere"):
        pass


# what is read


@pytest.mark.parametrize("name", ["deep/file.txt", "MANIFEST.json"])
def test_a_flipped_bit_is_quarantined_and_a_miss(store, name, caplog):
    flip(commit(store) / name)
    with caplog.at_level(logging.WARNING):
        assert Store(store.root).get(KEY) is None
    assert name in caplog.text
    assert not store.path(KEY).exists()
    assert len(names(store, "quarantine")) == 1


def remove(path):
    (path / "deep" / "file.txt").unlink()


def add(path):
    (path / "extra.txt").write_text("extra")


def link(path):
    (path / "deep" / "file.txt").rename(path.parent / "elsewhere")
    (path / "deep" / "file.txt").symlink_to(path.parent / "elsewhere")


def forget(path):
    (path / "MANIFEST.json").unlink()


def be_another(path):
    commit(Store(path.parent.parent), OTHER)
    (path.parent / OTHER / "MANIFEST.json").replace(path / "MANIFEST.json")


@pytest.mark.parametrize("damage", [remove, add, link, forget, be_another])
def test_what_the_manifest_does_not_verify_is_a_miss(store, damage):
    damage(commit(store))
    assert store.peek(KEY) is None
    assert store.path(KEY).exists()
    assert store.get(KEY) is None
    assert not store.path(KEY).exists()


def test_a_file_in_place_of_the_folder_is_a_miss(store):
    store.path(KEY).parent.mkdir(parents=True)
    store.path(KEY).write_text("what is this")
    assert store.get(KEY) is None
    commit(store)
    assert store.get(KEY) is not None
    prune(store)
    assert names(store, "quarantine") == []


def test_hidden_files_of_desktops_and_file_systems_do_no_harm(store):
    (commit(store) / "deep" / ".DS_Store").write_text("")
    assert Store(store.root).get(KEY) is not None


def test_nothing_is_quarantined_while_another_works_on_the_key(store):
    flip(commit(store) / "deep" / "file.txt")
    held = subprocess.Popen(
        [
            *(sys.executable, "-c"),
            "import sys; from maskpolicy.store.artifacts import Store\n"
            "with Store(sys.argv[1]).lock('a' * 64): print('held', flush=True); sys.stdin.read()",
            store.root,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    held.stdout.readline()
    fresh = Store(store.root)
    assert fresh.get(KEY) is None
    assert fresh.is_busy(KEY)
    assert not fresh.drop(KEY)
    assert store.path(KEY).exists()
    held.communicate()
    assert not fresh.is_busy(KEY)
    assert fresh.get(KEY) is None
    assert not store.path(KEY).exists()


# what is dropped, found, measured, pruned


def test_a_dropped_artifact_leaves_its_manifest(store):
    commit(store, logical={"label": "a"})
    assert store.drop(KEY)
    assert store.get(KEY) is None
    assert [found["key"] for found in store.records()] == [KEY]
    assert names(store, "temporary") == []


def test_a_damaged_artifact_can_be_dropped(store):
    remove(commit(store))
    assert store.drop(KEY)
    assert not store.path(KEY).exists()
    assert names(store, "dropped") == []


def test_records_are_those_of_artifacts_and_of_dropped_ones_too(store):
    for key in (KEY, OTHER):
        commit(store, key)
    store.drop(KEY)
    assert {found["key"] for found in store.records()} == {KEY, OTHER}
    assert {found["key"] for found in store.records(dropped=False)} == {OTHER}


def test_size_counts_bytes(store):
    commit(store, text="x" * 1000)
    size = store.size()
    assert size["artifacts"] == 1000 + (store.path(KEY) / "MANIFEST.json").stat().st_size
    assert size["quarantine"] == 0


def test_size_passes_over_what_others_remove_meanwhile(store, monkeypatch):
    commit(store)
    size, walk = store.size(), os.walk

    def with_one_that_is_gone(folder):
        yield from ((parent, inside, [*names, "gone"]) for parent, inside, names in walk(folder))

    monkeypatch.setattr(os, "walk", with_one_that_is_gone)
    assert store.size() == size


def test_a_file_with_several_names_counts_once(store):
    path = commit(store, text="x" * 1000)
    before = store.size()["artifacts"]
    with store.write(OTHER, {}) as out:
        os.link(path / "deep" / "file.txt", out / "linked")
    manifest_size = (store.path(OTHER) / "MANIFEST.json").stat().st_size
    assert store.size()["artifacts"] == before + manifest_size


def test_prune_removes_parts_of_notes_that_a_dead_process_left(store):
    store.progress.write(OTHER, {})
    old, new = (store.root / "progress" / f".{KEY}.{part}" for part in ("0123", "4567"))
    for path in (old, new):
        path.write_text("{")
    os.utime(old, (0, 0))
    prune(store)
    assert not old.exists()
    assert new.exists()


def test_prune_keeps_artifacts_and_what_can_be_resumed(store):
    commit(store)
    save(store, KEY, "orphaned")
    save(store, OTHER, "resumable")
    broken = "c" * 64
    save(store, broken, "broken")
    flip(store.root / "checkpoints" / broken / f"{1:012d}" / "state")
    (store.root / "temporary" / f"{OTHER}-0123").mkdir()
    (store.root / "quarantine").mkdir()
    (store.root / "quarantine" / f"{KEY}-0123").mkdir()
    freed = prune(store)
    assert freed["checkpoints"] > 0
    assert names(store, "artifacts") == [KEY]
    assert names(store, "checkpoints") == [OTHER]
    assert names(store, "temporary") == names(store, "locks") == []
    assert Store(store.root).get(KEY) is not None


def test_prune_passes_over_what_others_remove_meanwhile(store, monkeypatch):
    gone = [KEY, OTHER]
    for key in gone:
        store.progress.write(key, {"done": 1})
        save(store, key, "state")
    try_lock = Store.try_lock

    def late(self, key):
        store.progress.remove(key)
        shutil.rmtree(store.root / "checkpoints" / key, ignore_errors=True)
        return try_lock(self, key)

    monkeypatch.setattr(Store, "try_lock", late)
    prune(store)
    assert names(store, "progress") == names(store, "checkpoints") == []


def test_prune_drops_what_no_run_has_used_for_so_long(store):
    keys = {name: name * 64 for name in "abcdef"}
    made_from = {"c": {"x": keys["b"]}, "b": {"x": keys["a"]}, "e": {"x": keys["d"]}}
    for name in "abcde":
        commit(store, keys[name], inputs=made_from.get(name, {}))
    store.drop(keys["b"])  # transient, and yet `a` was of use to `c` through it
    save(store, keys["f"], "resumable")
    long_ago = time.time() - 40 * 86_400
    for path in (*store.root.glob("artifacts/*/MANIFEST.json"), *store.root.glob("checkpoints/*")):
        os.utime(path, (long_ago, long_ago))
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


def test_prune_leaves_what_another_process_is_at(store):
    running = start("run", store.root, TINY_STEPS="2000000,2")
    try:
        running.stdout.readline()
        while not names(store, "checkpoints") or not names(store, "temporary"):
            assert running.poll() is None
            time.sleep(0.01)
        held = names(store, "locks")  # of the stage, and of the run's list of keys
        prune(Store(store.root))
        assert len(held) == 2
        assert names(store, "locks") == held
        assert {name[:64] for name in names(store, "temporary")} < {name[:64] for name in held}
    finally:
        running.kill()
        running.communicate()


def test_prune_does_not_touch_the_files_of_others(tmp_path):
    for name in ("locks", "temporary", "quarantine", "checkpoints"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.txt").write_text("mine")
    prune(Store(tmp_path))
    assert len(list(tmp_path.rglob("mine.txt"))) == 4


# kill -9, two processes, a full disk


def test_kill_9_at_any_moment_and_the_same_command_again_gives_the_same_bytes(tmp_path):
    reference = Store(tmp_path / "reference")
    started = time.monotonic()
    execute(tiny.diamond(), reference)
    longest = max(0.2, (time.monotonic() - started) / 3)  # a busy disk slows every commit
    store, generator, killed = Store(tmp_path / "store"), random.Random(0), 0
    for _ in range(60):
        running = start("run", store.root, tmp_path / "count", "0.01")
        running.stdout.readline()
        time.sleep(generator.uniform(0, longest))
        running.send_signal(signal.SIGKILL)
        running.communicate()
        killed += running.returncode == -signal.SIGKILL
        if running.returncode == 0:
            break
    else:  # the machine has become slower since, so that the end is out of reach
        running = start("run", store.root, tmp_path / "count", "0.01")
        running.communicate()
    assert running.returncode == 0
    assert killed >= 2
    assert tiny.content(store, tiny.diamond()) == tiny.content(reference, tiny.diamond())
    assert names(store, "temporary") == names(store, "checkpoints") == []
    assert names(store, "quarantine") == []


@pytest.mark.slow
def test_kill_9_at_each_change_of_the_file_system_in_turn():
    fast = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # fsync costs nothing there
    with tempfile.TemporaryDirectory(dir=fast) as folder:
        output, errors = start("everywhere", folder).communicate()
    assert errors == ""
    assert int(output) > 100


def test_two_processes_compute_each_stage_once(tmp_path):
    count = tmp_path / "count"
    running = [start("run", tmp_path / "store", count, "0.02") for _ in range(2)]
    for each in running:
        _, errors = each.communicate()
        assert (each.returncode, errors) == (0, "")
    assert sorted(count.read_text().split()) == ["a", "b", "c", "d"]


def test_a_file_too_large_for_the_disk_is_one_line_and_loses_nothing(tmp_path):
    store = Store(tmp_path / "store")
    commit(store)
    done = start("run", store.root, TINY_STEPS="400,100", TINY_LIMIT="3000")
    _, errors = done.communicate()
    assert done.returncode == 2
    assert errors.count("\n") == 1
    assert str(store.root) in errors
    assert "File too large" in errors
    assert names(store, "temporary") == []
    assert Store(store.root).get(KEY) is not None
    assert start("run", store.root, TINY_STEPS="400,100").communicate()[1] == ""


def test_a_full_disk_is_one_line_and_the_same_command_goes_on(small_disk):
    disk = small_disk("size=160k")
    store = Store(disk / "store")
    commit(store)
    (disk / "ballast").write_bytes(bytes(60_000))
    full = start("run", store.root, TINY_STEPS="500,100")
    _, errors = full.communicate()
    assert full.returncode == 2
    assert errors.count("\n") == 1
    assert "No space left on device" in errors
    assert Store(store.root).get(KEY) is not None
    small_disk("remount,size=16m")
    again = start("run", store.root, TINY_STEPS="500,100")
    assert (again.communicate()[1], again.returncode) == ("", 0)


def test_a_read_only_store_can_be_read_and_says_that_it_cannot_be_written(small_disk):
    disk = small_disk("size=1m")
    assert start("run", disk / "store").wait() == 0
    small_disk("remount,ro,size=1m")
    again = start("run", disk / "store")
    assert (again.communicate()[1], again.returncode) == ("", 0)
    other = start("run", disk / "store", TINY_STEPS="7,2")
    _, errors = other.communicate()
    assert (other.returncode, errors.count("\n")) == (2, 1)
    assert "Read-only file system" in errors
    assert "--store" in errors


def test_an_error_of_the_stage_itself_is_not_taken_for_the_disk(store, tmp_path):
    with pytest.raises(FileNotFoundError), store.write(KEY, {}):
        (tmp_path / "nowhere").read_text()
    with pytest.raises(DataError, match="row 3"), store.write(KEY, {}):
        raise DataError("row 3: No space left on device is not an answer")


def test_a_full_disk_hidden_in_another_error_is_found(store):
    def write(out):
        (out / "tensors").symlink_to("/dev/full")
        try:
            (out / "tensors").write_text("x")
        except OSError as error:
            raise RuntimeError("could not serialise") from error

    with pytest.raises(StoreError, match="no room to write"), store.write(KEY, {}) as out:
        write(out)


def test_a_store_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="Not a directory"):
        commit(Store(tmp_path / "file" / "store"))


def test_a_manifest_is_plain_json_for_other_tools(store):
    path = commit(store) / "MANIFEST.json"
    assert json.loads(path.read_text())["key"] == KEY


# an artifact that is computed twice


def commit_over(store, text):
    """Commit a key that gets an artifact meanwhile, as after the loss of a claim."""
    with store.write(KEY, {"kind": "train"}) as out:
        (out / "same").write_text("same")
        (out / "file.txt").write_text(text)
        with Store(store.root.parent / "elsewhere").write(KEY, {"kind": "train"}) as other:
            (other / "same").write_text("same")
            (other / "file.txt").write_text("first")
        (store.root.parent / "elsewhere/artifacts").rename(store.root / "artifacts")


def test_a_second_result_that_differs_is_told(store, caplog):
    commit_over(store, "second")
    (line,) = [each.getMessage() for each in caplog.records]
    assert "train was computed twice, on " in line
    assert "with different results (file.txt): the first is kept" in line
    assert (store.get(KEY).path / "file.txt").read_text() == "first"


def test_a_second_result_that_is_the_same_is_no_news(store, caplog):
    commit_over(store, "first")
    assert not caplog.records


def test_one_file_of_an_artifact(store):
    assert store.file(KEY, "file") is None
    commit(store)
    assert store.file(KEY, "deep/file.txt").read_text() == "content"
    assert store.file(KEY, "none") is None


def test_a_single_file_is_read_as_it_was_committed_or_left_out(store, caplog):
    path = commit(store) / "deep" / "file.txt"
    assert store.file(KEY, "deep/file.txt") == path
    assert store.file(KEY, "missing.txt") is None and store.file(OTHER, "deep/file.txt") is None
    flip(path)
    with caplog.at_level(logging.WARNING):
        assert store.file(KEY, "deep/file.txt") is None
    assert "file.txt is damaged, and left out: `maskpolicy store verify`" in caplog.text
