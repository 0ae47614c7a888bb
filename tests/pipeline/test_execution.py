"""A run computes missing stages once, and a failure stops only the stages behind it."""

import json
from concurrent.futures import Future

import pytest
import tiny
from stores import interrupted
from tiny import broken, diamond, node

from maskpolicy.pipeline.graph.calls import Answer, answer
from maskpolicy.pipeline.graph.events import Event
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.graph.nodes import topological
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.pipeline.store.disk import Disk


def words(events: list[Event]) -> list[str]:
    def state(event):
        outcome = event.outcome
        if outcome is None:
            return event.what if event.what != "advanced" else f"{event.done}/{event.total}"
        return "failed" if outcome.error else "hit" if outcome.hit else "done"

    return [f"{event.stage.label} {state(event)}" for event in events]


def test_the_transient_artifact_is_dropped_and_computed_again_for_a_missing_user(
    store, count, since
):
    stages = diamond(count=str(count))
    outcomes = execute(stages[3:], store)
    assert "x" in json.loads((outcomes[stages[3].key].artifact / "result.json").read_text())
    assert since() == [*"abcd"]
    assert [store.get(each.key) is not None for each in stages] == [True, True, False, True]
    execute(stages, store)
    store.drop(stages[3].key)
    assert since() == []
    execute(stages, store)
    assert since() == [*"cd"]


def test_a_transient_artifact_waits_for_all_its_users(store):
    a = node("a", 1, transient=True)
    ready, failing = node("b", 2, {"a": a}), broken(inputs={"a": a})
    execute([ready, failing], store)
    assert store.get(a.key) is not None
    execute([ready], store)
    assert store.get(a.key) is None


def test_a_transient_artifact_stays_while_another_run_may_use_it(store):
    stages = diamond()
    with Store(store.root).using([stages[2].key]):
        execute(stages, store)
        assert store.has(stages[2].key)
    execute(stages, store)
    assert not store.has(stages[2].key)


def test_a_run_does_not_drop_what_another_run_keeps(store):
    keeping, dropping = (
        node("b", 2, {"a": node("a", 1, transient=transient)}) for transient in (False, True)
    )
    execute([keeping], store)
    execute([dropping, node("c", 3, dropping.inputs)], store)
    assert store.has(keeping.inputs["a"].key)


def test_what_only_finished_stages_need_is_neither_computed_nor_verified(store, count, since):
    stages = diamond(count=str(count))
    execute(stages, store)
    since()
    (store.path(stages[0].key) / "result.json").write_text("damaged")
    store.drop(stages[1].key)
    outcomes = execute(stages, Store(store.root))
    assert since() == []
    assert (store.path(stages[0].key) / "result.json").read_text() == "damaged"
    assert outcomes[stages[1].key].hit
    assert outcomes[stages[1].key].artifact is None


@pytest.mark.parametrize(("damaged", "first"), [(False, "5/6"), (True, "3/6")])
def test_a_stage_resumes_from_its_newest_checkpoint_that_is_whole(store, damaged, first):
    stages = [node("a", 1)]
    interrupted(store, node("a", 1, pause=0.05), 5)
    newest = store.root / "checkpoints" / stages[0].key / f"{4:012d}" / "state.json"
    if damaged:
        newest.write_text(newest.read_text().replace("1", "2", 1))
    events: list[Event] = []
    (outcome,) = execute(stages, store, events.append).values()
    assert outcome.seconds >= 0.05 * (2 if damaged else 4)  # also those of the first attempt
    assert words(events)[1] == f"a {first}"
    assert tiny.content(store, stages) == tiny.alone(stages)


@pytest.mark.parametrize("fails", [False, True])
def test_a_byproduct_is_made_on_the_way_with_the_bytes_of_its_own_stage(store, count, fails):
    users = tiny.training(fails=fails, count=str(count))
    outcomes = execute(users, store)
    lines = sorted(count.read_text().splitlines())
    early = users[0].inputs["x"]
    assert outcomes[users[0].key].error is None
    if fails:
        assert lines == ["after early", "early", "long"]
        assert "bad luck" in outcomes[users[1].key].error
    else:
        assert lines == ["after early", "after long", "long"]
        assert tiny.content(store, [early]) == tiny.alone([early])


def test_a_failure_stops_only_what_depends_on_it(store):
    a = node("a", 1)
    bad = broken(inputs={"a": a})
    after = node("after", 1, {"x": bad})
    last = node("last", 1, {"x": after})
    other = node("other", 1, {"a": a})
    outcomes = execute([last, other], store)
    assert outcomes[bad.key].error == "ValueError: bad luck"
    assert isinstance(outcomes[bad.key].exception, ValueError)
    told = "not run, because tiny-fail broken failed: ValueError: bad luck"
    assert outcomes[after.key].error == outcomes[last.key].error == told
    assert outcomes[a.key].error is None
    assert outcomes[other.key].artifact is not None
    assert list((store.root / "temporary").iterdir()) == []


def test_what_only_stages_need_that_cannot_run_is_not_computed(store, count):
    told = {"count": str(count)}
    bad = broken(**told)
    costly, shared = (node(label, seed, **told) for seed, label in enumerate(("costly", "shared")))
    lost = node("lost", 4, {"x": bad, "costly": costly, "shared": shared}, **told)
    other = node("other", 5, {"shared": shared}, **told)
    outcomes = execute([lost, other], store)
    assert sorted(count.read_text().split()) == ["broken", "other", "shared"]
    assert "broken failed" in outcomes[lost.key].error
    assert (outcomes[costly.key].artifact, outcomes[costly.key].error) == (None, None)
    assert outcomes[other.key].error is None


class Places:
    """An engine of several places that computes calls in this process."""

    def __init__(self, store, capacity):
        self.store, self.capacity, self.asked = store, capacity, []

    def submit(self, call, report):
        future: Future[Answer] = Future()
        self.asked.append(call.name)
        future.set_result(answer(call, self.store, report))
        return future


MOST = {"peek": 0.1, "get": 7, "has": 0.1, "lock": 3, "in_use": 0.1, "committed": 0.1}  # a stage


def test_many_stages_are_submitted_once_each_and_looked_for_a_few_times(tmp_path, monkeypatch):
    """The calls that grow with a graph are linear in it, wherever its stages wait."""
    counts = dict.fromkeys(MOST, 0)

    def counting(name):
        owner = Disk if name == "lock" else Store
        inner = getattr(owner, name)

        def call(self, *words, **more):
            counts[name] += 1
            return inner(self, *words, **more)

        monkeypatch.setattr(owner, name, call)

    for name in counts:
        counting(name)
    root = node("root", steps=1)
    middle = [node(f"m{i}", i, {"root": root}, steps=1, transient=True) for i in range(6)]
    last = [node(f"l{i}", i, {"m": middle[i % 6]}, steps=1, transient=i < 5) for i in range(293)]
    store = Store(tmp_path / "store")
    engine = Places(store, 8)
    outcomes = execute(last, store, engine=engine)
    assert len(topological(last)) == len(outcomes) == len(engine.asked) == 300
    assert not any(outcome.error for outcome in outcomes.values())
    assert all(counts[name] <= each * 300 for name, each in MOST.items()), counts
