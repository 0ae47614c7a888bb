"""The folder of a store: durable renames, locks on keys, notes, and disk errors in one line.

Files are written to temporary/KEY-HOST-*, which is renamed when it is complete. The operating
system releases the locks (flock) of a dead process. If the file system of two hosts does not share
locks, both may compute one key at the same time; the first commit counts.
"""

from __future__ import annotations

import errno
import hashlib
import json
import platform
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from filelock import FileLock, Timeout

from maskpolicy.core.errors import MaskpolicyError, StoreError
from maskpolicy.core.files import FULL, has_room, json_or_none, sync, temporary_fault, write_file
from maskpolicy.core.types import Json

KEY_LENGTH = 64
_DENIED = {errno.EROFS, errno.EACCES, errno.EPERM}
_LOCKLESS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}
_FULL_TEXTS = ("No space left on device", "os error 28", "Disk quota exceeded", "os error 27")


def is_key(name: str) -> bool:
    """Return whether a name is a sha256 in hexadecimal digits."""
    return len(name) == KEY_LENGTH and set(name) <= set("0123456789abcdef")


def check_key(name: str) -> None:
    """Raise StoreError unless a name is a key: files of others may name `../..` as a key."""
    if not is_key(name):
        raise StoreError(f"{name!r} is not a key of the store: those have 64 hexadecimal digits")


class Disk:
    """The sub-folders of one store, all on one file system, so that renames are atomic."""

    HOST = hashlib.sha256(platform.node().encode()).hexdigest()[:8]

    def __init__(self, root: Path, option: str) -> None:
        """Prepare a folder, which the first write creates; `option` is the option that names it."""
        self.root = root
        self._option = option
        self._held: set[str] = set()
        self.has_locks = True  # until the file system answers that it has none

    def folder(self, *names: str) -> Path:
        """Return a sub-folder; if it does not exist, create it and flush it to disk."""
        path = self.root.joinpath(*names)
        if not path.is_dir():
            with self.explained():
                path.mkdir(parents=True, exist_ok=True)
                for created in (path, *path.parents):  # up to the root
                    sync(created)
                    if created == self.root:
                        break
        return path

    def entries(self, name: str) -> list[Path]:
        """Return the entries of a sub-folder whose names begin with a key."""
        folder = self.root / name
        paths = sorted(folder.iterdir()) if folder.is_dir() else []
        return [path for path in paths if is_key(path.name[:KEY_LENGTH])]

    @contextmanager
    def temporary(self, key: str, ours: bool = False) -> Iterator[Path]:
        """Yield a new temporary folder of a key; remove it at the end unless it was renamed.

        The block runs in `explained(ours)`.
        """
        folder = self.folder("temporary") / f"{key}-{self.HOST}-{uuid4().hex[:12]}"
        with self.explained():
            folder.mkdir()
        try:
            with self.explained(ours):
                yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def leftovers(self, key: str) -> list[Path]:
        """Return the temporary folders of a key that processes of this host have created."""
        begin = f"{key}-{self.HOST}-"  # no glob: it would compile a pattern for each key
        return [path for path in self.entries("temporary") if path.name.startswith(begin)]

    def place(self, source: Path, target: Path) -> None:
        """Rename a finished folder or file to its final path, and flush the rename to disk."""
        with self.explained():
            source.rename(target)
            sync(target.parent)

    def discard(self, key: str, path: Path) -> None:
        """Remove a folder; rename it first, so that other processes never see half of it.

        This needs no room on the disk.
        """
        target = self.folder("temporary") / f"{key}-{self.HOST}-{uuid4().hex[:12]}"
        with self.explained(ours=True), suppress(FileNotFoundError):
            path.rename(target)
            sync(path.parent)
        shutil.rmtree(target, ignore_errors=True)

    def quarantine(self, path: Path, name: str) -> None:
        """Move a damaged folder to quarantine/, where a person can inspect it."""
        target = self.folder("quarantine") / f"{name}-{uuid4().hex[:12]}"
        with self.explained(), suppress(FileNotFoundError):
            path.rename(target)
            sync(path.parent)

    @contextmanager
    def lock(self, key: str, wait: bool = False) -> Iterator[bool]:
        """Lock a key while the block runs; yield whether this process holds the lock.

        With `wait`, wait until the key is free. A process that holds the key can lock it again.
        Temporary folders of the key that dead processes of this host left are removed. If the file
        system has no locks, every process holds every key.
        """
        check_key(key)
        if key in self._held:
            yield True
            return
        path = self.folder("locks") / f"{key}.lock"
        lock = FileLock(path, fallback_to_soft=False, thread_local=False)
        try:
            with self.explained():
                lock.acquire(blocking=wait)
        except Timeout:
            yield False
            return
        except StoreError as error:
            if getattr(error.__cause__, "errno", None) not in _LOCKLESS:
                raise
            self.has_locks = False
        self._held.add(key)
        try:
            for leftover in self.leftovers(key) if lock.is_locked else ():
                with suppress(StoreError):
                    self.discard(key, leftover)
            yield True
        finally:
            self._held.discard(key)
            if lock.is_locked:
                # before the release: a process that waits for the removed file creates a new one
                with suppress(OSError):
                    path.unlink(missing_ok=True)
                lock.release()

    def is_busy(self, key: str) -> bool:
        """Return whether another process of this host holds the key."""
        check_key(key)
        if key not in self._held and (self.root / "locks" / f"{key}.lock").exists():
            with suppress(StoreError), self.lock(key) as is_mine:
                return not is_mine
        return False

    def holds(self, key: str) -> bool:
        """Return whether this process holds the key."""
        return key in self._held

    def note(self, name: str, key: str) -> dict[str, Json] | None:
        """Return the note of a key, a small JSON file for other processes, or None.

        Results do not depend on notes; a lost note only costs time.
        """
        content = json_or_none(self.root / name / f"{key}.json")
        return content if isinstance(content, dict) else None

    def write_note(self, name: str, key: str, note: Mapping[str, Json]) -> None:
        """Write or replace a note atomically; if that fails, the old note stays."""
        with suppress(StoreError):
            write_file(self.folder(name) / f"{key}.json", json.dumps(note).encode())

    def remove_note(self, name: str, key: str) -> None:
        """Remove a note, if there is one."""
        with suppress(OSError):
            (self.root / name / f"{key}.json").unlink()

    @contextmanager
    def explained(self, ours: bool = True) -> Iterator[None]:
        """Raise a StoreError of one line instead of an error of the disk.

        With `ours` False, for blocks that run a stage's code, only errors of a full disk and of
        denied access to the store are replaced.
        """
        try:
            yield
        except MaskpolicyError:
            raise
        except Exception as error:
            if told := temporary_fault(error, self.root):
                raise StoreError(told) from error
            reason = self._reason(error, ours)
            if reason is None:
                raise
            raise StoreError(f"{self._option[2:]} {self.root}: {reason}") from error

    def _reason(self, error: Exception, ours: bool) -> str | None:
        number = error.errno if isinstance(error, OSError) else None
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        if self._is_full(error):
            return (
                f"no room to write ({said}): free some space (`maskpolicy store "
                f"prune`) or choose another {self._option}, then run the same command again; what "
                "is committed is kept"
            )
        if number in _DENIED and (ours or self._is_inside(error)):
            return (
                f"cannot be used ({said}): change its permissions or choose another "
                f"with {self._option} or $MASKPOLICY_{self._option[2:].upper()}"
            )
        if ours and number is not None:
            return f"{said}: check the disk, or choose another {self._option}"
        return None

    def _is_full(self, error: BaseException | None) -> bool:
        # on a full disk safetensors and torch raise errors of their own, torch without a reason
        unclear = any(isinstance(one, RuntimeError) for one in (error, error and error.__cause__))
        while error is not None:
            if isinstance(error, OSError) and error.errno in FULL:
                return True
            if any(text in str(error) for text in _FULL_TEXTS):
                return True
            error = error.__cause__ or error.__context__
        return unclear and self.root.is_dir() and not has_room(self.root)

    def _is_inside(self, error: Exception) -> bool:
        name = getattr(error, "filename", None)
        return isinstance(name, str | Path) and Path(name).is_relative_to(self.root)
