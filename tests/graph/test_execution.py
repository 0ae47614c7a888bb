"""A process may be limited to some kinds of stages, and need not wait for others."""

from __future__ import annotations

import sys
import threading

import pytest
from tiny import Nothing, diamond, node

from maskpolicy.graph import execution
from maskpolicy.graph.execution import execute
from maskpolicy.graph.nodes import Stage, stage
from maskpolicy.store.artifacts import Store

SLOW_MODULE = """
from maskpolicy.store.artifacts import Store

with Store({root!r}).try_lock({key!r}) as is_free:
    assert is_free
"""


@stage("importing", imports=("imported_slowly",))
def importing(params: Nothing, inputs, out, run):
    assert "imported_slowly" in sys.modules


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def test_a_process_that_may_compute_nothing_and_does_not_wait_leaves_all(store):
    assert execute(diamond(), store, kinds=(), wait=False) == {}


def test_a_process_that_may_compute_nothing_collects_what_others_compute(store):
    stages = diamond(pause=0.01)
    other = threading.Thread(target=execute, args=(stages, Store(store.root)))
    other.start()
    outcomes = execute(stages, store, kinds=())
    other.join()
    assert [outcomes[each.key].error for each in stages] == [None] * 4
    assert outcomes[stages[3].key].artifact is not None
    assert not outcomes[stages[3].key].hit


def test_what_another_process_holds_is_dropped_once_it_lets_go(store, monkeypatch):
    drop, asked = Store.drop, []

    def busy_at_first(self, key):
        asked.append(key)
        return len(asked) > 2 and drop(self, key)

    monkeypatch.setattr(Store, "drop", busy_at_first)
    stages = diamond()
    execute(stages, store)
    assert asked == [stages[2].key] * 3
    assert not store.has(stages[2].key)


def test_what_another_process_goes_on_to_hold_stays_and_delays_little(store, monkeypatch):
    monkeypatch.setattr(Store, "drop", lambda self, key: False)
    monkeypatch.setattr(execution, "_LATE", 0.1)
    stages = diamond()
    execute(stages, store)
    assert store.has(stages[2].key)


def test_an_input_that_another_process_holds_delays_no_other_stage(store):
    held = [node(name, seed, transient=True) for seed, name in enumerate("ab")]
    execute(held, store)
    user = node("user", 2, {"a": held[0], "b": held[1]})
    other = node("other", 3)
    with Store(store.root).lock(held[1].key):
        outcomes = execute([user, other], store, wait=False)
        assert outcomes[other.key].error is None
        assert user.key not in outcomes
        with Store(store.root).try_lock(held[0].key) as free:
            assert free
    assert execute([user, other], store)[user.key].error is None


def test_what_takes_long_to_import_is_imported_before_the_stage_is_claimed(
    store, tmp_path, monkeypatch
):
    late = Stage("importing", "late", Nothing())
    source = SLOW_MODULE.format(root=str(store.root), key=late.key)
    (tmp_path / "imported_slowly.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "imported_slowly", raising=False)
    assert execute([late], store)[late.key].error is None
    assert "imported_slowly" in sys.modules
