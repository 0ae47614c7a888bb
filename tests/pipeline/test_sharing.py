"""Several commands on one store: each stage is computed once, and what is lost is taken over."""

from __future__ import annotations

import json
import os
import signal
from contextlib import contextmanager
from multiprocessing import get_context

import clusters
import pytest
import tiny
from clusters import until

from maskpolicy.analyses.cache import derive
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.graph.nodes import Stage, topological
from maskpolicy.pipeline.store.artifacts import Store


@pytest.fixture
def count(tmp_path):
    (tmp_path / "count").write_text("")
    return tmp_path / "count"


def compute(root, graph, settings):
    execute(graph(**settings), Store(root))


@contextmanager
def beside(store, graph, **settings):
    """Run another process on the graph; it is killed if it is there at the end of the block."""
    other = get_context("spawn").Process(target=compute, args=(store.root, graph, settings))
    other.start()
    try:
        yield other
    finally:
        other.kill()
        other.join(clusters.PATIENCE)


def committed(store, stage):
    return json.loads((store.path(stage.key) / "MANIFEST.json").read_text())["committed"]


def test_a_byproduct_of_a_training_elsewhere_is_awaited_and_used_at_once(store, count):
    settings = {"count": str(count), "pause": 0.05}
    users = after_early, after_long = tiny.training(**settings)
    early, long = after_early.inputs["x"], after_long.inputs["x"]
    events = []
    with beside(store, tiny.training, **settings) as other:
        until(lambda: count.read_text() == "long\n")
        outcomes = execute(users, store, events.append)
        other.join(clusters.PATIENCE)
        assert other.exitcode == 0
    assert sorted(count.read_text().splitlines()) == ["after early", "after long", "long"]
    assert [outcomes[each.key].error for each in topological(users)] == [None] * 4
    assert {event.stage.label for event in events if event.what == "waits"} >= {"long"}
    assert committed(store, early) < committed(store, after_early)
    assert committed(store, early) < committed(store, long)


def test_a_training_is_taken_over_from_a_dead_command_with_its_byproduct(store, count):
    settings = {"count": str(count), "pause": 0.02}
    users = tiny.training(**settings)
    early, long = (user.inputs["x"] for user in users)
    with beside(store, tiny.training, **settings) as other:
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


def broken(**settings):
    told = tiny.TinyLocal(**settings, label="broken")
    fail = Stage("tiny-fail", "broken", tiny.Failure("bad luck\nand more"), {}, told)
    return [tiny.node("after", 1, {"x": fail}), *tiny.diamond(**settings)]


def test_three_commands_compute_each_stage_once(store, count):
    """A stage that fails is tried by each command, because none stands for another."""
    settings = {"count": str(count), "pause": 0.05}
    with beside(store, broken, **settings) as one, beside(store, broken, **settings) as two:
        outcomes = execute(broken(**settings), store)
        for other in (one, two):
            other.join(clusters.PATIENCE)
            assert other.exitcode == 0
    lines = sorted(each for each in count.read_text().splitlines() if each != "broken")
    assert lines == list("abcd")
    assert outcomes[broken()[0].inputs["x"].key].error == "ValueError: bad luck"
    reference = Store(store.root.parent / "reference")
    kept = [stage for stage in tiny.diamond() if not stage.transient]
    execute(tiny.diamond(), reference)
    assert tiny.content(store, kept) == tiny.content(reference, kept)
    assert not store.has(tiny.diamond()[2].key)


def derived(root, count):
    told = tiny.TinyLocal(count=count, pause=0.05)
    derive(Store(root), "tiny-walk", "derived", tiny.Walk(1, 4, 1), {}, told)


def test_two_commands_derive_a_stage_of_an_analysis_once(store, count):
    others = [
        get_context("spawn").Process(target=derived, args=(store.root, str(count)))
        for _ in range(2)
    ]
    for other in others:
        other.start()
    for other in others:
        other.join(clusters.PATIENCE)
        assert other.exitcode == 0
    assert count.read_text() == "\n"
