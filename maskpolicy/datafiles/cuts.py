"""The places at which a large data file may be cut into parts that are read separately."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, TypeAlias

from maskpolicy.datafiles.rows import WHOLE, Part, Unit

Cut: TypeAlias = tuple[int, int]
"""The byte at which a part begins, and the number of lines before it."""

_PIECE = 1 << 20  # bytes of one read


def scan(path: Path, size: int, unit: Unit) -> tuple[str, list[Cut]]:
    """Return a file's sha256 and its cuts, from one pass over the file.

    Each cut is the first possible one at least `size` bytes after the one before.
    """
    found: list[Cut] = []
    seen = _Pass()
    with path.open("rb") as file:
        while seen.read(file, size):
            seen.finish(file, unit)
            found.append((seen.offset, seen.lines))
    if unit == "unquoted" and seen.quoted:
        found = []
    return seen.sha256.hexdigest(), [cut for cut in found if cut[0] < seen.offset]


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
