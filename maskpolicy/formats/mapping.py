"""Turn an official row into examples: call the task's code, check what it returns, fill it in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from maskpolicy.datafiles import fields
from maskpolicy.datafiles.rows import Row
from maskpolicy.errors import DataError, MaskpolicyError
from maskpolicy.formats import sources
from maskpolicy.plugins import hooks, plugin_errors
from maskpolicy.types import Example


def examples(task: sources.Task, row: Row, official: str) -> list[Example]:
    """Return the examples of one row, with ids, groups and distinct targets without outer blanks.

    `official` is the split's official name, from which missing ids are made. Raises DataError.
    """
    if row.error:
        raise DataError(row.error)
    with plugin_errors_as_data_errors(task):
        mapped = task.plugin.example(row.value)
    if mapped is None:
        return []
    given = mapped if isinstance(mapped, list) else [mapped]
    for example in given:
        _check(example, task.name)
        if hooks.CHOOSE.of(task.plugin) == "likelihood" and not example.choices:
            raise DataError(
                f"task {task.name!r}: the Example has no choices, of which choose: likelihood "
                "takes one: give choices=(..), or leave choose out"
            )
    return [_whole(example, f"{official}-{row.number}") for example in given]


@contextmanager
def plugin_errors_as_data_errors(task: sources.Task) -> Iterator[None]:
    """Turn an exception of a task's code into a DataError that names the task and the line."""
    try:
        yield
    except MaskpolicyError:
        raise
    except KeyError as error:
        raise DataError(f"key {error} is missing") from error
    except Exception as error:
        raise DataError(
            f"task {task.name!r} failed: {plugin_errors.cause_in(task.plugin, error)}"
        ) from error


def _check(example: Any, task: str) -> None:
    """Raise DataError unless `example` is an Example whose fields have the stated types."""
    if not isinstance(example, Example):
        raise DataError(
            f"task {task!r}: example gave {type(example).__name__}: it must return a "
            "maskpolicy.types.Example, a list of them, or None"
        )
    given: Any = example.id  # by the task's code, which may give a number, also 0
    identity = given if type(given) in (int, float) else given or ""
    texts = {"source": example.source, "id": identity, "context": example.context or ""}
    for name in ("targets", "choices", "short_answers"):
        values = getattr(example, name)
        if not isinstance(values, (tuple, list)):
            raise DataError(
                f"task {task!r}: {name} of its Example must be a tuple of texts, not "
                f"{values!r:.60}: put it in a tuple, ({name[:-1]},)"
            )
        texts |= {f"{name}[{index}]": value for index, value in enumerate(values)}
    for name, value in texts.items():
        if not isinstance(value, str):
            raise DataError(
                f"task {task!r}: {name} of its Example must be text, not {value!r:.60}: "
                "use str(...)"
            )


def _whole(example: Example, default: str) -> Example:
    identity = example.id or default
    targets = fields.distinct(example.targets)
    for value in (identity, example.source, *targets, *example.choices, example.context or ""):
        fields.check(value, f"the text {value[:20]!r}")
    return replace(example, id=identity, group=example.group or identity, targets=targets)
