"""Digests of the files of artifacts, so that not every process reads each large file again.

verified/KEY.json holds the marks (size, times, inode) that the large files of an artifact had when
they matched its manifest.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from maskpolicy.core.files import sha256
from maskpolicy.core.types import Json
from maskpolicy.pipeline.store import manifest
from maskpolicy.pipeline.store.data_digests import Mark, mark
from maskpolicy.pipeline.store.disk import Disk
from maskpolicy.pipeline.store.notes import Notes

_LARGE = 1 << 20  # bytes; reading a smaller file takes no longer than reading its note


@dataclass
class _Folder:
    """The digests of a folder that this process knows: of its manifest, and of files by name."""

    manifest: str = ""
    files: dict[str, tuple[Mark, str]] = field(default_factory=dict)


class ArtifactDigests:
    """Digests of the files of a store's artifacts, and of folders that will become artifacts."""

    def __init__(self, disk: Disk) -> None:
        """Take the disk of a store; notes are read when they are needed."""
        self._artifacts = disk.root / "artifacts"
        self._notes = Notes(disk, "verified")
        self._folders: dict[Path, _Folder] = {}

    def check(self, key: str, found: Json, afresh: bool = False) -> None:
        """Compare the files of an artifact with its manifest; raises manifest.Damaged.

        With `afresh`, all files are read, even if their digests are known.
        """
        folder = self._artifacts / key
        known = self._folders.setdefault(folder, _Folder())
        known.manifest = found["sha256"]
        if afresh:
            known.files.clear()
        else:
            self._recall(key, found)
        before = dict(known.files)
        manifest.verify(folder, found, lambda path: self._digest(folder, path))
        if known.files != before:
            self._note(folder)

    def digest_new(self, folder: Path, path: Path) -> str:
        """Return the sha256 of a file in a folder that is being committed.

        The file is not read if it is a link to a file that this process has verified.
        """
        about = path.stat()
        if about.st_nlink > 1 and about.st_size >= _LARGE:
            now = mark(path)
            for known in self._folders.values():
                for before, digest in known.files.values():
                    if before._replace(ctime=now.ctime) == now:
                        new = self._folders.setdefault(folder, _Folder())
                        new.files[_name(folder, path)] = now, digest
                        return digest
        return self._digest(folder, path)

    def commit(self, key: str, folder: Path, sealed: Json) -> None:
        """Move the digests of a folder to the artifact that it has become."""
        known = self._folders.pop(folder, _Folder())
        known.manifest = sealed["sha256"]
        self._folders[self._artifacts / key] = known
        self._note(self._artifacts / key)

    def learn(self, key: str, found: Json) -> None:
        """Record the digests of a manifest, because all files were just compared with it."""
        folder = self._artifacts / key
        files = {e["path"]: (mark(folder / e["path"]), e["sha256"]) for e in found["files"]}
        self._folders[folder] = _Folder(found["sha256"], files)
        self._note(folder)

    def forget(self, folder: Path) -> None:
        """Forget the digests of a folder."""
        self._folders.pop(folder, None)

    @contextmanager
    def removing(self, key: str) -> Iterator[None]:
        """Forget an artifact, which the block removes.

        The removal changes the ctime of files in other artifacts that are links to its files. Their
        digests stay known.
        """
        gone = self._artifacts / key
        self.forget(gone)
        inodes = _linked(gone)
        links = [
            (folder, name)
            for folder, known in (self._folders.items() if inodes else ())
            for name, (before, _) in known.files.items()
            if before.inode in inodes and _mark(folder / name) == before
        ]
        yield
        self._notes.remove(key)
        for folder, name in links:
            before, digest = self._folders[folder].files[name]
            now = _mark(folder / name)
            if now is not None and now._replace(ctime=before.ctime) == before:
                self._folders[folder].files[name] = now, digest
        for folder in {folder for folder, _ in links}:
            self._note(folder)

    def _digest(self, folder: Path, path: Path) -> str:
        now, name = mark(path), _name(folder, path)
        files = self._folders.setdefault(folder, _Folder()).files
        if name not in files or files[name][0] != now:
            files[name] = now, sha256(path)
        return files[name][1]

    def _recall(self, key: str, found: Json) -> None:
        """Read the note about the large files, if this process has not verified all of them."""
        folder = self._artifacts / key
        files = self._folders[folder].files
        large = {
            entry["path"]: (_mark(folder / entry["path"]), entry["sha256"])
            for entry in found["files"]
            if entry["size"] >= _LARGE
        }
        if any(files.get(name) != now for name, now in large.items()):
            note = self._notes.read(key) or {}
            if note.get("manifest") == found["sha256"]:
                noted = note.get("files", {})
                for name, (now, digest) in large.items():
                    if now is not None and noted.get(name) == list(now):
                        files[name] = now, digest

    def _note(self, folder: Path) -> None:
        known = self._folders[folder]
        files = {
            name: list(each)
            for name, (each, _) in known.files.items()
            if each.size >= _LARGE and not each.is_young()
        }
        if files:
            self._notes.write(folder.name, {"manifest": known.manifest, "files": files})


def _linked(folder: Path) -> set[int]:
    """Return the inodes of the files below a folder that have another name elsewhere."""
    found = set()
    for parent, _, names in os.walk(folder):  # without an error for what is removed meanwhile
        for name in names:
            with suppress(FileNotFoundError):
                about = (Path(parent) / name).stat()
                if about.st_nlink > 1:
                    found.add(about.st_ino)
    return found


def _mark(path: Path) -> Mark | None:
    try:
        return mark(path)
    except FileNotFoundError:
        return None


def _name(folder: Path, path: Path) -> str:
    return path.relative_to(folder).as_posix()
