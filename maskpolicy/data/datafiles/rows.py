"""Rows of data files, malformed rows, and the cuts of large files."""

from __future__ import annotations

import gzip
import hashlib
import logging
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias, cast

from maskpolicy.core.errors import DataError
from maskpolicy.core.types import Json

Unit: TypeAlias = Literal["line", "block", "unquoted", "group"]
"""Where a file may be cut: after each line, after each blank line, after each line of a file
without quotes, or between the row groups of Parquet."""

LONGEST_LINE = 1 << 27  # bytes; a line takes three times its size in memory
_NAMED = 10  # malformed rows that a message names
_LONGEST = 300  # characters of a message in the log
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Row:
    """One row of a file or a Hub dataset; `error` says why it cannot be read."""

    place: str  # file and row, for messages
    number: int  # the line (from 1) if the file is read by lines, otherwise the index (from 0)
    value: Json = None  # {key: value}
    error: str = ""
    file: str = ""  # the file's name without its endings, if a task has a file for each group


@dataclass(frozen=True)
class Part:
    """A range of a file's rows: bytes of a file that is read by lines, row groups of Parquet."""

    begin: int = 0
    end: int | None = None  # None: the end of the file
    before: int = 0  # lines (of Parquet: rows) of the file before the range


WHOLE = Part()


@dataclass(frozen=True)
class Layout:
    """What to read, and the layout of rows beyond the format of the file."""

    keys: Sequence[str] = ()  # the keys to read of each row, that of its text first; empty: all
    at: str = ""  # .json: the key of the rows; "data.paragraphs" goes through lists
    header: Sequence[str] = ()  # .tsv, .csv: the names of the columns; empty: the first line
    quoted: bool = True  # .tsv: whether cells may be quoted, as in DPR's psgs_w100.tsv
    part: Part = WHOLE  # as `cuts` finds them


@dataclass
class Malformed:
    """The handling of malformed rows: raise an error, or skip and count them."""

    setting: str  # that skips such rows, for messages, e.g. "corpus.on_error: skip"
    skip: bool = False
    count: int = 0  # rows skipped
    first: list[str] = field(default_factory=list)  # the messages of the first ten

    def add(self, row: Row, reason: str) -> None:
        """Count a skipped row, or raise DataError with its file and place."""
        self.take(f"{row.place}: {reason}")

    def take(self, message: str) -> None:
        """Count a skipped row with a message for `first`, or raise DataError with the message."""
        if not self.skip:
            raise DataError(f"{message} ({self.setting} leaves such rows out)")
        self.count += 1
        if self.count <= _NAMED:
            self.first.append(message[:_LONGEST])

    def warn(self, name: str) -> None:
        """Log the number of skipped rows of `name`, if any, and the first ten messages."""
        if self.count:
            first = "; ".join(self.first)
            _log.warning("%s: %d malformed rows skipped: %s", name, self.count, first)


def existing(path: Path) -> Path | None:
    """Return the file, its gzipped form if only that exists, or None."""
    gzipped = path.with_name(f"{path.name}.gz")
    return next((file for file in (path, gzipped) if file.is_file()), None)


def matching(folder: Path, name: str) -> list[Path]:
    """Return the sorted files of a folder that match a name or a pattern such as *.jsonl.

    A missing file is replaced by its gzipped form.
    """
    names = {name}
    if "*" in name:
        names = {ungzipped(p.name) for form in (name, f"{name}.gz") for p in folder.glob(form)}
    return [path for each in sorted(names) if (path := existing(folder / each)) is not None]


def ungzipped(name: str) -> str:
    """Return a file's name without the ending .gz."""
    return name[:-3] if name.lower().endswith(".gz") else name


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file, unpacked if its name ends in .gz; raises DataError if it cannot be read."""
    try:
        is_packed = ungzipped(path.name) != path.name
        with gzip.open(path) if is_packed else path.open("rb") as stream:
            yield cast(IO[bytes], stream)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: damaged, or not a gzip file: {error}") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error


def text_lines(stream: IO[bytes], path: Path, part: Part = WHOLE) -> Iterator[Row]:
    """Yield each line, without its end, as the value of a row; too long lines are malformed."""
    if part.begin:
        stream.seek(part.begin)
    at, number = part.begin, part.before
    while (part.end is None or at < part.end) and (line := stream.readline(LONGEST_LINE)):
        at, number = at + len(line), number + 1
        place = f"{path}, line {number}"
        if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
            while (rest := stream.readline(_PIECE)) and not rest.endswith(b"\n"):
                at += len(rest)
            at += len(rest)
            reason = f"has more than {LONGEST_LINE / 1e6:,.0f} MB: break it into several"
            yield Row(place, number, error=reason)
            continue
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            yield Row(place, number, text.rstrip("\r\n"))
        except UnicodeDecodeError as error:
            reason = f"not UTF-8 at byte {error.start}: convert the file to UTF-8"
            yield Row(place, number, error=reason)


def check_keys(where: str, wanted: Iterable[str], there: Iterable[str]) -> None:
    """Raise DataError for a wanted column that is not there, or that is there twice."""
    names = list(there)
    for name in wanted:
        if names.count(name) > 1:
            raise DataError(f"{where}: two columns are called {name!r}: rename one of them")
        if name not in names:
            joined = len(names) == 1 and ";" in names[0]
            advice = "separate columns by commas" if joined else "rename one, or set corpus.column"
            raise DataError(f"{where}: no column {name!r}; there are {', '.join(names)}: {advice}")


Cut: TypeAlias = tuple[int, int]
"""The first byte of a part, and the number of lines before it."""

_PIECE = 1 << 20  # bytes of one read


def scan(path: Path, size: int, unit: Unit) -> tuple[str, list[Cut]]:
    """Return a file's sha256 and its cuts, from one pass over the file.

    Each cut is the first possible one, at least `size` bytes after the previous one.
    """
    sha, cuts, offset, lines, end = hashlib.sha256(), list[Cut](), 0, 0, size
    is_quoted = begins_line = False
    with path.open("rb") as file:
        while piece := (
            file.read(min(_PIECE, end - offset)) if offset < end else file.readline(_PIECE)
        ):
            is_line = offset >= end  # the rest of one: a part ends with it, or a blank one after it
            sha.update(piece)
            offset, lines = offset + len(piece), lines + piece.count(b"\n")
            is_quoted = is_quoted or b'"' in piece
            ends = is_line and piece.endswith(b"\n")
            if ends and (unit != "block" or (begins_line and not piece.strip())):
                cuts.append((offset, lines))
                end, ends = offset + size, False
            begins_line = ends
    if unit == "unquoted" and is_quoted:
        cuts = []
    return sha.hexdigest(), [cut for cut in cuts if cut[0] < offset]


def parts(cuts: Sequence[Cut]) -> list[Part]:
    """Return the parts of a text file between its cuts."""
    edges: list[tuple[int | None, int]] = [(0, 0), *cuts, (None, 0)]
    return [Part(begin or 0, end, before) for (begin, before), (end, _) in pairwise(edges)]


def row_groups(path: Path, size: int) -> Iterator[tuple[Part, int]]:
    """Yield the parts of a Parquet file, of `size` bytes or more, and the bytes of their rows.

    A file that cannot be read is one part; its reader raises the error.
    """
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    groups: list[Any] = []
    with suppress(ArrowException, OSError), ParquetFile(path) as file:
        about = file.metadata
        groups = [about.row_group(number) for number in range(about.num_row_groups)]
    begin = before = weight = rows = 0
    for number, group in enumerate(groups, start=1):
        weight, rows = weight + group.total_byte_size, rows + group.num_rows
        if weight >= size and number < len(groups):
            yield Part(begin, number, before), weight
            begin, before, weight, rows = number, before + rows, 0, 0
    yield (Part(begin, None, before) if begin else WHOLE), weight or path.stat().st_size
