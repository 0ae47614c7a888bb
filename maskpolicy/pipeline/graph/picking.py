"""Stages that take one of several inputs; the artifact of another input says which one.

A graph is thus the same before and after a choice, and what is not chosen is not computed. The
input `choice` of such a stage has a file choice.json, {"input": NAME}, with the name of one of its
options.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping

from maskpolicy.pipeline.graph.nodes import Stage, is_picking
from maskpolicy.pipeline.store.artifacts import Store

CHOICE, OPTION = "choice", "option-"  # names of inputs; those of options begin with the second
FILE = "choice.json"


def options(stage: Stage) -> dict[str, Stage]:
    """Return the inputs of which a stage needs only one, by name; {} for most stages."""
    if not is_picking(stage.kind):
        return {}
    return {name: each for name, each in stage.inputs.items() if name.startswith(OPTION)}


def options_of(order: Iterable[Stage]) -> dict[str, list[Stage]]:
    """Return by the key of each choice all options of the stages that take one by it."""
    found: dict[str, dict[str, Stage]] = {}
    for stage in order:
        among = options(stage)
        if among:
            known = found.setdefault(stage.inputs[CHOICE].key, {})
            known |= {option.key: option for option in among.values()}
    return {choice: list(among.values()) for choice, among in found.items()}


def needed_names(kind: str, inputs: Mapping[str, str], store: Store) -> list[str]:
    """Return the names of the inputs that a stage needs, as far as this is known.

    `inputs` maps names to keys. These are all, but of options only the one that is picked.
    """
    if not is_picking(kind):
        return list(inputs)
    path = store.file(inputs[CHOICE], FILE)
    taken = None if path is None else json.loads(path.read_bytes())["input"]
    return [name for name in inputs if name == taken or not name.startswith(OPTION)]


def needed(stage: Stage, store: Store) -> list[Stage]:
    """Return the inputs that a stage needs, as far as this is known: all but options not picked."""
    keys = {name: each.key for name, each in stage.inputs.items()}
    return [stage.inputs[name] for name in needed_names(stage.kind, keys, store)]


def undecided(
    stages: Iterable[Stage], store: Store, is_known: Callable[[Stage], bool]
) -> dict[str, Stage]:
    """Return by key what `stages` need only if they pick it: options, and their missing inputs.

    Stages for which `is_known` is true are left out, with their inputs.
    """
    found: dict[str, Stage] = {}
    waiting = [option for stage in stages for option in options(stage).values()]
    while waiting:
        stage = waiting.pop()
        if stage.key not in found and not is_known(stage):
            found[stage.key] = stage
            if store.peek(stage.key) is None:
                waiting.extend(stage.inputs.values())
    return found
