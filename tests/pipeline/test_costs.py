"""What stages will cost is estimated from those that were computed."""

from __future__ import annotations

import pytest
from tiny import node

from maskpolicy.pipeline.graph.costs import Costs, expected, known_costs
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.graph.planning import missing


def test_a_training_costs_by_its_passages():
    costs, stage = Costs(), node("a")
    params = {"spec": {"steps": 10, "batch_size": 4}}
    costs.learn("tiny-walk", params, 20.0, 100)
    assert costs.of(stage).seconds == 0.5  # one unit
    assert costs.of(stage).size == 100


def test_the_newest_stages_count():
    costs, stage = Costs(), node("a")
    for seconds in [1000.0] * 30 + [2.0] * 20:
        costs.learn("tiny-walk", stage.keyed, seconds)
    assert costs.of(stage).seconds == 2
    assert costs.measured([stage]) == 20


def test_the_plan_of_another_experiment_is_a_guess_until_its_own_stage_is_measured(store):
    execute([node("other", 1, pause=0.02)], store)
    mine = node("mine", 2)
    lacking = missing([mine], store)
    assert known_costs([mine], lacking, store).of(mine) is None
    costs = known_costs([mine], lacking, store, elsewhere=store.records)
    [known] = store.records()
    size = sum(each["size"] for each in known["files"])
    assert costs.of(mine).seconds == pytest.approx(known["seconds"])
    assert costs.of(mine).size == size
    costs.learn(mine.kind, mine.keyed, 500.0)
    assert (costs.of(mine).seconds, costs.of(mine).size) == (500, size)


def test_what_is_expected_has_time_and_bytes(store):
    a = node("a", 1, transient=True)
    b, c = node("b", 2, {"a": a}), node("c", 3)
    costs = Costs()
    costs.learn("tiny-walk", a.keyed, 10.0, 100)
    found = expected([a, b, c], costs, workers=2)
    assert (found.seconds, found.work) == (20, 30)  # a before b
    assert (found.written, found.kept) == (300, 200)
    assert (found.measured, found.unknown) == (1, ())
    assert expected([a, b, c], Costs(), workers=2).unknown == ("tiny-walk",)
    assert expected([b], costs, workers=2).seconds == 10  # its input is there
