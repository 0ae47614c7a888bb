"""For error messages: where a misplaced key belongs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from typing import Any, Literal

from maskpolicy.core import schema
from maskpolicy.core.errors import MaskpolicyError
from maskpolicy.experiment.budgets import TRAININGS, Training
from maskpolicy.experiment.definition import CorpusBlock, Experiment, TaskBlock
from maskpolicy.plugins import discovery, registry

_OPTIONS = {name: name for name in ("jobs", "threads", "workers", "out", "store", "cache", "only")}
_HARDWARE = ("device", "cuda", "gpu", "gpus", "num_gpus", "n_gpu", "no_cuda")
_OPTIONS |= {"plugin": "plugin", "executor": "executor", "output_dir": "out"}
# fields of `Experiment` that no file states
_NO_KEYS = {"name", "general_policy", "general_corpus", "validation_corpus", "where"}
Place = Literal["top", "row", "task"]
_OF_TRAINING = {
    "top": "set it there, e.g. intermediate.{0} or finetune.{0}",
    "row": "write intermediate: {{{0}: ..}}",
    "task": "write finetune: {{{0}: ..}}",
}
_OF_CORPUS = {"top": "write corpus.{0}", "row": "write corpus: {{{0}: ..}}"}


def pointer(key: str, place: Place, given: Mapping[str, Any] | None = None) -> str | None:
    """Return what to do about a key that is unknown at its place, or None.

    `given` holds the keys of the experiment if the place is the top of the file.
    """
    name = schema.SYNONYMS.get(key, key)
    if given is not None:
        if said := _of_top(key, given):
            return said
    elif key in ("seed", "seeds"):
        return "is shared by all rows and tasks: list the values in `seeds` at the top of the file"
    elif key in {each.name for each in fields(Experiment)} - _NO_KEYS:
        return "is one setting for all rows and tasks: set it at the top of the file"
    if name in {*schema.fields_of(Training), "epochs"} and (place, name) != ("top", "seed"):
        return f"is a key of a training: {_OF_TRAINING[place].format(name)}"
    if place in _OF_CORPUS and key in schema.fields_of(CorpusBlock):
        return f"is a key of a corpus: {_OF_CORPUS[place].format(key)}"
    if given is None or (policy := _policy_with(name, given)) is None:
        return None
    return f"is a field of {policy}: set it in its block, {{name: {policy}, {name}: ..}}"


def _of_top(key: str, given: Mapping[str, Any]) -> str | None:
    """Return what to do about a key that people write at the top of a file, or None."""
    from maskpolicy.experiment.world_settings import Settings

    training, _, rest = key.partition("_")
    if training in TRAININGS and rest in schema.fields_of(Training):
        return f"write {training}.{rest}"
    if key in _HARDWARE:
        return (
            "is left to the machine, which uses its GPU if it has one: leave it out; several GPUs "
            "for a training are resources.intermediate.gpus"
        )
    if key in _OPTIONS:
        return f"is an option of the command: write --{_OPTIONS[key]} {given[key]}"
    if key == "policy":
        return (
            "a list of policies is `policies`, and the fields of a policy are in its block there, "
            "e.g. policies.1.ratio=0.3"
        )
    if key == "name":
        return "is that of the file, and of its folder below runs/: rename the file"
    if key in ("task", *schema.fields_of(TaskBlock)):
        field = "on_error=skip" if key in ("task", "on_error") else f"{key}=.."
        return f"the fields of a task are in its block in `tasks`, e.g. tasks.0.{field}"
    if key != "seed" and key in schema.fields_of(Settings):
        return f"is a setting of the embedded world: write world.{key}"
    if key == "metric":
        return "belongs to a task: the @task of a task of your own names it"
    return None


def _policy_with(field: str, given: Mapping[str, Any]) -> str | None:
    """Return the name of a policy that has a field, preferably of a row of the experiment."""
    blocks = given.get("policies")
    blocks = blocks if isinstance(blocks, list) else []
    names = [block.get("name") if isinstance(block, Mapping) else block for block in blocks]
    discovery.load_builtin("policy")
    for name in (*names, *sorted(registry.names("policy"))):
        with suppress(MaskpolicyError):
            if isinstance(name, str) and field in schema.fields_of(
                discovery.find_plugin("policy", name).plugin
            ):
                return name
    return None
