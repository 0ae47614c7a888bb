"""Several processes share one graph: by-products are awaited, failures are tried once."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import contextmanager, suppress
from multiprocessing import get_context

import pytest
import tiny
from tiny import node

from maskpolicy.errors import ConfigError, DataError, StageError, StoreError
from maskpolicy.graph.execution import execute
from maskpolicy.graph.nodes import Stage, topological
from maskpolicy.graph.shared_notes import count_death, forgive
from maskpolicy.store.artifacts import Store

PATIENCE = 120  # seconds until a moment that never comes fails the test


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@pytest.fixture
def count(tmp_path):
    (tmp_path / "count").write_text("")
    return tmp_path / "count"


def compute(root, graph, settings):
    execute(graph(**settings), Store(root), retry=False)


@contextmanager
def beside(store, graph, **settings):
    """Run another process on the graph; it is killed if it is there at the end of the block."""
    other = get_context("spawn").Process(target=compute, args=(store.root, graph, settings))
    other.start()
    try:
        yield other
    finally:
        other.kill()
        other.join(PATIENCE)


def until(other, happened):
    """Wait until something has happened that another process does."""
    end = time.monotonic() + PATIENCE
    while not happened():
        assert other.exitcode in (None, 0)
        assert time.monotonic() < end
        time.sleep(0.005)


def committed(store, stage):
    return json.loads((store.path(stage.key) / "MANIFEST.json").read_text())["committed"]


@pytest.mark.slow
def test_a_byproduct_of_a_training_elsewhere_is_awaited_and_used_at_once(store, count):
    settings = {"count": str(count), "pause": 0.05}
    users = tiny.training(**settings)
    after_early, after_long = users
    early, long = after_early.inputs["x"], after_long.inputs["x"]
    with beside(store, tiny.training, **settings) as other:
        until(other, lambda: count.read_text() == "long\n")
        outcomes = execute(users, store, retry=False)
        other.join(PATIENCE)
        assert other.exitcode == 0
    assert sorted(count.read_text().splitlines()) == ["after early", "after long", "long"]
    assert [outcomes[each.key].error for each in topological(users)] == [None] * 4
    assert outcomes[after_early.key].here
    assert committed(store, early) < committed(store, after_early) < committed(store, long)


def test_one_process_makes_the_byproduct_on_its_way(store, count):
    users = tiny.training(count=str(count))
    execute(users, store)
    assert sorted(count.read_text().splitlines()) == ["after early", "after long", "long"]


def test_a_byproduct_has_the_bytes_of_its_own_stage(store, tmp_path):
    early = tiny.training()[0].inputs["x"]
    execute(tiny.training(), store)
    alone = Store(tmp_path / "alone")
    execute([early], alone)
    assert tiny.content(store, [early]) == tiny.content(alone, [early])


def test_a_training_is_taken_over_from_a_dead_process_with_its_byproduct(store, count):
    settings = {"count": str(count), "pause": 0.02}
    users = tiny.training(**settings)
    early, long = (user.inputs["x"] for user in users)
    with beside(store, tiny.training, **settings) as other:
        until(other, lambda: store.checkpoints(long.key).steps())
        other.kill()
        outcomes = execute(users, store, retry=False)
    assert outcomes[early.key].error is None
    lines = count.read_text().splitlines()
    assert lines.count("long") == 2
    assert lines.count("early") == 0


def test_a_byproduct_of_a_failed_training_is_computed_by_itself(store, count):
    users = tiny.training(fails=True, count=str(count))
    outcomes = execute(users, store)
    assert sorted(count.read_text().splitlines()) == ["after early", "early", "long"]
    assert outcomes[users[0].key].error is None
    assert "bad luck" in outcomes[users[1].key].error


def broken(**settings):
    told = tiny.TinyLocal(**settings, label="broken")
    made = Stage("tiny-fail", "broken", tiny.Failure("bad luck\nand more"), {}, told)
    return [node("after", 1, {"x": made}), *tiny.diamond(**settings)]


def test_a_failed_stage_is_tried_once_by_all_processes_of_a_run(store, count):
    settings = {"count": str(count), "pause": 0.01}
    with beside(store, broken, **settings) as one, beside(store, broken, **settings) as two:
        outcomes = execute(broken(**settings), store, retry=False)
        for other in (one, two):
            other.join(PATIENCE)
            assert other.exitcode == 0
    assert count.read_text().splitlines().count("broken") == 1
    failed = outcomes[broken()[0].inputs["x"].key]
    assert failed.error == "ValueError: bad luck"
    assert isinstance(failed.exception, Exception)
    told = "not run, because tiny-fail broken failed: ValueError: bad luck"
    assert outcomes[broken()[0].key].error == told


def test_the_note_of_a_failure_says_who_tried_and_what_happened(store):
    failed = broken()[0].inputs["x"]
    execute([failed], store)
    note = store.failures.read(failed.key)
    assert note.pop("time")
    assert note.pop("version")
    assert note == {
        "stage": "tiny-fail broken",
        "error": "ValueError: bad luck",
        "kind": "StageError",
        "host": os.uname().nodename,
        "pid": os.getpid(),
    }


@pytest.mark.parametrize(
    ("kind", "raised"), [("ConfigError", ConfigError), ("DataError", DataError), ("?", StageError)]
)
def test_a_noted_failure_keeps_the_users_errors_apart(store, kind, raised):
    failed = broken()[0].inputs["x"]
    execute([failed], store)
    store.failures.write(failed.key, store.failures.read(failed.key) | {"kind": kind})
    (outcome,) = execute([failed], store, retry=False).values()
    assert type(outcome.exception) is raised
    assert outcome.error == "ValueError: bad luck"
    assert not outcome.here


def test_a_failure_is_tried_again_on_demand_or_by_another_version(store, count):
    stages = broken(count=str(count))[:1]
    execute(stages, store)
    execute(stages, store, retry=False)
    assert count.read_text() == "broken\n"
    execute(stages, store)
    assert count.read_text() == "broken\nbroken\n"
    key = stages[0].inputs["x"].key
    store.failures.write(key, store.failures.read(key) | {"version": "0"})
    execute(stages, store, retry=False)
    assert count.read_text() == "broken\nbroken\nbroken\n"


def test_a_store_that_cannot_be_used_is_no_failure_of_the_stage(store, monkeypatch):
    def full(*_, **__):
        raise StoreError("no room")

    stage = node("a", 1)
    monkeypatch.setattr(Store, "_commit", full)
    with pytest.raises(StoreError, match="no room"):
        execute([stage], store)
    assert store.failures.keys() == set()


def test_a_process_waits_for_one_that_is_stopped_and_takes_over_when_it_is_killed(store, count):
    settings = {"count": str(count), "pause": 0.02}
    stages = tiny.diamond(**settings)
    with beside(store, tiny.diamond, **settings) as other:
        until(other, lambda: store.checkpoints(stages[0].key).steps())
        os.kill(other.pid, signal.SIGSTOP)
        left = execute(stages, Store(store.root), wait=False, retry=False)
        assert left == {}
        with suppress(ProcessLookupError):
            os.kill(other.pid, signal.SIGKILL)
        outcomes = execute(stages, store, retry=False)
    assert [outcomes[each.key].error for each in stages] == [None] * 4
    assert sorted(count.read_text().split()) == ["a", "a", "b", "c", "d"]


def fatal(**settings):
    told = tiny.TinyLocal(count=settings["count"], label="fatal")
    fate = tiny.Fate(settings["gets_further"])
    made = Stage("tiny-fatal", "fatal", fate, {}, told)
    return [node("after", 1, {"x": made}), node("other", 2)]


def die(store, **settings):
    """Compute in another process until it ends; returns how."""
    with beside(store, fatal, **settings) as other:
        other.join(PATIENCE)
        return other.exitcode


def test_a_stage_that_kills_its_processes_fails_after_three_of_them(store, count):
    settings = {"count": str(count), "gets_further": False}
    killed = -signal.SIGKILL
    assert [die(store, **settings) for _ in range(4)] == [killed, killed, killed, 0]
    assert count.read_text() == "fatal\n" * 3
    after, other = fatal(**settings)
    made = after.inputs["x"]
    assert store.failures.keys() == {made.key}
    outcomes = execute([after, other], store, retry=False)
    assert outcomes[made.key].error.startswith("3 processes died in it one after another, the last")
    assert outcomes[after.key].error.startswith("not run, because tiny-fatal fatal failed: 3 proc")
    assert outcomes[other.key].error is None
    forgive(store, [made])
    assert store.failures.keys() == store.deaths.keys() == set()
    assert die(store, **settings) == killed


def test_deaths_with_a_new_checkpoint_between_are_no_reason_to_give_up(store, count):
    settings = {"count": str(count), "gets_further": True}
    assert [die(store, **settings) for _ in range(5)] == [-signal.SIGKILL] * 5
    (made,) = fatal(**settings)[0].inputs.values()
    assert store.checkpoints(made.key).steps()[-1] == 5
    assert store.deaths.read(made.key)["deaths"] == 1


def test_the_deaths_at_a_stage_are_forgotten_once_it_is_there(store):
    stage = node("a", 1)
    with beside(store, hold, root=str(store.root), key=stage.key) as other:
        until(other, lambda: store.is_busy(stage.key))
        other.kill()
        other.join(PATIENCE)
        with store.lock(stage.key):
            assert count_death(store, stage) is None
            assert count_death(store, node("b", 2)) is None
        assert store.deaths.keys() == {stage.key}
    with beside(store, hold, root=str(store.root), key=stage.key) as other:
        until(other, lambda: store.is_busy(stage.key))
        other.kill()
        other.join(PATIENCE)
        execute([stage], store, retry=False)
    assert store.deaths.keys() == set()


def hold(root, key):
    """Take the place of a graph in a process that holds a key and computes nothing."""
    with Store(root).lock(key):
        time.sleep(PATIENCE)
    return []
