"""The columns of an experiment: a task's name or block, checked, becomes a TaskBlock."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from maskpolicy.core import keys, schema
from maskpolicy.core.errors import ConfigError, PluginError, unknown
from maskpolicy.core.metrics import METRICS, Metric
from maskpolicy.core.schema import at
from maskpolicy.experiment import yaml_file
from maskpolicy.experiment.budgets import Own
from maskpolicy.experiment.definition import HUB, WORLD, TaskBlock, resolved_task
from maskpolicy.experiment.pointers import pointer
from maskpolicy.experiment.policy_blocks import apart, check_distinct, named, warn_of_equal_settings
from maskpolicy.experiment.task_kinds import TASK_KINDS, kind_of
from maskpolicy.plugins import discovery, hooks, registry
from maskpolicy.plugins.discovery import find_metric, find_plugin
from maskpolicy.plugins.evaluate_metrics import EACH, PREFIX
from maskpolicy.plugins.registry import Registered

SHORT_ANSWERS = (
    "{metric} looks for a short answer, which the rows of this world do not name, so that it "
    "compares with whole sentences and gives 0: set world.wow_values: true"
)
_TRIED = "a text"  # prediction and answer of a trial call
_HUB_NAME = re.compile(r"(hf://datasets/)?\w[\w.-]*/[\w.-]+")
log = logging.getLogger(__name__)


def task_blocks(
    items: Sequence[Any], where: str, folders: Sequence[Path], data: str, own: Own, written: str
) -> tuple[TaskBlock, ...]:
    """Return the columns of an experiment with distinct labels; see `task_block`.

    `own` returns the settings of a column's `finetune` that differ from the file's budget. Labels
    name folders as the file does, which has `written` for `data`.
    """
    places = [f"{where}[{index}]" for index in range(len(items))]
    given = [named(item, place) for item, place in zip(items, places, strict=True)]
    blocks = [task_block(*pair, folders, data) for pair in zip(given, places, strict=True)]
    differ = [resolved_task(block) for block in blocks]
    for index, (block, place) in enumerate(zip(blocks, places, strict=True)):
        if block.finetune is not None:
            changed = own({"finetune": block.finetune}, place)["finetune"]
            blocks[index] = replace(block, finetune=dict(changed))
    shown = [{**d, "data": i.get("data", written)} for d, i in zip(differ, given, strict=True)]
    every = list(zip([block.name for block in blocks], given, shown, strict=True))
    labels = []
    for name, item, own_settings in every:
        rivals = [each for rival, other, each in every if rival == name and "label" not in other]
        labels.append(item["label"] if "label" in item else apart(name, own_settings, rivals))
    check_distinct(labels, places)
    settings = [{key: each[key] for key in each if key != "label"} for each in differ]
    warn_of_equal_settings("columns", labels, settings, where)
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
    values = schema.block(
        entry.plugin, own, where, others=framework, elsewhere=partial(pointer, place="task")
    )
    made = discovery.build(entry, values, where)
    ours = {key: value for key, value in given.items() if key in framework}
    block = schema.block(TaskBlock, ours, where, {"label": name, "data": data})
    block["data"] = data_source(block["data"], at(where, "data"), folders)
    if block["revision"] and block["data"] != HUB:
        raise ConfigError(f"{at(where, 'revision')}: is for data: {HUB} only: leave it out")
    chosen = hooks.METRIC.of(made)
    usual = chosen or entry.facts.get("metric")
    block["metrics"] = tuple(_metric_name(name, folders) for name in block["metrics"])
    _check_metrics(block["metrics"], entry, usual, where)
    labels = hooks.LABELS.of(made) or entry.facts.get("labels", ())
    _check_labels(block["metrics"] or (usual,), labels, where)
    if block["metrics"] and chosen and chosen not in block["metrics"]:
        known = schema.fields_of(entry.plugin)
        defaults = {key: known[key].default for key in own if not known[key].is_required}
        if hooks.METRIC.of(discovery.build(entry, {**values, **defaults}, where)) != chosen:
            raise ConfigError(
                f"{at(where, 'metrics')}: does not name {chosen}, the metric that other keys of "
                "this task choose: name it too, or drop those keys"
            )
    if block["finetune"] is not None and TASK_KINDS[kind_of(entry)].zero_shot:
        raise ConfigError(f"{at(where, 'finetune')}: {name} has no fine-tuning: leave it out")
    block["fields"] = keys.plain(values, where)
    return TaskBlock(**block)


def _metric_name(name: str, folders: Sequence[Path]) -> str:
    """Return the name of a metric; a local module of `evaluate` is imported first."""
    if not name.startswith(PREFIX):
        return name
    module, *key = name.removeprefix(PREFIX).removesuffix(EACH).split(":")
    path = yaml_file.locate(module, folders) if module else None
    script = path / f"{path.name}.py" if path is not None and path.is_dir() else path
    if script is None or not script.is_file():
        return name
    discovery.load_files([script], fresh=True)
    return ":".join([f"{PREFIX}{script.stem}", *key]) + EACH * name.endswith(EACH)


def _check_metrics(names: Sequence[str], entry: Registered, usual: Any, where: str) -> None:
    """Raise ConfigError for a metric that is unknown, repeated or not for the task's answers.

    `usual` is the task's own metric, which shows whether its labels are numbers.
    """
    kind = kind_of(entry)
    has_numbers = usual in METRICS and METRICS[usual].numbers
    for index, name in enumerate(names):
        place, instead = f"{at(where, 'metrics')}[{index}]", f"name another, such as {usual}"
        try:
            metric = find_metric(name)
        except ConfigError as error:
            raise ConfigError(f"{place}: {error}") from None
        if name in names[:index]:
            raise ConfigError(f"{place}: {name} is named twice: remove one")
        first = METRICS[names[0]]
        if index and name in {**first.parts, **first.besides}:
            raise ConfigError(f"{place}: {names[0]} has a figure {name} of its own: remove {name}")
        if name in registry.names("metric"):
            continue
        if metric.parts and not TASK_KINDS[kind].has_classes and name != usual:
            raise ConfigError(
                f"{place}: {name} scores labels, and this task has {kind.rstrip('s')}s: {instead}"
            )
        if metric.numbers != has_numbers:
            what, are = ("texts", "numbers") if has_numbers else ("numbers", "not numbers")
            said = f"compares {what}, and the answers of this task are {are}: {instead}"
            raise ConfigError(f"{place}: {name} {said}")
    for name in () if TASK_KINDS[kind].has_classes else names or (usual,):
        if name in registry.names("metric") and not name.startswith(PREFIX):
            _try(METRICS[name], where)


def _try(metric: Metric, where: str) -> None:
    """Raise ConfigError for a metric of a plugin whose code is broken, or scores beyond 0 to 1.

    Other errors may be those of a metric that expects answers of another form.
    """
    try:
        metric.score(_TRIED, [_TRIED])
    except PluginError as error:
        if isinstance(error.__cause__, NameError | TypeError | None):
            raise ConfigError(f"{where}: {error} (a trial call)") from error


def _check_labels(names: Sequence[Any], labels: Sequence[str], where: str) -> None:
    """Raise ConfigError for labels given twice, and a metric of others; (): they are unknown."""
    for label in (label for index, label in enumerate(labels) if label in labels[:index]):
        raise ConfigError(f"{at(where, 'labels')}: {label!r} is given twice: give each once")
    for name in names:
        wanted = METRICS[name].labels if name in METRICS else ()
        if labels and wanted and set(labels) != set(wanted):
            raise ConfigError(
                f"{at(where, 'metrics')}: {name} is for the labels {', '.join(wanted)}, and this "
                f"task has {', '.join(labels)}: name another, such as accuracy"
            )


def warn_of_missing_answers(
    tasks: Sequence[TaskBlock], world: Mapping[str, Any], where: str
) -> None:
    """Log a warning for each metric that looks for short answers where the world has none."""
    for index, block in enumerate(tasks):
        for name in block.metrics:
            if lacks_short_answers(block.name, block.data, name, world):
                log.warning("%s[%d].metrics: %s", where, index, SHORT_ANSWERS.format(metric=name))


def lacks_short_answers(task: str, data: str, metric: str, world: Mapping[str, Any]) -> bool:
    """Return whether a metric looks for short answers in a task of the world without them."""
    from maskpolicy.experiment.world_settings import NEEDS_VALUES

    looks = metric in METRICS and METRICS[metric].short
    return looks and data == WORLD and task in NEEDS_VALUES and not world.get("wow_values")


def data_source(
    given: str, where: str, folders: Sequence[Path], names: Sequence[str] = (WORLD, HUB)
) -> str:
    """Return the source of tasks: one of `names`, or the absolute path of a folder."""
    if given in names:
        return given
    found = yaml_file.locate(given, folders) if given else None
    if found is None or not found.is_dir():
        more = "" if WORLD in names else "; `maskpolicy world --out DIR` writes DIR/tasks"
        if found is not None:
            raise ConfigError(f"{where}: {given} is a file: name its folder, {Path(given).parent}")
        if _HUB_NAME.fullmatch(given):
            more = "; a data set of the Hub is saved to files first (docs/tasks.md)"
        raise ConfigError(
            f"{where}: {unknown('source', given, names)} or a folder that exists{more}"
        )
    return str(found)
