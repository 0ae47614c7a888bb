"""Read the examples of a task's split: map rows, carve dev from train, look up contexts."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import dropwhile, islice
from pathlib import Path
from typing import TypeVar

from maskpolicy.config.experiment import TaskBlock
from maskpolicy.datafiles import fields
from maskpolicy.datafiles.rows import Malformed, Row
from maskpolicy.errors import DataError
from maskpolicy.formats import dev_split, mapping, sources
from maskpolicy.plugins import hooks, registry
from maskpolicy.types import Example

T = TypeVar("T")
_log = logging.getLogger(__name__)
_NAMED = 10  # repeated ids that a message names


@dataclass(frozen=True)
class Split:
    """The examples of one split, and how much was left out."""

    examples: list[Example]
    unlabelled: int = 0  # rows (or examples) without any answer
    malformed: int = 0  # rows skipped by on_error: skip
    repeated: tuple[str, ...] = ()  # one for each example that has the id of an earlier one


@dataclass
class Reading:
    """The examples that have been read of a split so far, each with its row."""

    task: sources.Task
    source: sources.SplitSource
    malformed: Malformed
    kept: list[tuple[Row, Example]] = field(default_factory=list)
    unlabelled: int = 0
    repeated: list[str] = field(default_factory=list)

    def each(self, change: Callable[[Row, Example], T]) -> list[T]:
        """Return what `change` makes of each example; a row at which it fails is malformed."""
        made = []
        for row, example in self.kept:
            try:
                with mapping.plugin_errors_as_data_errors(self.task):
                    made.append(change(row, example))
            except DataError as error:
                self.malformed.add(row, str(error))
        return made


def read_examples(
    block: TaskBlock, split: str, folder: Path, contexts: bool = True
) -> list[Example]:
    """Return the examples of a split in file order; see `read_split`."""
    return read_split(block, split, folder, contexts).examples


def read_split(block: TaskBlock, split: str, folder: Path, contexts: bool = True) -> Split:
    """Read train, dev or test of a task from official files in `folder`, or from the Hub.

    With `contexts=False`, contexts outside the rows are looked up only if the block has
    `context: true`. Raises DataError for a missing file, a malformed row (unless the block has
    `on_error: skip`) and a split without examples.
    """
    reading = opened(block, split, folder)
    if contexts or block.context:
        look_up(reading)
    examples = [example for _, example in reading.kept]
    if block.context:
        examples = _with_context(examples, reading.source.name)
    _log_rows(reading)
    return Split(examples, reading.unlabelled, reading.malformed.count, tuple(reading.repeated))


def opened(block: TaskBlock, split: str, folder: Path) -> Reading:
    """Read the pairs (row, example) of a split without contexts; raises as `read_split` does.

    If two examples share an id, a user's task gets an error. Official files are taken as they are:
    both examples stay, and `repeated` names the second one.
    """
    task = sources.task(block)
    found = sources.source_of(task, block, split, folder)
    setting = f"on_error: skip in the block of task {task.name!r}"
    reading = Reading(task, found, Malformed(setting, block.on_error == "skip"))
    _map(reading)
    if not reading.kept:
        raise DataError(
            f"{found.name}: no usable row ({_counts(reading)}): task {block.name!r} needs rows "
            "with answers"
        )
    if task.facts.linked:
        groups = dev_split.linked([one for _, one in reading.kept])
        pairs = zip(reading.kept, groups, strict=True)
        reading.kept = [(row, replace(one, group=group)) for (row, one), group in pairs]
    if found.side != "all":
        groups = [one.group for _, one in reading.kept]
        dev = dev_split.dev_groups(groups, task.facts.dev_share, task.facts.linked)
        side = found.side == "dev"
        reading.kept = [(row, one) for row, one in reading.kept if (one.group in dev) == side]
    if not reading.kept:
        raise DataError(
            f"{found.name}: all usable rows are of one group, and a {split} split is carved from "
            f"train by whole groups: add rows of another group for task {block.name!r}"
        )
    if most := getattr(block.limit, split):
        places = dev_split.first([one.group for _, one in reading.kept], most)
        reading.kept = [reading.kept[place] for place in places]
    return reading


def files(block: TaskBlock, split: str, folder: Path, contexts: bool = True) -> list[Path]:
    """Return the files that `read_split` reads; their digests are in the key. Hub: none."""
    if block.data == "hub":
        return []
    task = sources.task(block)
    found = sources.find_split(task, split, folder)
    companions = hooks.EVIDENCE_FILES.of(task.plugin)
    if companions is None or not (contexts or block.context):
        return list(found.files)
    reading = Reading(task, found, Malformed("", skip=True))
    _map(reading)
    rows = [row.value for row, _ in reading.kept]
    return [*found.files, *dict.fromkeys(companions(rows, found.beside, found.official))]


def write_rows(path: Path, examples: Iterable[Example]) -> None:
    """Write examples as JSON Lines with all their fields, but without empty short answers."""
    rows = [asdict(example) for example in examples]
    for row in rows:
        if not row["short_answers"]:
            del row["short_answers"]
    lines = (json.dumps(row, ensure_ascii=False) for row in rows)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def read_rows(path: Path) -> list[Example]:
    """Return the examples that `write_rows` wrote."""
    with path.open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    for row in rows:
        row |= {"targets": tuple(row["targets"]), "choices": tuple(row["choices"])}
        row["short_answers"] = tuple(row.get("short_answers", ()))
    return [Example(**row) for row in rows]


def lines(block: TaskBlock, split: str, folder: Path, limit: int | None = None) -> Iterator[str]:
    """Yield a split, as experiments use it, as JSON Lines (the output of `maskpolicy examples`)."""
    for example in islice(read_examples(block, split, folder), limit):
        row = {
            "id": example.id,
            "group": example.group,
            "source": example.source,
            "targets": list(example.targets),
            "context": example.context,
        }
        yield json.dumps(row, ensure_ascii=False)


def _map(reading: Reading) -> None:
    """Read the rows of the source into `kept`."""
    places: dict[str, str] = {}  # of ids
    is_own = not registry.is_builtin(type(reading.task.plugin))
    for row in reading.source.rows:
        try:
            mapped = mapping.examples(reading.task, row, reading.source.official)
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


def look_up(reading: Reading) -> None:
    """Add the contexts that lie outside the rows, if the task has such."""
    evidence = hooks.EVIDENCE.of(reading.task.plugin)
    if evidence is None:
        return
    rows = [row.value for row, _ in reading.kept]
    find = evidence(rows, reading.source.beside, reading.source.official)

    def with_context(row: Row, example: Example) -> tuple[Row, Example]:
        context = find(row.value, example)
        fields.check(context or "", "the context")
        return row, replace(example, context=context)

    reading.kept = reading.each(with_context)


def _with_context(examples: list[Example], name: str) -> list[Example]:
    """Append each context to its source (`context: true`); raises DataError if there is none."""
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
    """Join both; lines of the source that the context begins with are not repeated."""
    lines = source.split("\n")
    return "\n".join([*lines, *dropwhile(lambda line: line in lines, context.split("\n"))])


def _log_rows(reading: Reading) -> None:
    name = reading.source.name
    if reading.unlabelled:
        is_builtin = registry.is_builtin(type(reading.task.plugin))
        lack = "an answer" if is_builtin else "an example of the task"
        _log.info("%s: %d rows without %s left out", name, reading.unlabelled, lack)
    if reading.repeated:
        shown = "; ".join(reading.repeated[:_NAMED])
        _log.warning(
            "%s: %d rows have the id of an earlier row, and are kept: %s",
            name,
            len(reading.repeated),
            shown,
        )
    reading.malformed.warn(name)


def _counts(reading: Reading) -> str:
    malformed = reading.malformed
    counts = f"{reading.unlabelled} without an answer, {malformed.count} malformed"
    if not reading.unlabelled and not malformed.count:
        return "there is no row at all"
    return f"{counts}: {malformed.first[0]}" if malformed.count else counts
