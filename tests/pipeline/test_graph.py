"""Keys of stages, the order of a graph, and which of the stages that are ready comes first."""

from __future__ import annotations

import pytest
import tiny
from tiny import diamond, node

from maskpolicy.core.errors import ConfigError
from maskpolicy.pipeline.graph.execution import priorities, ranks_of
from maskpolicy.pipeline.graph.nodes import Stage, sinks, stage, topological, users_of
from maskpolicy.pipeline.stages.params import ReaderParams


def test_a_golden_key():
    """Moves only when every artifact of every user shall be computed again."""
    a = node("a", 1, steps=6)
    assert a.key == "57fd037728b0dff608e23e9c95ae3c5c281fd5cd9633fca74ad1c7000b24aa62"
    b = node("b", 2, {"a": a})
    assert b.key == "79c30cd021e5576f869ed65abcbf9d6d59468d1ff4cc21b2072d0af2db0875a1"


def test_parameters_and_inputs_are_in_the_key_labels_and_local_values_are_not():
    a, b = node("a", 1), node("b", 2)
    stages = [a, b, node("x", 1, {"a": a}), node("x", 1, {"a": b}), node("x", 1, {"b": a})]
    assert len({each.key for each in stages}) == len(stages)
    assert node("a", pause=3).key == node("b", transient=True).key


def test_the_key_stays_when_the_caller_changes_a_dict():
    fields = {"ratio": 0.15}
    params = ReaderParams(policy="random", fields=fields, code={}, depends={})
    annotate = Stage("annotate", "a", params)
    fields["ratio"] = 0.3
    assert annotate.keyed["fields"] == {"ratio": 0.15}


@pytest.mark.parametrize(
    ("create", "says"),
    [
        (lambda: Stage("tiny-walk", "", tiny.Failure("")), r"tiny-walk: its params must be .*Walk"),
        (lambda: Stage("tiny-wakl", "", tiny.Walk(1, 6, 2)), "did you mean 'tiny-walk'"),
        (lambda: node("a", tiny.Path("a")), r"tiny-walk\.params\.seed"),
        (lambda: stage("tiny-walk")(test_a_golden_key), r"twice: .*tiny\.py.*test_graph\.py"),
        (lambda: stage("local")(lambda params, inputs, out, run: None), "top level"),
    ],
)
def test_a_stage_that_cannot_be(create, says):
    with pytest.raises(ConfigError, match=says):
        create()


def test_topological_order_has_each_key_once_and_inputs_first():
    stages = diamond()
    assert [each.label for each in topological([stages[3], *diamond()])] == ["a", "b", "c", "d"]
    assert sinks(stages) == [stages[3]]
    assert [each.depth for each in stages] == [1, 2, 2, 3]


def drained(*stages: Stage) -> str:
    """Return the labels of stages and their inputs in the order of their ranks."""
    order = topological(stages)
    ranks = ranks_of(order, users_of(order))
    return "".join(each.label for each in sorted(order, key=lambda each: ranks[each.key]))


def test_the_longest_path_comes_first_then_the_order_of_the_graph():
    d = node("d", 4, {"c": node("e", 5, {"c": node("c", 3)})})
    assert drained(node("a", 1), node("b", 2), d) == "cedab"


@pytest.mark.parametrize(("transient", "labels"), [(True, "cdab"), (False, "abcd")])
def test_what_uses_a_transient_artifact_comes_before_what_makes_another_one(transient, labels):
    models = [node(name, seed, transient=transient) for seed, name in enumerate("ab")]
    assert drained(*(node(name, 9, {"x": models[i]}) for i, name in enumerate("cd"))) == labels


def test_an_urgent_stage_and_its_inputs_come_first():
    a, b = node("a", 1), node("b", 2)
    long = node("z", 4, {"x": node("y", 3, {"x": a})})
    assert drained(long, Stage("tiny-check", "c", tiny.Nothing(), {"b": b})) == "bcayz"


def test_a_training_is_as_pressing_as_what_it_makes_on_its_way():
    early = node("e", 2)
    last = node("z", 4, {"x": node("y", 3, {"x": early})})
    long = node("l", 5).adjusted(byproducts={"2": early})
    order = topological([node("a", 1), long, last])
    priority = priorities(order, users_of(order))
    assert priority[long.key] == priority[early.key] == 3
