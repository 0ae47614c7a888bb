"""What is ready comes in the order of its longest path; pauses grow while nothing happens."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tiny
from tiny import node

from maskpolicy.graph.nodes import Stage, topological, users_of
from maskpolicy.graph.scheduling import BackOff, Ready, makers_of, poll_interval, priorities


def ready(*stages):
    order = topological(stages)
    made = Ready(order, users_of(order))
    for stage in order:
        made.push(stage)
    return made


def drained(queue):
    found = []
    while (stage := queue.pop()) is not None:
        found.append(stage.label)
    return "".join(found)


def test_the_longest_path_comes_first_then_the_order_of_the_graph():
    a, b, c = node("a", 1), node("b", 2), node("c", 3)
    d = node("d", 4, {"c": node("e", 5, {"c": c})})
    order = topological([a, b, d])
    users = users_of(order)
    assert {s.label: priorities(order, users)[s.key] for s in order} == {
        **{"a": 1, "b": 1},
        **{"c": 3, "e": 2, "d": 1},
    }
    assert drained(ready(a, b, d)) == "cedab"


def test_what_uses_a_transient_artifact_comes_before_what_makes_another_one():
    made = [node(name, seed, transient=True) for seed, name in enumerate("ab")]
    used = [node(name, 9, {"x": made[i]}) for i, name in enumerate("cd")]
    queue = ready(*used)
    assert drained(queue) == "cdab"
    kept = [node(name, seed) for seed, name in enumerate("ab")]
    used = [node(name, 9, {"x": kept[i]}) for i, name in enumerate("cd")]
    assert drained(ready(*used)) == "abcd"


def test_an_urgent_stage_and_its_inputs_come_first():
    a, b = node("a", 1), node("b", 2)
    long = node("z", 4, {"x": node("y", 3, {"x": a})})
    check = Stage("tiny-check", "c", tiny.Nothing(), {"b": b})
    assert drained(ready(long, check)) == "bcayz"


def test_a_training_is_as_pressing_as_what_it_makes_on_its_way():
    a = node("a", 1)
    early = node("e", 2)
    last = node("z", 4, {"x": node("y", 3, {"x": early})})
    long = replace(node("l", 5), byproducts={"2": early})
    order = topological([a, long, last])
    found = priorities(order, users_of(order))
    assert found[long.key] == found[early.key] == 3
    assert makers_of(order) == {early.key: [long]}


def test_what_others_claimed_is_set_aside_and_tried_again_a_few_at_a_time():
    stages = [node(str(seed), seed) for seed in range(20)]
    queue = ready(*stages)
    for _ in range(20):
        queue.defer(queue.pop())
    assert queue.pop() is None
    queue.resume()
    assert len({queue.pop() for _ in range(9)}) == 9  # eight stages and None
    assert len(queue.deferred) == 12


def test_processes_that_meet_shuffle_stages_of_one_rank():
    stages = [node(chr(97 + seed), seed) for seed in range(20)]
    longer = [node("z", 9, {"x": stage}) for stage in stages[:10]]
    found = set()
    for _ in range(4):
        queue = ready(*longer, *stages[10:])
        queue.defer(queue.pop())
        rest = drained(queue)
        assert set(rest[:9]) < set("abcdefghij")
        found.add(rest)
    assert len(found) > 1


def test_pauses_grow_with_the_time_waited_up_to_some_seconds(monkeypatch):
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    back_off = BackOff(longest=5.0)
    for waited, longest in ((0, 0.1), (10, 1), (1000, 5)):
        now = waited
        pauses = [back_off.pause(0.0) for _ in range(20)]
        assert len(set(pauses)) > 1
        assert longest / 2 <= min(pauses) <= max(pauses) <= longest
    assert back_off.pause(poll=2.0) >= 20
    back_off.reset()
    assert back_off.pause(0.0) == pytest.approx(0.075, abs=0.026)


def test_where_looking_takes_long_a_process_that_computes_looks_rarely():
    assert poll_interval(0.001) == 1.0
    assert poll_interval(2.0) == 40.0
