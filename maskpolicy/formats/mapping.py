"""Official rows to examples: a task's code is called, what it gives is checked and made whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

from maskpolicy.datafiles import fields
from maskpolicy.datafiles.rows import Row
from maskpolicy.errors import DataError, MaskpolicyError
from maskpolicy.formats import sources
from maskpolicy.plugins import faults
from maskpolicy.types import Example, Json


class Task(Protocol):
    """What a task's dataclass must define; its fields are the options of its YAML block.

    `maskpolicy.plugins.hooks` lists what it may define besides.
    """

    def example(self, row: Json) -> Example | list[Example] | None:
        """Map one official row; None: the row has no answers. Empty id and group are filled in."""
        ...


def examples(task: sources.Task, row: Row, official: str) -> list[Example]:
    """Map one row and make its examples whole: ids, groups, clean distinct targets."""
    if row.error:
        raise DataError(row.error)
    with told(task):
        mapped = task.plugin.example(row.value)
    if mapped is None:
        return []
    given = mapped if isinstance(mapped, list) else [mapped]
    for example in given:
        _check(example, task.name)
    return [_whole(example, f"{official}-{row.number}") for example in given]


@contextmanager
def told(task: sources.Task) -> Iterator[None]:
    """Raise as DataError what a task's code raises at a row."""
    try:
        yield
    except MaskpolicyError:
        raise
    except KeyError as error:
        raise DataError(f"key {error} is missing") from error
    except Exception as error:
        raise DataError(f"task {task.name!r} failed: {faults.of(task.plugin, error)}") from error


def _check(example: Any, task: str) -> None:
    """Raise DataError unless a task's `example` gave an Example of the types that it states."""
    if not isinstance(example, Example):
        raise DataError(
            f"task {task!r}: example gave {type(example).__name__}: it must return a "
            "maskpolicy.types.Example, a list of them, or None"
        )
    texts = {"source": example.source, "id": example.id or "", "context": example.context or ""}
    if type(example.id) in (int, float):
        texts["id"] = example.id  # 0 too
    for name in ("targets", "choices"):
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
