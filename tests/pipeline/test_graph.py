"""Keys and order of stages, which one comes first, and those that take one of several inputs."""

import json
from dataclasses import dataclass

import pytest
import tiny
from tiny import Nothing, node

from maskpolicy.core.errors import ConfigError
from maskpolicy.pipeline.graph import nodes
from maskpolicy.pipeline.graph.execution import execute, ranks_of
from maskpolicy.pipeline.graph.nodes import Stage, stage, topological, users_of
from maskpolicy.pipeline.store.opening import open_store


@pytest.mark.parametrize(
    ("create", "says"),
    [
        (lambda: Stage("tiny-walk", "", tiny.Failure("")), r"tiny-walk: its params must be .*Walk"),
        (lambda: Stage("tiny-wakl", "", tiny.Walk(1, 6, 2)), "did you mean 'tiny-walk'"),
        (lambda: node("a", tiny.Path("a")), r"tiny-walk\.params\.seed"),
        (lambda: stage("tiny-walk")(drained), r"twice: .*tiny\.py.*test_graph\.py"),
        (lambda: stage("local")(lambda params, inputs, out, run: None), "top level"),
    ],
)
def test_a_stage_that_cannot_be(create, says):
    with pytest.raises(ConfigError, match=says):
        create()


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


@dataclass(frozen=True)
class Wanted:
    """The option to choose, or one that fails."""

    name: str


@stage("tiny-choice")
def choose(params: Wanted, inputs, out, run):
    """Choose an option."""
    if params.name == "fail":
        raise ValueError("no choice")
    (out / nodes.FILE).write_text(json.dumps({"input": params.name}))


@stage("tiny-pick", picks=True)
def pick(params: Nothing, inputs, out, run):
    """Take the result of the option that was chosen."""
    name = json.loads((inputs[nodes.CHOICE] / nodes.FILE).read_text())["input"]
    (out / "result.json").write_text((inputs[name] / "result.json").read_text())


COUNT = 3


def graph(count, chosen=1, **more):
    """Return a stage that picks one of three walks from transient ones that are also looked at.

    As in a tuned row: a model is made, looked at on dev, and perhaps on test.
    """
    told = {"count": str(count)}
    models = [node(f"model {i}", i, transient=True, **told) for i in range(COUNT)]
    looks = {f"look {i}": node(f"dev {i}", 5, {"model": models[i]}, **told) for i in range(COUNT)}
    name = chosen if isinstance(chosen, str) else f"{nodes.OPTION}{chosen}"
    choice = Stage("tiny-choice", "it", Wanted(name), {**looks, **more}, experiment="tiny")
    options = {
        f"{nodes.OPTION}{i}": node(f"test {i}", 7, {"model": models[i]}, **told)
        for i in range(COUNT)
    }
    return Stage("tiny-pick", "cell", Nothing(), {nodes.CHOICE: choice, **options})


MODELS = ["model 0", "model 1", "model 2"]
LOOKS = ["dev 0", "dev 1", "dev 2"]


def test_another_choice_computes_only_what_it_takes(store, count, since):
    execute([graph(count)], store)
    since()
    again = graph(count, more=node("more", 99))  # the same choice by other scores
    outcomes = execute([again], store).values()
    assert since() == []
    assert all(each.hit or each.here or not each.seconds for each in outcomes)
    execute([graph(count, chosen=2)], store)
    assert since() == ["model 2", "test 2"]  # the model had been dropped


def test_a_choice_that_is_damaged_in_a_bucket_is_made_again(url, bucket, count, since, tmp_path):
    cell, store = graph(count), open_store(url, tmp_path / "here")
    execute([cell], store)
    since()
    store.drop(cell.key)
    choice = cell.inputs[nodes.CHOICE].key
    (file,) = store.peek(choice)["files"]
    bucket.delete([f"blobs/sha256/{file['sha256'][:2]}/{file['sha256']}"])
    there = open_store(url, tmp_path / "there")
    assert there.file(choice, nodes.FILE) is None
    assert execute([cell], there)[cell.key].error is None
    assert since() == []
    assert there.verify(choice) is None


def test_a_choice_that_fails_computes_no_option(store, count, since):
    made = graph(count, chosen="fail")
    outcomes = execute([made], store)
    assert sorted(since()) == sorted([*LOOKS, *MODELS])
    assert "no choice" in str(outcomes[made.key].error)
    assert outcomes.keys() == {each.key for each in topological([made])}
