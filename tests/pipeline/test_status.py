"""The status of an experiment comes from the store alone, at any moment of a run."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta

import pytest
import tiny
from tiny import node

from maskpolicy.pipeline.executors.status import Failed, UnderWay, status_of
from maskpolicy.pipeline.graph import events
from maskpolicy.pipeline.graph.events import Event, plan_digest, read_events, recorded, silent
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.graph.nodes import Stage, topological

HERE = os.uname().nodename


def status(store, *stages):
    return status_of(topological(stages), stages, store)


def running(store, *stages):
    """Return what takes the events of a run of these stages, as a context manager."""
    return recorded(store.events(plan_digest(topological(stages))), silent)


def begin(store, stages, seconds):
    """Let the run of these stages have begun so many seconds earlier."""
    path = store.events(plan_digest(topological(stages)))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        early = datetime.fromisoformat(line["time"]) - timedelta(seconds=seconds)
        line["time"] = early.isoformat(timespec="seconds")
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_nothing_is_done_at_first_and_no_time_is_estimated(store):
    found = status(store, *tiny.diamond())
    assert (found.done, found.left, found.under_way, found.failed) == (0, 4, (), ())
    assert (found.seconds, found.measured, found.unknown) == (None, 0, ("tiny-walk",))
    assert not store.root.exists()


def test_all_is_done_at_the_end_although_a_transient_artifact_is_gone(store):
    stages = tiny.diamond()
    execute(stages, store)
    found = status(store, stages[1], stages[3])
    assert (found.done, found.left, found.seconds, found.is_running) == (4, 0, 0, False)


def test_the_time_left_is_estimated_from_stages_of_the_same_kind(store):
    first = [node(str(seed), seed, pause=0.02) for seed in range(2)]
    execute(first, store)
    long = node("z", 9, {"x": node("y", 8, {"x": node("x", 7)})})
    found = status(store, *first, long, node("w", 6))
    seconds = [store.recall(stage.key)["seconds"] for stage in first]
    assert (found.measured, found.left) == (2, 4)
    assert found.seconds == pytest.approx(4 * sum(seconds) / 2)  # by one worker


def test_a_failure_is_told_with_what_it_stops_until_the_next_run(store):
    broken = Stage("tiny-fail", "broken", tiny.Failure("bad luck"), {}, tiny.TinyLocal())
    stages = [node("after", 1, {"x": broken}), node("other", 2)]
    execute(stages, store)
    found = status(store, *stages)
    (failed,) = found.failed
    assert failed == Failed("tiny-fail broken", "ValueError: bad luck", HERE, failed.time)
    assert (found.done, found.blocked, found.left) == (1, 1, 0)
    with running(store, *stages):
        assert (status(store, *stages).failed, status(store, *stages).left) == ((), 2)


def test_what_is_under_way_is_told_with_its_progress_and_counts_for_the_time_left(
    store, monkeypatch
):
    monkeypatch.setattr(events, "_INTERVAL", 0.0)
    stages = a, b, c = [node(name, seed) for seed, name in enumerate("abc")]
    execute([a], store)
    with running(store, *stages) as listen:
        listen(Event("started", b))
        begin(store, stages, 3000)
        listen(Event("advanced", b, 10, 40, "loss 2.0"))
        begun, _ = read_events(store.events(plan_digest(stages)))
        found = status(store, *stages)
        # a run at the same time writes nothing
        with running(store, *stages) as other:
            other(Event("started", c))
        assert status(store, *stages).under_way == found.under_way
    since = begun[0]["time"]
    assert found.under_way == (UnderWay(b.name, HERE, os.getpid(), since, 10, 40, "loss 2.0"),)
    assert (found.is_running, found.done, found.left) == (True, 1, 1)
    assert found.seconds == pytest.approx(9000, rel=0.01)
    assert datetime.fromisoformat(since) < datetime.now(UTC)
    after = status(store, *stages)
    assert (after.is_running, after.under_way, after.left) == (False, (), 2)


def test_lines_of_progress_are_seconds_apart_and_half_a_line_is_left_out(store):
    (a,) = stages = [node("a")]
    path = store.events(plan_digest(stages))
    with running(store, a) as listen:
        for done in range(100):
            listen(Event("advanced", a, done, 100))
        with path.open("a") as file:
            file.write('{"what": "adv')
        lines, is_running = read_events(path)
    assert is_running
    assert [line["done"] for line in lines] == [0]
