"""The examples of a task's split: official rows mapped, checked, carved and given a context."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import dropwhile, islice
from pathlib import Path

from maskpolicy import carving, faults, fields, hooks, mapping, sources
from maskpolicy.errors import DataError
from maskpolicy.experiment import TaskBlock
from maskpolicy.mapping import Task
from maskpolicy.rows import Malformed, Row
from maskpolicy.sources import TaskFacts
from maskpolicy.types import Example

__all__ = [
    "Reading",
    "Split",
    "Task",
    "TaskFacts",
    "files",
    "lines",
    "load",
    "look_up",
    "opened",
    "read",
]

_log = logging.getLogger(__name__)
_NAMED = 10  # repeated ids that a message names


@dataclass(frozen=True)
class Split:
    """The examples of one split, and what was left out of it."""

    examples: list[Example]
    unlabelled: int = 0  # rows (or examples) without any answer
    malformed: int = 0  # rows skipped by on_error: skip
    repeated: tuple[str, ...] = ()  # one for each example that has the id of an earlier one


@dataclass
class Reading:
    """What has been read of a split so far."""

    malformed: Malformed
    task: sources.Task
    official: str  # the official split that it is read from
    beside: tuple[Path, ...] = ()  # folders in which companions may lie
    name: str = ""  # for messages
    kept: list[tuple[Row, Example]] = field(default_factory=list)
    unlabelled: int = 0
    repeated: list[str] = field(default_factory=list)


def read(block: TaskBlock, split: str, folder: Path, contexts: bool = True) -> list[Example]:
    """Return the examples of a split in file order; see `load`."""
    return load(block, split, folder, contexts).examples


def load(block: TaskBlock, split: str, folder: Path, contexts: bool = True) -> Split:
    """Read train, dev or test of a task from official files in `folder`, or from the Hub.

    `contexts=False` looks none up outside the rows, unless the block asks for `context`. Raises
    DataError for a missing file, a malformed row (unless on_error: skip) and an empty split.
    """
    reading = opened(block, split, folder)
    if contexts or block.context:
        look_up(reading)
    examples = [example for _, example in reading.kept]
    if block.context:
        examples = _with_context(examples, reading.name)
    _tell(reading)
    return Split(examples, reading.unlabelled, reading.malformed.count, tuple(reading.repeated))


def opened(block: TaskBlock, split: str, folder: Path) -> Reading:
    """Read the pairs (row, example) of a split, contexts not looked up; raises as `load` does.

    Two examples with one id are refused where a user's task makes the ids. Official files are taken
    as they are: both examples stay, and `repeated` names the second.
    """
    task = sources.task(block)
    found = sources.rows(task, block, split, folder)
    setting = f"on_error: skip in the block of task {task.name!r}"
    malformed = Malformed(setting, block.on_error == "skip")
    reading = Reading(malformed, task, found.official, found.beside, found.name)
    _map(found.rows, reading)
    if not reading.kept:
        raise DataError(
            f"{found.name}: no usable row ({_counts(reading)}): task {block.name!r} needs rows "
            "with answers"
        )
    if task.facts.linked:
        _link(reading)
    _keep_side(reading, found.side)
    if not reading.kept:
        raise DataError(
            f"{found.name}: too few groups to carve a {split} split from: task {block.name!r} "
            "needs rows about two things or more"
        )
    return reading


def files(block: TaskBlock, split: str, folder: Path, contexts: bool = True) -> list[Path]:
    """Return the files that `load` reads for a split, for cache keys; none from the Hub."""
    if block.data == "hub":
        return []
    task = sources.task(block)
    found = sources.find(task, split, folder)
    companions = hooks.EVIDENCE_FILES.of(task.plugin)
    if companions is None or not (contexts or block.context):
        return [found.path]
    reading = Reading(Malformed("", skip=True), task, found.official)
    _map(task.facts.rows(found.path), reading)
    rows = [row.value for row, _ in reading.kept]
    return [found.path, *dict.fromkeys(companions(rows, found.beside, found.official))]


def lines(block: TaskBlock, split: str, folder: Path, limit: int | None = None) -> Iterator[str]:
    """Yield a split as the experiments use it, as the JSON Lines of `maskpolicy examples`."""
    for example in islice(read(block, split, folder), limit):
        row = {
            "id": example.id,
            "group": example.group,
            "source": example.source,
            "targets": list(example.targets),
            "context": example.context,
        }
        yield json.dumps(row, ensure_ascii=False)


def _map(rows: Iterable[Row], reading: Reading) -> None:
    places: dict[str, str] = {}  # of ids
    is_own = not faults.is_built_in(reading.task.plugin)
    for row in rows:
        try:
            mapped = mapping.examples(reading.task, row, reading.official)
            labelled = [one for one in mapped if one.targets or not one.answerable]
            for one in mapped if is_own else labelled:
                if one.id in places:
                    twice = f"id {one.id!r} is that of {places[one.id]} too"
                    if is_own:
                        raise DataError(f"{twice}: give each example of a split an id of its own")
                    reading.repeated.append(f"{row.place}: {twice}")
                places.setdefault(one.id, row.place)
        except DataError as error:
            reading.malformed.add(row, str(error))
        else:
            reading.unlabelled += len(mapped) - len(labelled) or not mapped
            reading.kept += [(row, example) for example in labelled]


def _link(reading: Reading) -> None:
    """Make one group of the examples that share a text, directly or through others."""
    texts = [[fields.alike(text) for text in _texts(one)] for _, one in reading.kept]
    pairs = zip(reading.kept, carving.connected(texts), strict=True)
    reading.kept = [(row, replace(one, group=group)) for (row, one), group in pairs]


def _texts(example: Example) -> list[str]:
    return [text for text in (example.source, example.context) if text is not None]


def _keep_side(reading: Reading, side: str) -> None:
    """Leave the other side of the carve out.

    Linked groups may be large: one that would fill more than dev's share alone stays in train.
    """
    if side == "all":
        return
    share, sizes = reading.task.facts.dev_share, Counter(one.group for _, one in reading.kept)
    large = {group for group, size in sizes.items() if size > share * len(reading.kept)}
    dev = carving.carve(sizes, share, stay=large if reading.task.facts.linked else set())
    reading.kept = [
        (row, example) for row, example in reading.kept if (example.group in dev) == (side == "dev")
    ]


def look_up(reading: Reading) -> None:
    """Add the contexts that lie outside the rows, for tasks that have such."""
    evidence = hooks.EVIDENCE.of(reading.task.plugin)
    if evidence is None:
        return
    pairs, reading.kept = reading.kept, []
    rows = [row.value for row, _ in pairs]
    find = evidence(rows, reading.beside, reading.official)
    for row, example in pairs:
        try:
            with mapping.told(reading.task):
                context = find(row.value, example)
                fields.check(context or "", "the context")
        except DataError as error:
            reading.malformed.add(row, str(error))
        else:
            reading.kept.append((row, replace(example, context=context)))


def _with_context(examples: list[Example], name: str) -> list[Example]:
    """Append each context to its source: the oracle row."""
    if not any(example.context for example in examples):
        raise DataError(
            f"{name}: context: true, but no example has a context: put the task's evidence or "
            "knowledge source beside the file"
        )
    return [
        replace(example, source=_joined(example.source, example.context))
        if example.context
        else example
        for example in examples
    ]


def _joined(source: str, context: str) -> str:
    """Return both; a context that begins with lines of the source goes on behind them."""
    lines = source.split("\n")
    return "\n".join([*lines, *dropwhile(lambda line: line in lines, context.split("\n"))])


def _tell(reading: Reading) -> None:
    name = reading.name
    if reading.unlabelled:
        _log.info("%s: %d rows without an answer left out", name, reading.unlabelled)
    if reading.repeated:
        shown = "; ".join(reading.repeated[:_NAMED])
        _log.warning(
            "%s: %d rows have the id of an earlier row, and are kept: %s",
            *(name, len(reading.repeated), shown),
        )
    reading.malformed.warn(name)


def _counts(reading: Reading) -> str:
    malformed = reading.malformed
    counts = f"{reading.unlabelled} without an answer, {malformed.count} malformed"
    return f"{counts}: {malformed.first[0]}" if malformed.count else counts
