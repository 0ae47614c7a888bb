"""Files that are written row by row, so that a world of any size fits in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self, TextIO, TypeAlias

from maskpolicy.core.types import Json
from maskpolicy.data.world.entries import Entry, Subject
from maskpolicy.data.world.pools import Pools
from maskpolicy.experiment.world_settings import Settings


class Format(NamedTuple):
    """What stands around the rows of a file; by default, a row is a line."""

    head: str = ""
    between: str = "\n"
    foot: str = "\n"  # not of an empty file of lines


LINES, LIST = Format(), Format("[\n", ",\n", "\n]\n")


class World(NamedTuple):
    """What the rows of a task are made from, besides a subject and its entries."""

    settings: Settings
    pools: Pools


Rows: TypeAlias = Iterator[tuple[str, Json]]
"""(name of a file, row): JSON, or text that is written as it is"""


@dataclass(frozen=True)
class TaskFiles:
    """The files of one task in its official format."""

    name: str
    kind: str  # of the subjects that it asks about; "": it is given all of them
    files: tuple[str, ...]  # its train file, and the one that is the test split
    formats: Mapping[str, Format]  # of all files that it writes
    rows: Callable[[World, Subject, list[Entry], str], Rows]
    """(world, subject, its entries, "train" or "dev") -> what the task asks about the subject"""


def task_files(
    name: str, kind: str, files: Sequence[str], formats: Mapping[str, Format] | None = None
) -> Callable[[Callable[[World, Subject, list[Entry], str], Rows]], TaskFiles]:
    """Make a function `rows` the TaskFiles of a task; by default, the rows of `files` are lines."""
    of_files = dict.fromkeys(files, LINES) if formats is None else formats
    return lambda rows: TaskFiles(name, kind, tuple(files), of_files, rows)


class Files:
    """A folder of files that are opened once, written row by row and closed together."""

    def __init__(self, folder: Path) -> None:
        """Write below `folder`, which is created."""
        self._folder = folder
        self._files: dict[str, tuple[TextIO, Format]] = {}
        self.rows: dict[str, int] = {}

    def open(self, name: str, form: Format = LINES) -> None:
        """Open a file for rows."""
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = path.open("w", encoding="utf-8", newline="\n")
        stream.write(form.head)
        self._files[name] = (stream, form)
        self.rows[name] = 0

    def write(self, name: str, row: Json) -> None:
        """Append one row."""
        stream, form = self._files[name]
        text = row if isinstance(row, str) else json.dumps(row, ensure_ascii=False)
        stream.write((form.between if self.rows[name] else "") + text)
        self.rows[name] += 1

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """Close all files; they are complete only when nothing was raised."""
        for name, (stream, form) in self._files.items():
            with stream:
                if kind is None and (self.rows[name] or form != LINES):
                    stream.write(form.foot)
