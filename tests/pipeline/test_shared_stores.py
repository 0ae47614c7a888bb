"""Processes share a store: each stage is computed once, and lost stages are resumed."""

import fcntl
import os
import resource
import shutil
import signal
from contextlib import suppress
from pathlib import Path

import clusters
import pytest
import stores
import tiny
from clusters import until
from faults import calls
from refusals import refused
from stores import KEY, OTHER, RECORDS, beside, commit, flip, held, killed_often, names, text_of

from maskpolicy.analyses.cache import derive
from maskpolicy.core.errors import StoreError
from maskpolicy.pipeline.graph.calls import answer_elsewhere, call_of
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.graph.nodes import Stage, stage, topological
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.pipeline.store.disk import Disk
from maskpolicy.pipeline.store.upkeep import prune


def test_a_key_is_held_by_one_process_until_that_one_ends(store):
    flip(commit(store) / "deep" / "file.txt")
    with store.lock(OTHER), store.lock(OTHER) as again:
        assert again and not store.is_busy(OTHER)
    fresh = Store(store.root)
    with held(lambda: Store(store.root).lock(KEY)):
        assert fresh.is_busy(KEY)
        with fresh.lock(KEY) as is_mine, fresh.lock(OTHER) as other_is_mine:
            assert (is_mine, other_is_mine) == (False, True)
        assert fresh.get(KEY) is None  # it is damaged, and nevertheless stays
        assert not fresh.drop(KEY)
        assert store.path(KEY).exists()
    assert not fresh.is_busy(KEY)
    assert fresh.get(KEY) is None
    assert not store.path(KEY).exists()


def test_the_next_holder_removes_what_a_dead_process_of_this_host_left(store):
    left = [f"{key}-{host}-0123" for key in (KEY, OTHER) for host in (Disk.HOST, "0" * 8)]
    for name in left:
        (store.root / "temporary" / name).mkdir(parents=True)
    commit(store)
    assert names(store, "temporary") == sorted(left[1:])
    store.tidy(OTHER)
    assert names(store, "temporary") == sorted([left[1], left[3]])


@pytest.mark.slow
def test_kill_9_at_each_change_of_the_file_system_in_turn():
    assert killed_often("tiny.py", "everywhere") > 50


@pytest.fixture
def no_locks(monkeypatch):
    """Let the file system have no locks."""
    monkeypatch.setattr(fcntl, "flock", calls.no_locks)


@pytest.mark.parametrize("text", ["first", "second"])
def test_both_hosts_compute_and_the_first_commit_stays(store, no_locks, monkeypatch, text, caplog):
    there = Store(store.root)

    def commit_there():
        with monkeypatch.context() as other_host:
            other_host.setattr(Disk, "HOST", "0" * 8)
            assert not there.is_busy(KEY)
            commit(there, text="first")

    commit(store, text=text, meanwhile=commit_there)
    assert len(caplog.records) == (text == "second")
    assert ("was computed twice" in caplog.text) == (text == "second")
    assert text_of(Store(store.root)) == "first"
    assert Store(store.root).verify(KEY) is None
    assert names(store, "temporary", "quarantine") == []


@stage("tiny-late")
def late(params: tiny.Nothing, inputs, out, run):
    """Read an input that another host drops before, the first time."""
    tiny.count(run)
    if len(Path(run.local.count).read_text().split()) == 1:
        shutil.rmtree(inputs["x"])
    (out / "copy").write_bytes((inputs["x"] / "result.json").read_bytes())


def test_an_input_that_another_host_drops_is_computed_again(store, tmp_path):
    told = tiny.TinyLocal(count=str(tmp_path / "count"), label="late")
    last = Stage("tiny-late", "late", tiny.Nothing(), {"x": tiny.node("a", 1)}, told)
    assert execute([last], store)[last.key].error is None
    assert (tmp_path / "count").read_text() == "late\nlate\n"
    assert (store.get(last.key).path / "copy").exists()


def test_without_locks_nobody_removes_what_another_process_writes(store, no_locks):
    with store.write(KEY, RECORDS[KEY]) as out:
        Store(store.root).tidy(KEY)
        with Store(store.root).lock(KEY) as is_mine:
            assert is_mine
        assert out.exists()


def test_without_locks_a_second_command_keeps_what_the_first_uses(store, no_locks):
    run, second = "d" * 64, Store(store.root)
    commit(store)
    with store.using([KEY], run):
        with second.using([OTHER]):
            assert second.in_use() == {KEY}
        prune(second, older=0)
        assert store.knows_run(run)
    assert text_of(Store(store.root)) == "content"
    assert second.in_use() == set()


def test_a_run_of_another_host_is_known_although_its_lock_is_not(store, monkeypatch):
    run = "d" * 64
    with monkeypatch.context() as other_host:
        other_host.setattr(Disk, "HOST", "0" * 8)
        there = Store(store.root)
        with there.using([KEY], run):
            names = [*store.root.glob("locks/*")]
            for name in names:
                name.unlink()  # as if this host did not see it
            other_host.undo()
            assert store.in_use() == set()
            assert store.knows_run(run)
    with store.using([KEY], run):
        assert there.knows_run(run)
    assert not store.knows_run(run)


LONG = {"steps": 500, "every": 100}


def test_a_file_too_large_for_the_disk_is_one_line_and_loses_nothing(store):
    commit(store)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, limits[1]))
    try:
        says = f"{store.root}.*File too large"
        refused(execute, tiny.diamond(**LONG), store, error=StoreError, match=says)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert names(store, "temporary") == []
    assert text_of(Store(store.root)) == "content"
    stores.compute(tiny.diamond(**LONG), Store(store.root))


def test_a_full_disk_is_one_line_and_the_same_command_goes_on(small_disk):
    disk = small_disk("size=160k")
    store = Store(disk / "store")
    commit(store)
    (disk / "ballast").write_bytes(bytes(60_000))
    refused(execute, tiny.diamond(**LONG), store, error=StoreError, match="No space left on device")
    assert text_of(Store(store.root)) == "content"
    small_disk("remount,size=16m")
    stores.compute(tiny.diamond(**LONG), Store(store.root))


def test_a_read_only_store_can_be_read_and_says_that_it_cannot_be_written(small_disk):
    root = small_disk("size=1m") / "store"
    execute(tiny.diamond(), Store(root))
    small_disk("remount,ro,size=1m")
    assert all(outcome.hit for outcome in execute(tiny.diamond(), Store(root)).values())
    says = "Read-only file system.*--store"
    refused(execute, tiny.diamond(steps=7), Store(root), error=StoreError, match=says)


@pytest.mark.parametrize(("options", "says"), [("ro,", "Read-only"), ("", "No space left")])
def test_other_processes_say_why_a_store_cannot_be_written(small_disk, options, says):
    store = Store(small_disk("size=64k") / "store")
    commit(store)
    with suppress(OSError):
        (store.root / "ballast").write_bytes(bytes(1 << 16))
    small_disk(f"remount,{options}size=64k")
    call = call_of(tiny.node("a"), store, {}, run="0" * 64)
    refused(answer_elsewhere, call, print, error=StoreError, match=f"{says}.*--store")


def test_a_store_that_cannot_be_created_is_said_before_other_processes_look_for_it(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="--store"), Store(tmp_path / "file" / "store").using([]):
        pass


def test_a_byproduct_of_a_training_elsewhere_is_awaited_and_used_at_once(store, count):
    users = after_early, after_long = tiny.training(count=str(count), pause=0.05)
    early, long = after_early.inputs["x"], after_long.inputs["x"]
    events = []
    with beside(execute, users, Store(store.root)) as other:
        until(lambda: count.read_text() == "long\n")
        outcomes = execute(users, store, events.append)
        other.join(clusters.PATIENCE)
        assert other.exitcode == 0
    assert sorted(count.read_text().splitlines()) == ["after early", "after long", "long"]
    assert [outcomes[each.key].error for each in topological(users)] == [None] * 4
    assert {event.stage.label for event in events if event.what == "waits"} >= {"long"}
    first, *later = (store.peek(each.key)["committed"] for each in (early, after_early, long))
    assert first < min(later)


def test_another_command_resumes_the_training_of_a_dead_one_with_its_byproduct(store, count):
    users = tiny.training(count=str(count), pause=0.02)
    early, long = (user.inputs["x"] for user in users)
    with beside(execute, users, Store(store.root)) as other:
        until(lambda: store.checkpoints(long.key).steps())
        os.kill(other.pid, signal.SIGSTOP)
        assert store.is_busy(long.key)  # as it is when a command is stopped
        other.kill()
        outcomes = execute(users, store)
    assert outcomes[early.key].error is None
    assert count.read_text().splitlines().count("long") == 2
    assert "early" not in count.read_text().splitlines()


def test_a_stage_that_another_command_computes_delays_no_other_one(store):
    held, other = tiny.node("held", 1), tiny.node("other", 2, pause=0.01)
    labels = []

    def listen(event):
        if event.what in ("waits", "finished"):
            labels.append(event.stage.label)
        if event.what == "finished" and event.stage.label == "other":
            lock.__exit__(None, None, None)

    lock = Store(store.root).lock(held.key)
    lock.__enter__()
    outcomes = execute([held, other], store, listen)
    assert labels == ["held", "other", "held"]
    assert not any(outcome.error for outcome in outcomes.values())


def test_three_commands_compute_each_stage_once(store, count):
    """A stage that fails is tried by each command, because none stands for another."""
    fail = tiny.broken()
    work = [tiny.node("after", 1, {"x": fail}), *tiny.diamond(count=str(count), pause=0.05)]
    with (
        beside(execute, work, Store(store.root)) as one,
        beside(execute, work, Store(store.root)) as two,
    ):
        outcomes = execute(work, store)
        for other in (one, two):
            other.join(clusters.PATIENCE)
            assert other.exitcode == 0
    assert sorted(count.read_text().split()) == list("abcd")
    assert outcomes[fail.key].error == "ValueError: bad luck"
    assert tiny.content(store, tiny.diamond()) == tiny.alone(tiny.diamond())


def test_two_commands_derive_a_stage_of_an_analysis_once(store, count):
    told = tiny.TinyLocal(count=str(count), pause=0.05)
    asked = ("tiny-walk", "derived", tiny.Walk(1, 4, 1), {}, told)
    with beside(derive, Store(store.root), *asked) as other:
        derive(store, *asked)
        other.join(clusters.PATIENCE)
        assert other.exitcode == 0
    assert count.read_text() == "\n"
