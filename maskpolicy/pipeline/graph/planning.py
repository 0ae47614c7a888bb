"""Plan a run without computing anything: the state of each stage, and the reason for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from maskpolicy.core.errors import listed
from maskpolicy.core.keys import differences
from maskpolicy.core.types import Json
from maskpolicy.pipeline.graph import nodes
from maskpolicy.pipeline.graph.nodes import Stage, sinks, topological
from maskpolicy.pipeline.store.artifacts import Store

State: TypeAlias = Literal["done", "to do", "begun", "outdated"]
_SHOWN = 4  # reasons in one line


@dataclass(frozen=True)
class Planned:
    """The state of a stage and its reason.

    A stage is "done" if it needs no computation, "to do" if it was never computed, "begun" if it
    has a process or a checkpoint, and "outdated" if it was computed with other inputs or
    parameters.
    """

    stage: Stage
    state: State
    why: str


def plan(
    stages: Iterable[Stage],
    store: Store,
    *,
    targets: Iterable[Stage] | None = None,
    records: Iterable[Json] | None = None,
) -> list[Planned]:
    """Return the state of every stage in topological order; reads manifests and writes nothing.

    `targets` are the stages whose artifacts are wanted (default: the sinks of the graph), and
    `records` the manifests of the store, if they are known.
    """
    order = topological(stages)
    wanted = sinks(order) if targets is None else list(targets)
    needed = missing(wanted, store)
    history: dict[Json, list[str]] = defaultdict(list)
    every = () if not needed else store.records() if records is None else records
    for known in sorted(every, key=lambda each: each["committed"], reverse=True):
        history[_logical(known["record"].get("logical") or {})].append(known["key"])
    choices = undecided(order, needed, store)
    planned: dict[str, Planned] = {}
    for stage in order:
        if (choice := choices.get(stage.key)) is not None:
            why = f"is computed only if {choice.name} takes it"
            planned[stage.key] = Planned(stage, "to do", why)
        else:
            planned[stage.key] = _planned(stage, store, needed, history, planned)
    for stage in order:
        for byproduct in stage.byproducts.values() if stage.key in needed else ():
            known = planned.get(byproduct.key)
            if known is not None and known.state in ("to do", "outdated"):
                planned[byproduct.key] = replace(known, why=f"is a by-product of {stage.name}")
    return list(planned.values())


def undecided(order: Iterable[Stage], needed: Collection[str], store: Store) -> dict[str, Stage]:
    """Return missing stages that only a choice in `needed` may require: key -> choice."""
    found: dict[str, Stage] = {}
    for stage in order:
        if stage.key in needed and nodes.options(stage):
            choice = stage.inputs[nodes.CHOICE]
            if choice.key in needed:
                only = nodes.undecided([stage], store, lambda one: one.key in needed)
                found |= {key: choice for key in only if store.peek(key) is None}
    return found


def missing(
    targets: Iterable[Stage], store: Store, committed: Collection[str] | None = None
) -> set[str]:
    """Return the keys to compute: missing targets, and their missing inputs at any depth.

    Stages that depend on a future choice are left out. `committed` are the keys that are not
    missing (default: those whose files match their manifests).
    """
    keys: set[str] = set()
    waiting = list(targets)
    if committed is None:
        store.prefetch(stage.key for stage in topological(waiting))
    while waiting:
        stage = waiting.pop()
        is_there = store.peek(stage.key) if committed is None else stage.key in committed
        if stage.key not in keys and not is_there:
            keys.add(stage.key)
            waiting.extend(nodes.needed(stage, store))
    return keys


def _logical(known: Mapping[str, Json]) -> Json:
    return tuple(known.get(name) for name in ("experiment", "kind", "label"))


def _planned(
    stage: Stage,
    store: Store,
    needed: set[str],
    history: Mapping[Json, list[str]],
    before: Mapping[str, Planned],
) -> Planned:
    if stage.key not in needed:
        is_there = store.peek(stage.key) is not None
        return Planned(stage, "done", "" if is_there else "not needed")
    if store.is_busy(stage.key):
        return Planned(stage, "begun", "another process is computing it")
    if steps := store.checkpoints(stage.key).steps():
        return Planned(stage, "begun", f"resumes from the checkpoint of step {steps[-1]}")
    keys = history.get(_logical(stage.logical), [])
    known = store.recall(keys[0]) if keys and stage.key not in keys else None
    if known is not None:
        return Planned(stage, "outdated", _changes(known["record"], stage, before))
    return Planned(stage, "to do", _absence(stage, store, stage.key in keys, before))


def _changes(old: Json, stage: Stage, before: Mapping[str, Planned]) -> str:
    lines = differences(old["version"], stage.version, f"version of stage {stage.kind}")
    lines += differences(old["params"], stage.keyed, stage.kind)
    for name in sorted({*old["inputs"], *stage.inputs}):
        needed = stage.inputs.get(name)
        if needed is None:
            lines.append(f"input {name} is no longer used")
        elif name not in old["inputs"]:
            lines.append(f"input {name} is new")
        elif old["inputs"][name] != needed.key:
            state = before[needed.key].state
            lines.append(f"input {name} changed" + ("" if state == "done" else f" ({state})"))
    return listed(lines, "; ", _SHOWN)


def _absence(stage: Stage, store: Store, dropped: bool, before: Mapping[str, Planned]) -> str:
    if store.has(stage.key):
        return "its files do not match their manifest: the next run puts them in quarantine"
    reasons = ["was dropped after use, and is needed again"] if dropped else []
    reasons += [
        f"input {name} is {before[needed.key].state}"
        for name, needed in sorted(stage.inputs.items())
        if before[needed.key].state != "done"
    ]
    return listed(reasons, "; ", _SHOWN) or "was never computed"
