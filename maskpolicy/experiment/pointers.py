"""For error messages: where a key belongs that is unknown in the place where it was written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from maskpolicy.core import schema
from maskpolicy.core.errors import MaskpolicyError
from maskpolicy.experiment.budgets import TRAININGS, Training
from maskpolicy.experiment.definition import CorpusBlock, Experiment, TaskBlock
from maskpolicy.plugins import discovery, registry
from maskpolicy.plugins.registry import CORPUS, ROW_TRAININGS

_OPTIONS = {name: name for name in ("jobs", "threads", "workers", "out", "store", "cache", "only")}
_HARDWARE = ("device", "cuda", "gpu", "gpus", "num_gpus", "n_gpu", "no_cuda")
_OPTIONS |= {"plugin": "plugin", "executor": "executor", "output_dir": "out"}
_NO_KEYS = {"name", "general_policy", "where"}  # fields of `Experiment` that no file states


def of_top(key: str, given: Mapping[str, Any]) -> str | None:
    """Return what to do about a key at the top of an experiment, or None.

    `given` has the keys of the experiment.
    """
    from maskpolicy.experiment.world_settings import Settings

    name = schema.SYNONYMS.get(key, key)
    if name != "seed" and name in schema.fields_of(Training):
        where = f"intermediate.{name} or finetune.{name}"
        return f"is a key of a training: set it there, e.g. {where}"
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
    if key in ("task", *schema.fields_of(TaskBlock)):
        field = "on_error=skip" if key in ("task", "name", "on_error") else f"{key}=.."
        return f"the fields of a task are in its block in `tasks`, e.g. tasks.0.{field}"
    if key in schema.fields_of(CorpusBlock):
        return f"is a key of a corpus: write corpus.{key}"
    if key != "seed" and key in schema.fields_of(Settings):
        return f"is a setting of the embedded world: write world.{key}"
    if key == "metric":
        return "belongs to a task: the @task of a task of your own names it"
    policy = _policy_with(name, given)
    if policy:
        return f"is a field of {policy}: set it in its block, {{name: {policy}, {name}: ..}}"
    return None


def of_sweep(key: str, given: Mapping[str, Any] | None = None, block: str = "grid") -> str | None:
    """Return what to do about a key of `grid`, `zip` or `tune` that none of them can vary, or None.

    `given` has the keys of the experiment, for a sweep at its top, and `block` is `grid` or `tune`.
    """
    name = schema.SYNONYMS.get(key, key)
    if key == "name":
        return "a sweep varies the settings of one policy: write a block for each policy"
    if key == CORPUS:
        block = "{name: random, corpus: {files: [..]}}"
        return f"is a block: name its keys, e.g. corpus.words, or write a row for each, {block}"
    if key in ROW_TRAININGS:
        return f"is a block: name its keys, e.g. {key}.steps: [100, 200]"
    if shared := _of_file(key, "row"):
        return shared
    if name in schema.fields_of(Training):
        return f"is a key of a training: write intermediate.{name} or finetune.{name}"
    policy = None if given is None else _policy_with(name, given)
    if policy:
        row = f"{{name: {policy}, {block}: {{{name}: [..]}}}}"
        return f"is a field of {policy}: write it into the block of that row, {row}"
    return None


def of_row(key: str) -> str | None:
    """Return what to do about a key in a row's block that its policy does not have, or None."""
    name = schema.SYNONYMS.get(key, key)
    if shared := _of_file(key, "row"):
        return shared
    if name in schema.fields_of(Training):
        return f"is a key of a training: write intermediate: {{{name}: ..}}"
    if key in schema.fields_of(CorpusBlock):
        return f"is a key of a corpus: write corpus: {{{key}: ..}}"
    return None


def of_task(key: str) -> str | None:
    """Return what to do about a key in a task's block that neither it nor its task has, or None."""
    name = schema.SYNONYMS.get(key, key)
    if shared := _of_file(key, "task"):
        return shared
    if name in schema.fields_of(Training):
        return f"is a key of a training, which all tasks share: write finetune.{name}"
    return None


def _of_file(key: str, what: str) -> str | None:
    """Return what to do about a key that all rows, or all tasks (`what`), share, or None."""
    if key in ("seed", "seeds"):
        return f"every {what} has all seeds: list them in `seeds` at the top of the file"
    if key in {each.name for each in fields(Experiment)} - _NO_KEYS:
        return f"is one setting for all {what}s: set it at the top of the file"
    return None


def _policy_with(field: str, given: Mapping[str, Any]) -> str | None:
    """Return the name of a policy that has a field: one of the experiment, or any of ours."""
    blocks = given.get("policies")
    for name in (*_names(blocks if isinstance(blocks, list) else ()), *_known()):
        try:
            plugin = discovery.find_plugin("policy", name).plugin
        except MaskpolicyError:
            continue
        if field in schema.fields_of(plugin):
            return name
    return None


def _names(blocks: Iterable[Any]) -> list[str]:
    named = [block.get("name") if isinstance(block, Mapping) else block for block in blocks]
    return [name for name in named if isinstance(name, str)]


def _known() -> list[str]:
    discovery.load_builtin("policy")
    return sorted(registry.names("policy"))
