"""The columns of an experiment: a task's name or block, checked, becomes a TaskBlock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from maskpolicy import keys, schema
from maskpolicy.config import yaml_file
from maskpolicy.config.experiment import (
    HUB,
    WORLD,
    TaskBlock,
    resolved_task,
)
from maskpolicy.config.row_names import name_all, named, tell_equal
from maskpolicy.errors import ConfigError, unknown
from maskpolicy.plugins import discovery, registry
from maskpolicy.plugins.discovery import find_plugin
from maskpolicy.plugins.scoring import find_metric
from maskpolicy.schema import at


def task_blocks(
    items: Sequence[Any], where: str, folders: Sequence[Path], data: str
) -> tuple[TaskBlock, ...]:
    """Return the columns of an experiment with distinct labels; see `task_block`."""
    given = [named(item, f"{where}[{i}]") for i, item in enumerate(items)]
    blocks = [task_block(item, f"{where}[{i}]", folders, data) for i, item in enumerate(given)]
    differ = [resolved_task(block) for block in blocks]
    labels = name_all([b.name for b in blocks], [g.get("label") for g in given], differ, where)
    settings = [{key: each[key] for key in each if key != "label"} for each in differ]
    tell_equal("columns", labels, settings, where)
    return tuple(replace(block, label=label) for block, label in zip(blocks, labels, strict=True))


def task_block(
    given: Mapping[str, Any], where: str, folders: Sequence[Path], data: str = WORLD
) -> TaskBlock:
    """Return one column from its keys; `data` is the default of its key `data`.

    Paths are looked up in `folders`, then in the working directory. Raises ConfigError at `where`.
    """
    name = given["name"]
    entry = find_plugin("task", name, where=where)
    framework = {f.name for f in fields(TaskBlock)} - {"fields"}
    own = {key: value for key, value in given.items() if key not in framework}
    values = schema.block(entry.plugin, own, where, others=framework)
    discovery.build(entry, values, where)
    ours = {key: value for key, value in given.items() if key in framework}
    block = schema.block(TaskBlock, ours, where, {"label": name, "data": data})
    block["data"] = data_source(block["data"], at(where, "data"), folders)
    _check_metrics(block["metrics"], entry.facts.get("kind", "text"), at(where, "metrics"))
    block["fields"] = keys.plain(values, where)
    return TaskBlock(**block)


def _check_metrics(names: Sequence[str], kind: str, where: str) -> None:
    """Raise ConfigError for an unknown metric, one that is named twice, or one for labels alone."""
    for index, name in enumerate(names):
        try:
            metric = find_metric(name)
        except ConfigError as error:
            raise ConfigError(f"{where}[{index}]: {error}") from None
        if name in names[:index]:
            raise ConfigError(f"{where}[{index}]: {name} is named twice: remove one")
        if metric.parts and kind != "label" and name not in registry.names("metric"):
            raise ConfigError(f"{where}[{index}]: {name} scores labels, and this task has {kind}s")


def data_source(
    given: str, where: str, folders: Sequence[Path], names: Sequence[str] = (WORLD, HUB)
) -> str:
    """Return the source of tasks: one of `names`, or the absolute path of a folder."""
    if given in names:
        return given
    found = yaml_file.locate(given, folders) if given else None
    if found is None or not found.is_dir():
        world = "" if WORLD in names else "; `maskpolicy world --out DIR` writes DIR/tasks"
        raise ConfigError(f"{where}: {unknown('source', given, names)} or a folder{world}")
    return str(found)
