"""The settings of learned policies: the tasks they train on, and the policy they start from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from maskpolicy.core import schema
from maskpolicy.core.errors import ConfigError
from maskpolicy.core.keys import plain, without_omitted
from maskpolicy.core.types import Json
from maskpolicy.experiment import budgets
from maskpolicy.experiment.definition import NONE, Experiment, PolicyBlock, TaskBlock
from maskpolicy.experiment.policy_blocks import leaf_blocks, policy_block
from maskpolicy.experiment.task_blocks import task_block
from maskpolicy.experiment.task_kinds import TASK_KINDS, kind_of
from maskpolicy.plugins import hooks
from maskpolicy.plugins.discovery import find_plugin

TRAIN_ON, INIT = hooks.TRAIN_ON.name, hooks.INIT.name


def is_learned(block: PolicyBlock) -> bool:
    """Return whether the row's policy, or one that it draws, has a method `fit`."""
    return any(hooks.FIT.of(leaf.policy) is not None for leaf, _ in leaf_blocks(block, block.label))


def tasks(
    block: PolicyBlock, columns: Sequence[TaskBlock], data: str, where: str = ""
) -> tuple[TaskBlock, ...]:
    """Return the tasks that the policy's field `train_on` names, with the experiment's data.

    A name is the label of a column, else the first column of a task of that name, else a task with
    its defaults. Raises ConfigError for an unknown or repeated name.
    """
    found = []
    names = block.fields.get(TRAIN_ON, ())
    if isinstance(names, str):
        what = "a list of tasks (tuple[str, ...] in the policy's class)"
        raise schema.wrong(names, what, f"{where or block.label}.{TRAIN_ON}")
    for index, name in enumerate(names):
        place = f"{where or block.label}.{TRAIN_ON}[{index}]"
        if name in names[:index]:
            raise ConfigError(f"{place}: {name} is given twice")
        known = [column for column in columns if column.label == name]
        known += [column for column in columns if column.name == name]
        task = known[0] if known else task_block({"name": name}, place, (), data)
        limit = replace(task.limit, test=0)  # learning never depends on the test split
        found.append(replace(task, label=name, context=False, limit=limit, metrics=()))
    return tuple(found)


def start(block: PolicyBlock, where: str = "") -> PolicyBlock | None:
    """Return the learned policy in the field `init`; None if the field is missing or empty.

    The field holds a block, or a policy's name, which then trains on the same tasks. Raises
    ConfigError for a policy that is not learned.
    """
    given: Any = block.fields.get(INIT)
    if not given:
        return None
    place = f"{where or block.label}.{INIT}"
    if isinstance(given, str):
        given = {"name": given, TRAIN_ON: block.fields.get(TRAIN_ON, ())}
    if not isinstance(given, Mapping) or not isinstance(given.get("name"), str):
        raise ConfigError(f"{place}: must be the name or the block of a learned policy")
    name = given["name"]
    plugin = None if name == NONE else find_plugin("policy", name, where=place).plugin
    if hooks.FIT.of(plugin) is None:
        raise ConfigError(f"{place}: {name} is not a learned policy: name one that is")
    return policy_block(given, place, {})


def chain(block: PolicyBlock, where: str) -> Iterator[tuple[PolicyBlock, str]]:
    """Yield a row's learned policy, the one that it starts from, and so on, each with its place.

    If the row draws policies, yield those of each. Raises ConfigError if a policy starts from one
    that is not learned.
    """
    for leaf, place in leaf_blocks(block, where):
        if is_learned(leaf):
            yield leaf, place
            if (before := start(leaf, place)) is not None:
                yield from chain(before, f"{place}.{INIT}")


def learns_from_tasks(block: PolicyBlock) -> bool:
    """Return whether the row's policy, or one that it starts from, is fitted on tasks."""
    return any(each.fields.get(TRAIN_ON) for each, _ in chain(block, block.label))


def needs_classifier(block: PolicyBlock) -> bool:
    """Return whether the row's policy, or one that it starts from, needs a classifier."""
    return any(hooks.NEEDS_CLASSIFIER.of(row.policy) for row, _ in chain(block, block.label))


def check_classifiers(experiment: Experiment) -> None:
    """Raise ConfigError if a classifier's task is not a column, so that epochs give it no steps."""
    for block in experiment.policies:
        for each, _ in chain(block, block.label):
            if hooks.NEEDS_CLASSIFIER.of(each.policy):
                [task] = tasks(each, experiment.tasks, experiment.data)
                if task.finetune is None:
                    raise ConfigError(
                        f"{experiment.where}finetune.epochs: {block.label} fine-tunes a classifier "
                        f"on {task.label}, which is not a column: give finetune.steps"
                    )


def check(block: PolicyBlock, columns: Sequence[TaskBlock], data: str, where: str) -> None:
    """Raise ConfigError if a row's learned policy, or one it starts from, cannot be fitted."""
    for each, place in chain(block, where):
        for index, task in enumerate(tasks(each, columns, data, place)):
            _check_kind(each, task, f"{place}.{TRAIN_ON}[{index}]")
        named = each.fields.get(TRAIN_ON, ())
        if hooks.LEARNS_FROM.of(each.policy) == "labels" and not named:
            raise ConfigError(f"{place}.{TRAIN_ON}: is empty: name a label task")
        if hooks.NEEDS_CLASSIFIER.of(each.policy) and len(named) != 1:
            raise ConfigError(
                f"{place}.{TRAIN_ON}: names {len(named)} tasks, but {each.name} fine-tunes one "
                "classifier: name one label task"
            )


def _check_kind(block: PolicyBlock, task: TaskBlock, where: str) -> None:
    """Raise ConfigError unless a task has what the policy learns from: answers or labels."""
    labels = hooks.LEARNS_FROM.of(block.policy) == "labels"
    what = (
        "learns from labels, and this task has none: name a label task, such as cola"
        if labels
        else "learns from the answers in a context, and this task has labels: name a task with "
        "answers, such as triviaqa"
    )
    if labels != TASK_KINDS[kind_of(find_plugin("task", task.name))].has_classes:
        raise ConfigError(f"{where}: {task.label}: {block.name} {what}")


def warn_of_long_warmups(block: PolicyBlock, where: str) -> None:
    """Log a warning for each warm-up in a learned policy's block that exceeds its steps."""
    for each, place in chain(block, where):
        for name, value in each.fields.items():
            if isinstance(value, Mapping) and {"steps", "warmup"} <= value.keys():
                budgets.warn_of_long_warmup(value["warmup"], value["steps"], f"{place}.{name}")


def trained_on(experiment: Experiment, block: PolicyBlock) -> tuple[TaskBlock, ...]:
    """Return the tasks that a row's policy, and those it starts from, are fitted on."""
    found: list[TaskBlock] = []
    for each, place in chain(block, block.label):
        own = tasks(each, experiment.tasks, experiment.data, place)
        found += [task for task in own if task not in found]
    return tuple(found)


def fitted_fields(block: PolicyBlock) -> dict[str, Json]:
    """Return the fields that `fit` and `annotate` may read: all but those in `only_select`.

    If the policy is not learned, the latter have their defaults instead, so rows that differ only
    in them share one annotation. Fields without a default are always kept.
    """
    known = schema.fields_of(type(block.policy))
    drawn = [name for name in hooks.only_select(block.policy) if not known[name].is_required]
    keyed = without_omitted(type(block.policy), block.fields)
    kept = {name: value for name, value in keyed.items() if name not in drawn}
    if is_learned(block):
        return kept
    defaults = {name: known[name].default for name in drawn}
    return {**kept, **without_omitted(type(block.policy), plain(defaults, block.label))}
