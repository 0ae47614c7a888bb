"""A graph computes what is missing and wanted, once, and contains its failures."""

from __future__ import annotations

import json

import pytest
import tiny
from tiny import diamond, node

from maskpolicy.errors import ConfigError, StoreError
from maskpolicy.graph.execution import execute
from maskpolicy.graph.nodes import Stage, sinks, stage, topological
from maskpolicy.stages.params import AnnotateParams
from maskpolicy.store.artifacts import Store


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@pytest.fixture
def counted(tmp_path):
    """Return a diamond that counts, and what it has counted since it was last asked."""
    file = tmp_path / "count"
    file.write_text("")

    def since() -> str:
        text = file.read_text()
        file.write_text("")
        return "".join(text.split())

    return diamond(count=str(file)), since


class Heard:
    """A progress that writes down what it hears."""

    def __init__(self):
        self.lines = []

    def start(self, stage):
        self.lines.append(f"start {stage.label}")

    def wait(self, stage):
        self.lines.append(f"wait {stage.label}")

    def advance(self, done, total, note):
        self.lines.append(f"{done}/{total}")

    def finish(self, stage, outcome):
        state = "failed" if outcome.error else "hit" if outcome.hit else "done"
        self.lines.append(f"{state} {stage.label}")


def broken(label="broken", inputs=None, **local):
    """Return a stage that always fails."""
    told = tiny.TinyLocal(**local, label=label)
    return Stage("tiny-fail", label, tiny.Failure("bad luck\nand more"), inputs or {}, told)


# keys


def test_a_golden_key():
    """Moves only when every artifact of every user shall be computed again."""
    a = node("a", 1, steps=6)
    assert a.key == "57fd037728b0dff608e23e9c95ae3c5c281fd5cd9633fca74ad1c7000b24aa62"
    b = node("b", 2, {"a": a})
    assert b.key == "79c30cd021e5576f869ed65abcbf9d6d59468d1ff4cc21b2072d0af2db0875a1"


def test_labels_and_local_values_are_not_in_the_key():
    assert node("a", pause=3).key == node("b", transient=True).key


def test_parameters_inputs_and_their_names_are_in_the_key():
    a, b = node("a", 1), node("b", 2)
    stages = [a, b, node("x", 1, {"a": a}), node("x", 1, {"a": b}), node("x", 1, {"b": a})]
    assert len({each.key for each in stages}) == len(stages)


def test_the_key_stays_when_the_caller_changes_a_dict():
    fields = {"ratio": 0.15}
    params = AnnotateParams(policy="random", fields=fields, code={}, depends={})
    made = Stage("annotate", "a", params)
    fields["ratio"] = 0.3
    assert made.keyed["fields"] == {"ratio": 0.15}


def test_parameters_of_another_kind_are_refused():
    with pytest.raises(ConfigError, match=r"stage tiny-walk: its params must be .*Walk"):
        Stage("tiny-walk", "a", tiny.Failure("no walk"))


def test_paths_are_refused_in_parameters(tmp_path):
    with pytest.raises(ConfigError, match=r"tiny-walk\.params\.seed"):
        node("a", tmp_path)


def test_an_unknown_kind_lists_the_choices():
    with pytest.raises(ConfigError, match="did you mean 'tiny-walk'"):
        Stage("tiny-wakl", "a", tiny.Walk(1, 6, 2))


def test_a_kind_is_registered_once():
    with pytest.raises(ConfigError, match=r"defined twice: .*tiny\.py.*test_graph\.py"):
        stage("tiny-walk")(test_a_golden_key)


def test_a_stage_function_is_importable_by_name():
    with pytest.raises(ConfigError, match="top level"):
        stage("local")(lambda params, inputs, out, run: None)


def test_topological_order_has_each_key_once_and_inputs_first():
    stages = diamond()
    assert [each.label for each in topological([stages[3], *diamond()])] == ["a", "b", "c", "d"]
    assert sinks(stages) == [stages[3]]
    assert [each.depth for each in stages] == [1, 2, 2, 3]


# what is computed


def test_a_graph_is_computed_in_order_and_then_found(store, counted):
    stages, since = counted
    outcomes = execute(stages, store)
    assert since() == "abcd"
    assert [outcomes[each.key].hit for each in stages] == [False] * 4
    outcomes = execute(stages, store)
    assert since() == ""
    assert outcomes[stages[3].key].hit
    assert "x" in json.loads((outcomes[stages[3].key].artifact / "result.json").read_text())


def test_a_result_depends_on_the_inputs(tmp_path, store):
    first, second = (node("d", 4, {"a": node("a", seed)}) for seed in (1, 2))
    execute([first, second], store)
    assert len({(store.path(s.key) / "result.json").read_text() for s in (first, second)}) == 2


def test_the_transient_artifact_is_dropped_and_the_others_stay(store):
    a, b, c, d = diamond()
    execute([d], store)
    assert [store.get(each.key) is not None for each in (a, b, c, d)] == [True, True, False, True]


def test_a_transient_artifact_is_computed_again_only_for_a_missing_user(store, counted):
    stages, since = counted
    execute(stages, store)
    execute(stages, store)
    store.drop(stages[3].key)
    since()
    execute(stages, store)
    assert since() == "cd"


def test_a_wanted_transient_artifact_is_kept(store, counted):
    stages, since = counted
    execute(stages, store)
    since()
    outcomes = execute(stages, store, targets=[stages[2], stages[3]])
    assert since() == "c"
    assert outcomes[stages[2].key].artifact is not None
    assert store.get(stages[2].key) is not None


def test_a_transient_artifact_that_a_killed_run_left_is_dropped(store):
    stages = diamond()
    execute(stages, store, targets=stages[2:])
    execute(stages, store)
    assert store.get(stages[2].key) is None


def test_a_transient_artifact_waits_for_all_its_users(store):
    a = node("a", 1, transient=True)
    ready, failing = node("b", 2, {"a": a}), broken(inputs={"a": a})
    execute([ready, failing], store)
    assert store.get(a.key) is not None
    execute([ready], store)
    assert store.get(a.key) is None


def test_what_only_finished_stages_need_is_neither_computed_nor_verified(store, counted):
    stages, since = counted
    execute(stages, store)
    since()
    (store.path(stages[0].key) / "result.json").write_text("damaged")
    store.drop(stages[1].key)
    outcomes = execute(stages, Store(store.root))
    assert since() == ""
    assert (store.path(stages[0].key) / "result.json").read_text() == "damaged"
    assert outcomes[stages[1].key].hit
    assert outcomes[stages[1].key].artifact is None


def test_a_damaged_input_is_computed_again(store, counted):
    stages, since = counted
    execute(stages, store)
    before = tiny.content(store, [stages[3]])
    since()
    (store.path(stages[0].key) / "result.json").write_text("damaged")
    for each in (stages[1], stages[3]):
        store.drop(each.key)
    execute(stages, Store(store.root))
    assert since() == "abcd"
    assert tiny.content(store, [stages[3]]) == before


def test_an_input_that_vanishes_during_the_run_is_computed_again(store, counted):
    stages, since = counted

    class Meddler(Heard):
        def finish(self, stage, outcome):
            if stage.label == "c" and "done c" not in self.lines:
                store.drop(stages[1].key)
            super().finish(stage, outcome)

    outcomes = execute(stages, store, Meddler())
    assert since() == "abcbd"
    assert outcomes[stages[3].key].error is None


def test_stages_with_one_key_are_one_stage(store, tmp_path):
    count = str(tmp_path / "count")
    outcomes = execute([node("x", count=count), node("y", count=count)], store)
    assert len(outcomes) == 1
    assert (tmp_path / "count").read_text() == "x\n"


def test_a_stage_resumes_from_its_checkpoint(store):
    class Stop(BaseException):
        pass

    class Stopper(Heard):
        def advance(self, done, total, note):
            if done == 5:
                raise Stop

    heard = Heard()
    with pytest.raises(Stop):
        execute([node("a", 1)], store, Stopper())
    execute([node("a", 1)], store, heard)
    assert heard.lines == ["start a", "5/6", "6/6", "done a"]


def test_a_damaged_newest_checkpoint_costs_some_steps_and_changes_nothing(store, tmp_path):
    reference = Store(tmp_path / "reference")
    stages = [node("a", 1)]
    execute(stages, reference)
    with pytest.raises(KeyboardInterrupt):
        execute(stages, store, Interrupter())
    newest = store.root / "checkpoints" / stages[0].key / f"{4:012d}" / "state.json"
    newest.write_text(newest.read_text().replace("1", "2", 1))
    heard = Heard()
    execute(stages, store, heard)
    assert heard.lines[1] == "3/6"
    assert tiny.content(store, stages) == tiny.content(reference, stages)


class Interrupter(Heard):
    """A user who presses control-C at the fifth step."""

    def advance(self, done, total, note):
        if done == 5:
            raise KeyboardInterrupt


def test_seconds_are_kept_and_given_for_hits_too(store):
    (first,) = execute([node("a", pause=0.01)], store).values()
    (again,) = execute([node("a")], store).values()
    assert first.seconds == again.seconds >= 0.06


def test_progress_hears_each_stage_once(store):
    heard = Heard()
    execute([node("a", steps=2)], store, heard)
    execute([node("a", steps=2)], store, heard)
    assert heard.lines == ["start a", "1/2", "2/2", "done a", "hit a"]


# failures


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


def test_what_only_stages_need_that_cannot_run_is_not_computed(store, tmp_path):
    told = {"count": str(tmp_path / "count")}
    bad = broken(**told)
    costly, shared = (node(label, seed, **told) for seed, label in enumerate(("costly", "shared")))
    lost = node("lost", 4, {"x": bad, "costly": costly, "shared": shared}, **told)
    other = node("other", 5, {"shared": shared}, **told)
    outcomes = execute([lost, other], store)
    assert sorted((tmp_path / "count").read_text().split()) == ["broken", "other", "shared"]
    assert "broken failed" in outcomes[lost.key].error
    assert (outcomes[costly.key].artifact, outcomes[costly.key].error) == (None, None)
    assert outcomes[other.key].error is None


def test_a_failed_stage_is_tried_again_by_the_same_command(store, tmp_path):
    stages = [broken(count=str(tmp_path / "count"))]
    execute(stages, store)
    execute(stages, store)
    assert (tmp_path / "count").read_text() == "broken\nbroken\n"


def test_control_c_passes_through_and_keeps_what_is_done(store):
    stages = diamond()
    execute(stages[:1], store)
    with pytest.raises(KeyboardInterrupt):
        execute(stages, store, Interrupter())
    assert store.get(stages[0].key) is not None
    assert store.checkpoints(stages[1].key).steps() == [2, 4]


def test_a_store_that_cannot_be_used_ends_the_run(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file"):
        execute(diamond(), Store(tmp_path / "file"))
