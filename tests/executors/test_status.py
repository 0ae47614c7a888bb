"""The status of an experiment comes from the store alone, at any moment of a run."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

import pytest
import tiny
from tiny import node

from maskpolicy.config.parse import make_experiment
from maskpolicy.executors.request import Request
from maskpolicy.executors.stage_worker import Planned
from maskpolicy.executors.status import Failed, UnderWay, status_of
from maskpolicy.graph.execution import execute
from maskpolicy.graph.nodes import Stage, topological
from maskpolicy.store.artifacts import Store
from maskpolicy.store.holders import Holder

EXPERIMENT = {"model": "mini", "corpus": "world", "policies": ["none"], "tasks": [], "seeds": [0]}


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def planned(store, *stages):
    experiment = make_experiment(dict(EXPERIMENT), "it", "", (), needs=())
    return Planned(Request("it"), experiment, topological(stages), stages, store)


def test_nothing_is_done_at_first_and_no_time_is_estimated(store):
    found = status_of(planned(store, *tiny.diamond()))
    assert (found.done, found.left, found.under_way, found.failed) == (0, 4, (), ())
    assert (found.seconds, found.measured, found.unknown) == (None, 0, ("tiny-walk",))
    assert not store.root.exists()


def test_all_is_done_at_the_end_although_a_transient_artifact_is_gone(store):
    stages = tiny.diamond()
    execute(stages, store)
    found = status_of(planned(store, *stages[:2], stages[3]))
    assert (found.done, found.left, found.seconds) == (4, 0, 0)


def test_the_time_left_is_estimated_from_stages_of_the_same_kind(store):
    first = [node(str(seed), seed, pause=0.02) for seed in range(2)]
    execute(first, store)
    long = node("z", 9, {"x": node("y", 8, {"x": node("x", 7)})})
    found = status_of(planned(store, *first, long, node("w", 6)))
    seconds = [store.recall(stage.key)["seconds"] for stage in first]
    assert found.measured == 2
    assert found.left == 4
    assert found.seconds == pytest.approx(4 * sum(seconds) / 2)  # by one worker


def test_a_failure_is_told_with_what_it_stops(store):
    told = tiny.TinyLocal(label="broken")
    broken = Stage("tiny-fail", "broken", tiny.Failure("bad luck"), {}, told)
    stages = [node("after", 1, {"x": broken}), node("other", 2)]
    execute(stages, store)
    found = status_of(planned(store, *stages))
    (failed,) = found.failed
    assert failed == Failed(
        "tiny-fail broken", "ValueError: bad luck", os.uname().nodename, failed.time
    )
    assert (found.done, found.blocked, found.left) == (1, 1, 0)


AHEAD = -3600  # begun by a clock that is ahead: nothing is spent, however slow this machine is


def busy(monkeypatch, stages, started):
    """Let another process be at some stages since so many seconds."""
    since = datetime.now(UTC) - timedelta(seconds=started)
    holders = {stage.key: Holder("far", 7, since, 90.0, "far/1", None) for stage in stages}
    monkeypatch.setattr(Store, "claimed", lambda self: set(holders))
    monkeypatch.setattr(Store, "holder", lambda self, key: holders.get(key))
    return since.isoformat(timespec="seconds")


def test_what_is_under_way_is_told_with_its_progress(store, monkeypatch):
    a, b, c = (node(name, seed) for seed, name in enumerate("abc"))
    execute([a], store)
    since = busy(monkeypatch, [b, c], started=3000)
    note = {"stage": b.name, "done": 10, "total": 40, "note": "loss 2.0"}
    store.progress.write(b.key, note | {"host": "far", "pid": 7})
    store.progress.write(c.key, note | {"host": "far", "pid": 6})  # of a dead process
    found = status_of(planned(store, a, b, c))
    assert found.under_way == (
        UnderWay("tiny-walk b", "far", 7, since, 10, 40, "loss 2.0"),
        UnderWay("tiny-walk c", "far", 7, since, None, None, ""),
    )
    assert (found.done, found.left) == (1, 0)
    assert found.seconds == pytest.approx(9000, rel=0.05)  # 3000 s for a quarter


def test_a_claim_of_a_finished_or_failed_stage_is_not_under_way(store, monkeypatch):
    a, b = node("a", 1), node("b", 2)
    execute([a], store)
    busy(monkeypatch, [a, b], started=1)
    assert [each.stage for each in status_of(planned(store, a, b)).under_way] == ["tiny-walk b"]


def test_more_workers_share_the_work_but_not_a_path(store, monkeypatch):
    done = node("a", 1, pause=0.05)
    execute([done], store)
    seconds = store.recall(done.key)["seconds"]
    free = [node(str(seed), seed + 2) for seed in range(8)]
    busy(monkeypatch, free[:4], started=AHEAD)
    found = status_of(planned(store, done, *free))
    assert found.seconds == pytest.approx(2 * seconds, rel=0.3)
    long = node("z", 9, {"x": node("y", 8, {"x": node("x", 7)})})
    found = status_of(planned(store, done, *free[:4], long))
    assert found.seconds == pytest.approx(3 * seconds, rel=0.3)


def test_a_note_by_another_version_is_no_failure(store):
    told = tiny.TinyLocal(label="broken")
    broken = Stage("tiny-fail", "broken", tiny.Failure("bad luck"), {}, told)
    execute([broken], store)
    store.failures.write(broken.key, store.failures.read(broken.key) | {"version": "0"})
    found = status_of(planned(store, broken))
    assert (found.failed, found.left) == ((), 1)


def test_who_gives_no_sign_of_life_is_told_and_counts_as_no_worker(store, monkeypatch):
    done, a, b = node("done", 1, pause=0.05), node("a", 2), node("b", 3)
    execute([done], store)
    busy(monkeypatch, [a, b], started=600)
    now = datetime.now(UTC)
    heard = {a.key: now - timedelta(seconds=300), b.key: now - timedelta(seconds=20)}
    monkeypatch.setattr(Store, "last_refresh", lambda self, key: heard.get(key))
    found = status_of(planned(store, done, a, b))
    silent = {each.stage: each.silent for each in found.under_way}
    told = heard[a.key].isoformat(timespec="seconds")
    assert silent == {"tiny-walk a": told, "tiny-walk b": None}
    assert found.seconds == pytest.approx(store.recall(done.key)["seconds"], rel=0.3)
