"""Digests and cuts of data files, which are kept while size, times and inode stay the same.

hashes/ID.json holds those of one file; ID is the sha256 of its path.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from maskpolicy.core.errors import DataError
from maskpolicy.core.files import sha256
from maskpolicy.core.types import Json
from maskpolicy.data.datafiles.rows import Cut, Unit, scan
from maskpolicy.pipeline.store.disk import Disk
from maskpolicy.pipeline.store.notes import Notes

_YOUNG = 2_000_000_000  # ns; file systems may record times in steps of up to this


class Mark(NamedTuple):
    """Size, times and inode of a file, which counts as unchanged while these stay the same.

    Each write changes the ctime, which no program can set. A new link to the file changes it too.
    """

    size: int
    mtime: int  # ns
    ctime: int  # ns
    inode: int

    def is_young(self) -> bool:
        """Return whether another write may still leave the same times."""
        return time.time_ns() - self.mtime <= _YOUNG


def mark(path: Path) -> Mark:
    """Return size, times and inode of a file."""
    found = path.stat()
    return Mark(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


class DataDigests:
    """Digests of data files and further facts about them, shared by all processes of a store.

    If a note cannot be read or written, the file is read again.
    """

    def __init__(self, disk: Disk) -> None:
        """Take the disk of a store. If its folder does not exist, `save` writes the facts later."""
        self._root = disk.root
        self._notes = Notes(disk, "hashes")
        self._waiting: dict[Path, Json] = {}
        self._read: set[Path] | None = None  # files that this process has read; None: notes count

    def distrust(self) -> None:
        """Read each file again, once in this process, whatever the notes say."""
        self._read = set()

    def digest(self, path: Path) -> str:
        """Return the sha256 of a file; raises DataError if it cannot be read."""
        with readable(path):
            known = self.recall(path).get("sha256")
            if known is None:
                before = mark(path)
                known = sha256(path)
                self.learn(path, before, sha256=known)
        return str(known)

    def recall(self, path: Path) -> dict[str, Json]:
        """Return the known facts about a file; none if it has changed since they were noted."""
        path = path.absolute()
        if self._read is not None and path not in self._read:
            return {}
        note = self._waiting.get(path) or self._notes.read(_id(path)) or {}
        return note if note.get("mark") == list(mark(path)) else {}

    def learn(self, path: Path, before: Mark, **facts: Json) -> None:
        """Add facts (JSON) about a file, unless it has changed since `before`.

        `before` is its mark from before it was read.
        """
        path = path.absolute()
        known = self.recall(path)  # none if this process has not read the file and must
        if self._read is not None:
            self._read.add(path)
        if before.is_young() or mark(path) != before:
            return
        note = {**known, "path": str(path), "mark": list(before), **facts}
        if self._root.is_dir():
            self._notes.write(_id(path), note)
        else:
            self._waiting[path] = note

    def cuts(self, path: Path, size: int, unit: Unit) -> list[Cut]:
        """Return the cuts of a file, as `cuts.scan`; raises DataError if it cannot be read."""
        name = f"{unit}, {size}"
        with readable(path):
            known = self.recall(path).get("cuts", {})
            if name in known:
                return [(offset, lines) for offset, lines in known[name]]
            before = mark(path)
            digest, found = scan(path, size, unit)
            self.learn(path, before, sha256=digest, cuts={**known, name: found})
        return found

    def save(self) -> None:
        """Write the facts that were found before the store's folder existed."""
        waiting, self._waiting = self._waiting, {}
        for path, note in waiting.items():
            self._notes.write(_id(path), note)

    def prune(self) -> None:
        """Remove the notes of files that have changed or no longer exist."""
        for name in sorted(self._notes.keys()):
            note = self._notes.read(name) or {}
            try:
                is_current = note["mark"] == list(mark(Path(note["path"])))
            except (KeyError, TypeError, OSError):
                is_current = False
            if not is_current:
                self._notes.remove(name)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Raise DataError if a data file cannot be read."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error


def _id(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()
