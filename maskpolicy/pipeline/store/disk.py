"""The folders of a store: durable renames, and disk errors reported in one line.

A folder of files is written as temporary/KEY-HOST-*, and renamed when it is complete.
"""

from __future__ import annotations

import errno
import hashlib
import platform
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from maskpolicy.core.errors import MaskpolicyError, StoreError
from maskpolicy.core.files import sync

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED = {errno.EROFS, errno.EACCES, errno.EPERM}
_FULL_TEXTS = ("No space left on device", "os error 28", "Disk quota exceeded", "os error 27")
_NOTHING_LEFT = 1 << 16  # bytes; a disk with less free space counts as full


class Disk:
    """The sub-folders of one store, all on one file system, so that renames are atomic."""

    HOST = hashlib.sha256(platform.node().encode()).hexdigest()[:8]

    def __init__(self, root: Path, option: str = "--store") -> None:
        """Take a folder, which the first write creates, and the option that names it."""
        self.root = root
        self._option = option

    def folder(self, *names: str) -> Path:
        """Return a sub-folder; if it does not exist, create it and flush it to disk."""
        path = self.root.joinpath(*names)
        if not path.is_dir():
            with self.explained():
                self.root.mkdir(parents=True, exist_ok=True)
                path.mkdir(parents=True, exist_ok=True)
                for created in (path, *path.parents):  # up to the root
                    sync(created)
                    if created == self.root:
                        break
        return path

    @contextmanager
    def temporary(self, key: str, ours: bool = False) -> Iterator[Path]:
        """Yield a new temporary folder of a key, which is removed at the end unless it was renamed.

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
        folder = self.root / "temporary"
        paths = sorted(folder.iterdir()) if folder.is_dir() else []
        return [path for path in paths if path.name.startswith(f"{key}-{self.HOST}-")]

    def place(self, source: Path, target: Path) -> None:
        """Rename a finished folder or file to its final path, and flush the rename to disk."""
        with self.explained():
            source.rename(target)
            sync(target.parent)

    def discard(self, key: str, path: Path) -> None:
        """Remove a folder as a whole: it is renamed first, so that nobody can read half of it."""
        with self.temporary(key, ours=True) as folder, suppress(FileNotFoundError):
            path.rename(folder / path.name)
            sync(path.parent)

    def sweep(self, key: str, path: Path) -> None:
        """Remove a temporary folder as a whole, so that nobody can commit half of it."""
        with self.temporary(key, ours=True) as folder, suppress(FileNotFoundError, StoreError):
            path.rename(folder / path.name)

    def quarantine(self, path: Path, name: str) -> None:
        """Move a damaged folder to quarantine/, where a person can inspect it."""
        target = self.folder("quarantine") / f"{name}-{uuid4().hex[:12]}"
        with self.explained(), suppress(FileNotFoundError):
            path.rename(target)
            sync(path.parent)

    @contextmanager
    def explained(self, ours: bool = True) -> Iterator[None]:
        """Raise a StoreError of one line instead of an error of the disk.

        With `ours` False, for blocks that run the code of a stage, this is done only for a full
        disk and for denied access to the store. Other errors pass unchanged.
        """
        try:
            yield
        except MaskpolicyError:
            raise
        except Exception as error:
            reason = self._reason(error, ours)
            if reason is None:
                raise
            raise StoreError(f"{self._option[2:]} {self.root}: {reason}") from error

    def _reason(self, error: Exception, ours: bool) -> str | None:
        number = error.errno if isinstance(error, OSError) else None
        if self._is_full(error):
            return (
                f"no room to write ({_first_line(error)}): free some space (`maskpolicy store "
                f"prune`) or choose another {self._option}, then give the same command again; what "
                "is committed is kept"
            )
        if number in _DENIED and (ours or self._is_inside(error)):
            return (
                f"cannot be used ({_first_line(error)}): change its permissions or choose another "
                f"with {self._option} or $MASKPOLICY_{self._option[2:].upper()}"
            )
        if ours and number is not None:
            return f"{_first_line(error)}: check the disk, or choose another {self._option}"
        return None

    def _is_full(self, error: BaseException | None) -> bool:
        # on a full disk safetensors and torch raise errors of their own, torch without a reason
        unclear = any(isinstance(one, RuntimeError) for one in (error, error and error.__cause__))
        while error is not None:
            if isinstance(error, OSError) and error.errno in _FULL:
                return True
            if any(text in str(error) for text in _FULL_TEXTS):
                return True
            error = error.__cause__ or error.__context__
        return unclear and self.root.is_dir() and shutil.disk_usage(self.root).free < _NOTHING_LEFT

    def _is_inside(self, error: Exception) -> bool:
        name = getattr(error, "filename", None)
        return isinstance(name, str | Path) and Path(name).is_relative_to(self.root)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
