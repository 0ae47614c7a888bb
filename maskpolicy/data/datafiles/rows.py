"""Rows of data files: their places, malformed ones, and where a large file may be cut."""

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
"""A file may be cut after each line, after each blank line, after each line if the file has no
quotes, or between the row groups of Parquet."""

LONGEST_LINE = 1 << 27  # bytes; a line takes three times its size in memory
_NAMED = 10  # malformed rows that a message names
_LONGEST = 300  # characters of a message in the log
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Row:
    """One row of a file or a Hub dataset; `error` says why it could not be read."""

    place: str  # file and row, for messages
    number: int  # the line (from 1) if the file is read by lines, otherwise the index (from 0)
    value: Json = None  # {key: value}
    error: str = ""
    file: str = ""  # the file's name without its endings, where a task has a file for each group


@dataclass(frozen=True)
class Part:
    """A range of a file's rows: bytes of a file that is read by lines, row groups of Parquet."""

    begin: int = 0
    end: int | None = None  # None: the end of the file
    before: int = 0  # lines (of Parquet: rows) of the file before the range


WHOLE = Part()


@dataclass(frozen=True)
class Layout:
    """The layout of rows in a file, as far as its format does not fix it, and what to read."""

    keys: Sequence[str] = ()  # the keys to read of each row, that of its text first; empty: all
    at: str = ""  # .json: the key of the rows; "data.paragraphs" goes through lists
    header: Sequence[str] = ()  # .tsv, .csv: the names of the columns; empty: the first line
    quoted: bool = True  # .tsv: whether cells may be quoted, as in DPR's psgs_w100.tsv
    part: Part = WHOLE  # as `cuts` finds them


@dataclass
class Malformed:
    """The policy for rows that cannot be used: raise an error, or skip and count them."""

    setting: str  # what skips such rows, for messages, e.g. "corpus.on_error: skip"
    skip: bool = False
    count: int = 0  # rows skipped
    first: list[str] = field(default_factory=list)  # the messages of the first ten

    def add(self, row: Row, reason: str) -> None:
        """Count a row that is skipped; otherwise raise DataError naming its file and place."""
        self.take(f"{row.place}: {reason}")

    def take(self, message: str) -> None:
        """Do the same for a row whose message, as in `first`, is known."""
        if not self.skip:
            raise DataError(f"{message} ({self.setting} leaves such rows out)")
        self.count += 1
        if self.count <= _NAMED:
            self.first.append(message[:_LONGEST])

    def warn(self, name: str) -> None:
        """Log how many rows of `name` were skipped, if any, and the first ten."""
        if self.count:
            first = "; ".join(self.first)
            _log.warning("%s: %d malformed rows skipped: %s", name, self.count, first)


def existing(path: Path) -> Path | None:
    """Return the file, or its gzipped form if only that exists, or None."""
    gzipped = path.with_name(f"{path.name}.gz")
    return next((file for file in (path, gzipped) if file.is_file()), None)


def matching(folder: Path, name: str) -> list[Path]:
    """Return the files of a folder that a name, or a pattern such as *.jsonl, means, sorted.

    A gzipped form stands for a file that is not there.
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
    """Open a file, unpacked if its name ends in .gz; DataError names one that cannot be read."""
    try:
        if ungzipped(path.name) == path.name:
            with path.open("rb") as stream:
                yield stream
        else:
            with gzip.open(path) as unpacked:
                yield cast(IO[bytes], unpacked)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: damaged, or not a gzip file: {error}") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error


def text_lines(stream: IO[bytes], path: Path, part: Part = WHOLE) -> Iterator[Row]:
    """Yield each line as a row whose value is text without its end; too long ones have an error."""
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
            yield Row(place, number, error=f"not UTF-8 at byte {error.start}")


def check_keys(where: str, wanted: Iterable[str], there: Iterable[str]) -> None:
    """Raise DataError for a key that is wanted of the rows of a file but not there."""
    names = list(there)
    for name in wanted:
        if name not in names:
            raise DataError(f"{where}: no column {name!r}; there are {', '.join(names)}")


Cut: TypeAlias = tuple[int, int]
"""The byte at which a part begins, and the number of lines before it."""

_PIECE = 1 << 20  # bytes of one read


def scan(path: Path, size: int, unit: Unit) -> tuple[str, list[Cut]]:
    """Return a file's sha256 and its cuts, from one pass over the file.

    Each cut is the first possible one at least `size` bytes after the one before.
    """
    cuts: list[Cut] = []
    seen = _Pass()
    with path.open("rb") as file:
        while seen.read(file, size):
            seen.finish(file, unit)
            cuts.append((seen.offset, seen.lines))
    if unit == "unquoted" and seen.quoted:
        cuts = []
    return seen.sha256.hexdigest(), [cut for cut in cuts if cut[0] < seen.offset]


class _Pass:
    """One pass over a file: its digest, and the lines and bytes that were read."""

    def __init__(self) -> None:
        self.sha256 = hashlib.sha256()
        self.offset = self.lines = 0
        self.quoted = False

    def read(self, file: IO[bytes], size: int) -> bool:
        """Read `size` bytes; return whether there were as many."""
        end = self.offset + size
        while self.offset < end and (piece := file.read(min(_PIECE, end - self.offset))):
            self._take(piece)
        return self.offset == end

    def finish(self, file: IO[bytes], unit: Unit) -> None:
        """Read on to the end of a line, or for blocks to the end of a blank line."""
        is_whole = False  # whether a line begins here
        while piece := file.readline(_PIECE):
            self._take(piece)
            ends = piece.endswith(b"\n")
            if ends and (unit != "block" or (is_whole and not piece.strip())):
                return
            is_whole = ends

    def _take(self, piece: bytes) -> None:
        self.sha256.update(piece)
        self.offset += len(piece)
        self.lines += piece.count(b"\n")
        self.quoted = self.quoted or b'"' in piece


def parts(cuts: Sequence[Cut]) -> list[Part]:
    """Return the parts of a text file between its cuts."""
    edges: list[tuple[int | None, int]] = [(0, 0), *cuts, (None, 0)]
    return [Part(begin or 0, end, before) for (begin, before), (end, _) in pairwise(edges)]


def row_groups(path: Path, size: int) -> Iterator[tuple[Part, int]]:
    """Yield the parts of a Parquet file and the bytes of their rows, each of `size` bytes or more.

    A file that cannot be read is one part, whose reader raises the error.
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
