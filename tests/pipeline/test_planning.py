"""A plan says what a run would compute and why, and touches nothing."""

from __future__ import annotations

from tiny import diamond, node

from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.graph.nodes import Stage
from maskpolicy.pipeline.graph.planning import plan
from maskpolicy.pipeline.store.artifacts import Store


def states(stages, store, **options):
    return [(each.stage.label, each.state, each.why) for each in plan(stages, store, **options)]


def chain(seed=1, steps=6):
    a = node("a", seed, steps=steps)
    return [a, node("b", 2, {"walk": a})]


def test_an_empty_store_is_all_misses_and_stays_empty(store):
    assert states(chain(), store) == [
        ("a", "to do", "was never computed"),
        ("b", "to do", "input walk is to do"),
    ]
    assert not store.root.exists()


def test_after_the_run_all_are_hits(store):
    execute(diamond(), store)
    assert states(diamond(), store) == [
        ("a", "done", ""),
        ("b", "done", ""),
        ("c", "done", "not needed"),
        ("d", "done", ""),
    ]


def test_the_plan_agrees_with_the_run(store, tmp_path):
    count = tmp_path / "count"
    stages = diamond(count=str(count))
    execute(stages, store)
    store.drop(stages[1].key)
    store.drop(stages[3].key)
    count.write_text("")
    planned = [each.stage.label for each in plan(stages, store) if each.state != "done"]
    execute(stages, store)
    assert planned == count.read_text().split() == ["b", "c", "d"]


def test_a_changed_parameter_is_stale_and_so_is_what_follows(store):
    execute(chain(), store)
    assert states(chain(steps=8), store) == [
        ("a", "outdated", "tiny-walk.steps: 6 -> 8"),
        ("b", "outdated", "input walk changed (outdated)"),
    ]


def test_an_input_that_is_there_under_another_key_is_named(store):
    execute(chain(seed=1), store)
    execute(chain(seed=5)[:1], store)
    assert states(chain(seed=5), store)[1] == ("b", "outdated", "input walk changed")


def test_the_newest_of_several_is_compared(store):
    execute(chain(steps=6), store)
    execute(chain(steps=7), store)
    assert states(chain(steps=8), store)[0] == ("a", "outdated", "tiny-walk.steps: 7 -> 8")


def test_a_dropped_artifact_is_compared_too(store):
    execute(diamond(), store)
    assert states(diamond(steps=8), store)[2][:2] == ("c", "outdated")


def test_a_dropped_artifact_that_is_needed_again_says_so(store):
    stages = diamond()
    execute(stages, store)
    store.drop(stages[3].key)
    assert states(stages, store)[2] == ("c", "to do", "was dropped after use, and is needed again")


def test_another_experiment_is_not_stale(store):
    execute(chain(), store)
    (known,) = chain(seed=5)[:1]
    other = Stage("tiny-walk", "a", known.params, experiment="another")
    assert states([other], store) == [("a", "to do", "was never computed")]


def test_inputs_that_come_and_go_are_named(store):
    a = node("a", 1)
    execute([node("b", 2, {"old": a})], store)
    why = states([node("b", 2, {"new": a})], store)[1][2]
    assert why == "input new is new; input old is no longer used"


def test_many_differences_are_cut(store):
    a = node("a", 1)
    execute([node("b", 1, {"old": a}, steps=2, every=1)], store)
    changed = node("b", 2, {"new": a}, steps=3, every=2)
    assert states([changed], store)[1][2].endswith("; and 1 more")


def test_a_checkpoint_makes_a_stage_partial(store):
    (a,) = stages = chain()[:1]
    with store.lock(a.key):
        store.checkpoints(a.key).save(4, lambda to: (to / "state.json").write_text("[]"))
    assert states(stages, store) == [("a", "begun", "resumes from the checkpoint of step 4")]


def test_a_stage_at_work_in_another_process_is_partial(store):
    (a,) = stages = chain()[:1]
    with store.lock(a.key):
        assert states(stages, Store(store.root))[0] == (
            *("a", "begun", "another process is computing it"),
        )


def test_a_damaged_artifact_is_a_miss_and_stays_where_it_is(store):
    stages = chain()
    execute(stages, store)
    (store.path(stages[1].key) / "result.json").write_text("")
    assert states(stages, store)[1][1:] == (
        "to do",
        "its files do not match their manifest: the next run puts them in quarantine",
    )
    assert store.path(stages[1].key).exists()


def test_targets_decide_what_is_needed(store):
    stages = diamond()
    execute(stages, store)
    assert states(stages, store, targets=[stages[2]])[2][1] == "to do"
