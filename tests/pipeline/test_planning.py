"""Plan, costs and status of an experiment come from the store, and touch nothing."""

import os
import re
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import folders
import pytest
import small
import text_to_text
import tiny
from stores import save, tree
from tiny import diamond, node

from maskpolicy.core.errors import ConfigError
from maskpolicy.experiment.definition import ModelBlock
from maskpolicy.experiment.parse import load_experiment
from maskpolicy.pipeline import stages as stages_of
from maskpolicy.pipeline.executors.status import status_of
from maskpolicy.pipeline.graph import events
from maskpolicy.pipeline.graph.costs import expected, known_costs
from maskpolicy.pipeline.graph.events import Event, plan_digest, read_events, recorded, silent
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.graph.nodes import Stage, topological
from maskpolicy.pipeline.graph.planning import missing, plan
from maskpolicy.pipeline.graph.preflight import Machine, preflight, size
from maskpolicy.pipeline.store.artifacts import Store


def states(stages, store, **options):
    return [(each.stage.label, each.state, each.why) for each in plan(stages, store, **options)]


def chain(seed=1, steps=6):
    a = node("a", seed, steps=steps)
    return [a, node("b", 2, {"walk": a})]


def damage(store):
    (store.path(chain()[1].key) / "result.json").write_text("")


def checkpoint(store):
    store.drop(chain()[1].key)
    with store.lock(chain()[1].key):
        store.checkpoints(chain()[1].key).save(4, lambda to: (to / "state.json").write_text("[]"))


A = node("a", 1)
OLD, NEW = node("b", 2, {"old": A}), node("b", 2, {"new": A})
MANY = node("b", 1, {"old": A}, steps=2, every=1), node("b", 2, {"new": A}, steps=3, every=2)
OTHER = Stage("tiny-walk", "a", A.params, experiment="another")
NEEDED_AGAIN = "was dropped after use, and is needed again"
QUARANTINE = "its files do not match their manifest: the next run puts them in quarantine"


@pytest.mark.parametrize(
    ("computed", "change", "planned", "at", "state", "why"),
    [
        ([diamond()], None, diamond(), 2, "done", "not needed"),
        ([diamond()], None, diamond(), 3, "done", ""),
        ([chain()], None, chain(steps=8), 0, "outdated", "tiny-walk.steps: 6 -> 8"),
        ([chain()], None, chain(steps=8), 1, "outdated", "input walk changed (outdated)"),
        ([chain(), chain(5)[:1]], None, chain(5), 1, "outdated", "input walk changed"),
        ([chain(), chain(steps=7)], None, chain(steps=8), 0, "outdated", "tiny-walk.steps: 7 -> 8"),
        ([diamond()], None, diamond(steps=8), 2, "outdated", "..; input a changed (outdated)"),
        ([diamond()], lambda s: s.drop(diamond()[3].key), diamond(), 2, "to do", NEEDED_AGAIN),
        ([chain(5)], None, [OTHER], 0, "to do", "was never computed"),
        ([[OLD]], None, [NEW], 1, "outdated", "input new is new; input old is no longer used"),
        ([[MANY[0]]], None, [MANY[1]], 1, "outdated", "..; and 1 more"),
        ([chain()], checkpoint, chain(), 1, "begun", "resumes from the checkpoint of step 4"),
        ([chain()], damage, chain(), 1, "to do", QUARANTINE),
    ],
)
def test_each_stage_has_a_state_and_a_reason(store, computed, change, planned, at, state, why):
    for stages in computed:
        execute(stages, store)
    if change is not None:
        change(store)
    before = tree(store)
    found = states(planned, store)[at]
    assert found[1] == state
    assert re.fullmatch(re.escape(why).replace(r"\.\.", ".*"), found[2])
    assert tree(store) == before


def test_the_plan_agrees_with_the_run(store, count):
    stages = diamond(count=str(count))
    execute(stages, store)
    store.drop(stages[1].key)
    store.drop(stages[3].key)
    count.write_text("")
    planned = [each.stage.label for each in plan(stages, store) if each.state != "done"]
    execute(stages, store)
    assert planned == count.read_text().split() == ["b", "c", "d"]


def test_a_stage_at_work_in_another_process_is_begun(store):
    with store.lock(chain()[0].key):
        (found,) = states(chain()[:1], Store(store.root))
    assert found == ("a", "begun", "another process is computing it")


def test_the_plan_of_another_experiment_is_a_guess_until_its_own_stage_is_measured(store):
    execute([node("other", 1, pause=0.02)], store)
    mine = node("mine", 2)
    lacking = missing([mine], store)
    assert known_costs([mine], lacking, store, elsewhere=list).of(mine) is None
    costs = known_costs([mine], lacking, store, elsewhere=store.records)
    [known] = store.records()
    size = sum(each["size"] for each in known["files"])
    assert costs.of(mine).seconds == pytest.approx(known["seconds"])
    assert costs.of(mine).size == size
    costs.learn(mine.kind, mine.keyed, 500.0)
    assert (costs.of(mine).seconds, costs.of(mine).size) == (500, size)


HERE = os.uname().nodename


def status(store, *stages):
    return status_of(topological(stages), stages, store)


def running(store, *stages):
    """Return a context manager with the listener of a run of these stages."""
    return recorded(store.events(plan_digest(topological(stages))), silent)


def begin(store, stages, seconds):
    """Let the run of these stages have begun so many seconds earlier."""
    path = store.events(plan_digest(topological(stages)))
    for line in folders.edited(path.parent, path.name):
        early = datetime.fromisoformat(line["time"]) - timedelta(seconds=seconds)
        line["time"] = early.isoformat(timespec="seconds")


def test_a_by_product_takes_no_time_of_its_own(store):
    execute([node("other", 1, pause=0.02)], store)
    before = node("before", 3)
    [*_, after] = rest = topological(
        [node("mine", 2).adjusted(byproducts={"1": before}), node("after", 4, {"x": before})]
    )
    costs = known_costs(rest, missing(rest, store), store, elsewhere=store.records)
    seconds = costs.of(after).seconds
    found = expected(rest, costs, 1)
    assert (found.seconds, found.work) == pytest.approx((2 * seconds, 2 * seconds))
    assert found.written == 3 * costs.of(after).size


def test_all_is_done_at_the_end_although_a_transient_artifact_is_gone(store):
    stages = tiny.diamond()
    execute(stages, store)
    found = status(store, stages[1], stages[3])
    assert (found.done, found.left, found.seconds, found.is_running) == (4, 0, 0, False)


def test_a_failure_is_shown_with_the_stages_that_it_blocks_until_the_next_run(store):
    stages = [node("after", 1, {"x": tiny.broken()}), node("other", 2)]
    execute(stages, store)
    found = status(store, *stages)
    (failed,) = found.failed
    assert failed == {
        "stage": "tiny-fail broken",
        "error": "ValueError: bad luck",
        "host": HERE,
        "time": failed["time"],
    }
    assert (found.done, found.blocked, found.left) == (1, 1, 0)
    with running(store, *stages):
        assert (status(store, *stages).failed, status(store, *stages).left) == ((), 2)


def test_running_stages_are_shown_with_their_progress_and_count_for_the_time_left(
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
    about = {"stage": b.name, "host": HERE, "pid": os.getpid(), "since": since}
    assert found.under_way == (about | {"done": 10, "total": 40, "note": "loss 2.0"},)
    assert (found.is_running, found.done, found.left) == (True, 1, 1)
    assert found.seconds == pytest.approx(9000, rel=0.01)
    assert datetime.fromisoformat(since) < datetime.now(UTC)
    after = status(store, *stages)
    assert (after.is_running, after.under_way, after.left) == (False, (), 2)


def test_a_preflight_counts_what_is_left_to_train_by_stated_rates(tmp_path):
    (tmp_path / "it.yaml").write_text(small.EXPERIMENT)
    experiment = load_experiment(tmp_path / "it.yaml")
    order = topological(stages_of.build(experiment).stages)
    usual = preflight(Machine.of("H100x8"), order, experiment.model)
    assert usual.trainings == {"general": 1, "intermediate": 1, "finetune": 2}
    # two steps of four trainings: so small a model has the time of its calls, for four layers
    assert size(experiment.model) == (usual.weights, 4)
    assert usual.hours == pytest.approx(4 * 2 * 4 * 0.005 / 8 / 3600)
    slow = replace(Machine.of("H100x8"), flops=1e9)
    # four passages of 100 words, with full targets and spans, and four examples
    tokens = 2 * 4 * (100 * 4 / 3 * (2 + 1.2) + 2 * 50)
    flop = tokens * 0.4e9 * usual.weights / 139.4e6
    hours = preflight(slow, order, experiment.model).hours
    assert hours == pytest.approx(flop / (8 * 0.3 * 1e9) / 3600)
    assert usual.kept == 2 * 4 * usual.weights  # fine-tuned models are dropped
    row = "policies.1={name: random, corpus: {words: 10}}"
    short = topological(stages_of.build(load_experiment(tmp_path / "it.yaml", [row])).stages)
    shorter = 2 * 4 * 90 * 4 / 3 * 1.2  # that row's passages have 10 words
    hours = preflight(slow, short, experiment.model).hours
    assert hours == pytest.approx(flop * (1 - shorter / tokens) / (8 * 0.3 * 1e9) / 3600)
    early = load_experiment(tmp_path / "it.yaml", ["checkpoint_steps=[1]"])
    order = topological(stages_of.build(early).stages)
    found = preflight(Machine.of("h100"), order, early.model)
    assert found.trainings == {"general": 1, "intermediate": 1, "finetune": 3}
    assert found.kept == 3 * 4 * found.weights
    for row, trainings in (
        ("{name: entropy-aware, every: 1}", usual.trainings),  # reads the model before each step
        ("{name: meta-learned, train_on: [zsre]}", usual.trainings | {"fit": 2}),
    ):
        other = load_experiment(tmp_path / "it.yaml", [f"policies.1={row}", "fit.steps=2"])
        found = preflight(usual.machine, topological(stages_of.build(other).stages), other.model)
        assert found.trainings == trainings
        hours = usual.hours / 4 * sum(trainings.values())
        assert found.hours == pytest.approx(hours)
    base = ModelBlock("base", kind="encoder")
    assert size(base) == (124_645_632, 12)  # of roberta-base
    assert size(ModelBlock("modernbert", kind="encoder", layers=1, width=8, vocabulary=9))[1] == 1
    text_to_text.model("bert2bert").config.save_pretrained(tmp_path / "both")
    assert size(ModelBlock(str(tmp_path / "both")))[1] == 2
    for text in ("h100x0", "b100", "x8"):
        with pytest.raises(ConfigError, match="must be one of a100, h100, h200, or as h100x8"):
            Machine.of(text)


def test_a_status_estimates_the_time_from_other_experiments_as_a_plan_does(store):
    execute([node("other", 1, pause=0.02)], store)
    found = status(store, node("mine", 2))
    assert (found.left, found.unknown) == (1, ()) and found.seconds


def test_a_stage_whose_artifact_was_removed_is_left_and_did_not_fail(store):
    execute([node("a", 1)], store)
    store.drop(node("a", 1).key)
    found = status(store, node("a", 1))
    assert (found.failed, found.left) == ((), 1)


def test_the_time_left_of_a_resumed_stage_counts_only_the_steps_since(store, monkeypatch):
    monkeypatch.setattr(events, "_INTERVAL", 0.0)
    execute([node("a", 1)], store)
    b = node("b", 2)
    with running(store, b) as listen:
        listen(Event("started", b))
        listen(Event("advanced", b, 800, 1000))
        begin(store, [b], 1000)
        listen(Event("advanced", b, 850, 1000))
        assert status(store, b).seconds == pytest.approx(3000, rel=0.01)


def test_a_second_run_is_shown_after_the_first_has_ended(store):
    with ExitStack() as first:
        first.enter_context(running(store, node("a", 1)))
        with running(store, node("a", 1)) as listen:
            first.close()
            listen(Event("started", node("a", 1)))
            (shown,) = status(store, node("a", 1)).under_way
            assert shown["stage"] == "tiny-walk a"


def test_a_training_with_a_checkpoint_takes_the_time_of_its_later_steps(store, tmp_path):
    (tmp_path / "it.yaml").write_text(small.EXPERIMENT)
    order = topological(stages_of.build(load_experiment(tmp_path / "it.yaml")).stages)
    general = next(each for each in order if each.kind == "general")
    save(store, general.key, 1)
    costs = known_costs(order, {each.key for each in order}, store, elsewhere=list)
    costs.learn("general", general.keyed, 100.0)
    assert (general.keyed["spec"]["steps"], costs.of(general).seconds) == (2, 50)
