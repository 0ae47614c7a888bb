"""Digests and cuts of files, which are kept until a file's times or place change.

The note hashes/ID.json holds those of one file; ID is the sha256 of its path.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from maskpolicy.core.errors import DataError
from maskpolicy.core.files import sha256
from maskpolicy.core.types import Json
from maskpolicy.data.datafiles.rows import Cut, Unit, scan
from maskpolicy.pipeline.store import manifest
from maskpolicy.pipeline.store.disk import Disk

FOLDER = "hashes"
_YOUNG = 2_000_000_000  # ns; file systems may record times in steps of up to this
_LARGE = 1 << 20  # bytes; smaller files of artifacts get no note, because reading them is as fast
MOUNTS = Path("/proc/self/mountinfo")  # of Linux
_OVERLAY = "overlay"
_STEP = 10_000_000  # ns; images store times in multiples of it, mostly in whole seconds
_KEEP_CTIME = {  # file systems that set the ctime at each write; others may show a fixed one
    *("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "bcachefs", "tmpfs", _OVERLAY),
    *("nfs", "nfs4", "lustre", "gpfs", "ceph"),
}


class Mark(NamedTuple):
    """Size, times and place of a file; the file counts as unchanged while they stay the same.

    Each write and each new link changes the ctime, which no program can set.
    """

    size: int
    mtime: int  # ns
    ctime: int  # ns
    inode: int
    device: int  # 0: the file system has no device, and each host numbers it anew
    mount: str  # type, source, root and folder of the file system; "": unknown

    def may_hide_a_write(self) -> bool:
        """Return whether another write may leave the same mark.

        Overlays and NFS may show a file of an image, whose ctime is its mtime. On NFS a file that
        was just written has equal times too, but hardly ever whole steps.
        """
        kind = self.mount.partition(" ")[0]
        has_steps = kind.startswith("nfs") and self.ctime % _STEP == 0
        is_of_image = self.ctime == self.mtime and (kind == _OVERLAY or has_steps)
        return is_of_image or kind not in _KEEP_CTIME or time.time_ns() - self.mtime <= _YOUNG


def mark(path: Path) -> Mark:
    """Return size, times and place of a file."""
    about = path.stat()
    device = about.st_dev if os.major(about.st_dev) else 0
    times = about.st_mtime_ns, about.st_ctime_ns
    return Mark(about.st_size, *times, about.st_ino, device, _mount(path, about.st_dev))


def _mount(path: Path, device: int) -> str:
    """Return the innermost mount that holds a file; mounts of the file's device come first."""
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    inside, number = f"{os.path.realpath(path)}/", f"{os.major(device)}:{os.minor(device)}"
    mounts = [(False, 0, 0, "")]
    for at, line in enumerate(lines):
        about, _, of_type = line.partition(" - ")
        _, _, own, root, folder, *_ = about.split(" ")
        if inside.startswith(f"{folder.rstrip('/')}/".replace("\\040", " ")):
            mount = " ".join([*of_type.split(" ")[:2], root, folder])
            mounts.append((own == number, len(folder), at, mount))
    return max(mounts)[-1]


class Digests:
    """Digests of data files and of the files of artifacts, shared by all processes of a store.

    If a note cannot be read or written, the file is read again.
    """

    def __init__(self, disk: Disk) -> None:
        """Start without digests; until the store's folder exists, notes wait for `save`."""
        self._disk = disk
        self._known: dict[Path, tuple[Mark, dict[str, Json]]] = {}  # files that were read here
        self._unsaved: set[Path] = set()
        self._reads_notes = True

    def distrust(self) -> None:
        """Ignore stored digests; read each file again, once."""
        self._known.clear()
        self._reads_notes = False

    def data_file(self, path: str | Path) -> str:
        """Return the sha256 of a data file; raises DataError if it cannot be read."""
        return str(self._facts(Path(path), "sha256", lambda: {"sha256": sha256(Path(path))}))

    def cuts(self, path: Path, size: int, unit: Unit) -> list[Cut]:
        """Return the cuts of a file, as `rows.scan`; raises DataError if it cannot be read."""
        name = f"cuts: {unit}, {size}"

        def read() -> dict[str, Json]:
            digest, found = scan(path, size, unit)
            return {"sha256": digest, name: found}

        return [(offset, lines) for offset, lines in self._facts(path, name, read)]

    def own_file(self, path: Path) -> str:
        """Return the sha256 of a file of an artifact."""
        before = mark(path)
        facts = self._recall(path, before)
        if "sha256" not in facts:
            facts = {"sha256": sha256(path)}
            self._learn_own(path, before, facts)
        return str(facts["sha256"])

    def check(self, folder: Path, sealed: Json, afresh: bool = False) -> None:
        """Compare the files of an artifact with its manifest; raises manifest.Damaged.

        With `afresh`, known digests are forgotten before.
        """
        if afresh:
            for entry in sealed["files"]:
                self._known.pop(folder / entry["path"], None)
                self._disk.remove_note(FOLDER, _id(folder / entry["path"]))
        manifest.verify(folder, sealed, self.own_file)

    def placed(self, folder: Path, sealed: Json) -> None:
        """Keep the digests of an artifact that this process has just placed."""
        for entry in sealed["files"]:
            path = folder / entry["path"]
            self._learn_own(path, mark(path), {"sha256": entry["sha256"]})

    def save(self) -> None:
        """Write the notes that have waited for the store's folder."""
        waiting, self._unsaved = self._unsaved, set()
        for path in waiting & self._known.keys():
            self._note(path)

    def prune(self) -> None:
        """Remove the notes of files that have changed or no longer exist."""
        for entry in self._disk.entries(FOLDER):
            note = self._disk.note(FOLDER, entry.stem) or {}
            try:
                is_current = note["mark"] == list(mark(Path(note["path"])))
            except (KeyError, TypeError, OSError):
                is_current = False
            if not is_current:
                self._disk.remove_note(FOLDER, entry.stem)

    def _facts(self, path: Path, wanted: str, read: Callable[[], dict[str, Json]]) -> Json:
        """Return a fact about a data file, which `read` returns if it is not known."""
        try:
            before = mark(path)
            facts = self._recall(path.absolute(), before)
            if wanted not in facts:
                facts = {**facts, **read()}
                self._learn(path.absolute(), before, facts)
        except FileNotFoundError:
            raise DataError(f"{path}: no such file") from None
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror})") from error
        return facts[wanted]

    def _recall(self, path: Path, now: Mark) -> dict[str, Json]:
        """Return the known facts about a file, {} if it has changed since."""
        if path in self._known:
            before, facts = self._known[path]
            if before == now:
                return facts
        note = (self._disk.note(FOLDER, _id(path)) if self._reads_notes else None) or {}
        return note if note.get("mark") == list(now) else {}

    def _learn_own(self, path: Path, before: Mark, facts: dict[str, Json]) -> None:
        """Keep the digest of a file of an artifact in this process, and that of a large one."""
        self._known[path] = before, facts
        if before.size >= _LARGE:
            self._learn(path, before, facts)

    def _learn(self, path: Path, before: Mark, facts: dict[str, Json]) -> None:
        """Keep facts about a file unless it has changed since `before`, or may change unnoticed."""
        if before.may_hide_a_write() or mark(path) != before:
            return
        self._known[path] = before, facts
        if self._disk.root.is_dir():
            self._note(path)
        else:
            self._unsaved.add(path)

    def _note(self, path: Path) -> None:
        before, facts = self._known[path]
        note = {**facts, "path": str(path), "mark": list(before)}
        self._disk.write_note(FOLDER, _id(path), note)


def _id(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()
