"""Claims in a folder that hosts may share.

locks/KEY/TOKEN        the claim on a key; its time is refreshed
locks/KEY-TOKEN/TOKEN  the same before it is made, by renaming the folder

A folder can be renamed to one that exists only if that one is empty. So of all processes that try
to claim a key, one succeeds, and whoever ends a claim removes the file of that claim and no other
one. Servers of network file systems decide both; no lock of the operating system is used.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from maskpolicy.errors import StoreError
from maskpolicy.store.disk import Disk
from maskpolicy.store.holders import Holder, decoded
from maskpolicy.store.locks import LEASE, Claim, Seen, T, U, is_key

_TAKEN = {errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.EBUSY}


class FolderClaims:
    """The claims in one folder."""

    def __init__(self, disk: Disk, lease: float = LEASE) -> None:
        """Take the folder; `lease` is that of a claim which a crash of the disk has emptied."""
        self.place = str(disk.root)
        self._disk = disk
        self._lease = lease

    def each(self, work: Callable[[T], U], items: Sequence[T]) -> list[U]:
        """Return work(item) for each item, one after the other."""
        return [work(item) for item in items]

    def look(self, key: str) -> Seen | None:
        """Return the claim on a key, or None; writes nothing."""
        paths: list[Path] = []
        with suppress(FileNotFoundError):
            paths = sorted(self._folder(key).iterdir(), reverse=True)
        for path in paths:  # last the files that NFS keeps while they are open
            with suppress(FileNotFoundError), path.open("rb") as file:
                about, holder = os.fstat(file.fileno()), decoded(file.read(), self._lease)
                sight = (path.name, about.st_mtime_ns, about.st_ctime_ns)
                heard = datetime.fromtimestamp(about.st_mtime, UTC)
                return Seen(Claim(key, path.name), holder, sight, heard)
        return None

    def keys(self) -> set[str]:
        """Return the keys that have a claim, which may be over."""
        folder = self._disk.root / "locks"
        names = (path.name for path in folder.iterdir()) if folder.is_dir() else ()
        return {name for name in names if is_key(name)}

    def take(self, key: str, holder: Holder, over: Seen | None) -> Claim | None:
        """Claim a key in place of a claim that is over; None if another process was faster.

        Raises StoreError if a process of a former version of maskpolicy has locked the key.
        """
        self._check_former(key)
        claim = Claim(key, uuid4().hex)
        made = self._disk.folder("locks") / f"{key}-{claim.token}"
        path = self._path(claim)
        try:
            if over is not None:
                self.end(over.claim)
            with suppress(OSError):  # SMB renames no folder to an empty one
                path.parent.rmdir()
            made.mkdir()
            (made / claim.token).write_bytes(holder.encoded())
            made.rename(path.parent)
        except OSError as error:
            if path.exists():  # only the server's answer was lost
                return claim
            shutil.rmtree(made, ignore_errors=True)
            if error.errno in _TAKEN:
                return None
            raise
        return claim

    def holds(self, claim: Claim) -> bool:
        """Return whether a claim is still there; if so, it is refreshed."""
        try:
            os.utime(self._path(claim))
        except FileNotFoundError:
            return False
        return True

    def refresh(self, claim: Claim) -> None:
        """Set a claim's time to now, if it is still there."""
        self.holds(claim)

    def end(self, claim: Claim) -> None:
        """Remove a claim, and its folder unless the next claim is there already."""
        self._path(claim).unlink(missing_ok=True)
        with suppress(OSError):
            self._path(claim).parent.rmdir()

    def _check_former(self, key: str) -> None:
        """Raise StoreError for a key locked by a version that locked files, and saw no claims."""
        path = self._disk.root / "locks" / f"{key}.lock"
        with suppress(FileNotFoundError, PermissionError), path.open("r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreError(
                    f"store {self.place}: a process with an older version of maskpolicy is at work "
                    "in it: wait until it has ended, and give all processes the same version"
                ) from None
            except OSError:  # the file system has no such locks, so that version cannot use it
                pass

    def _folder(self, key: str) -> Path:
        return self._disk.root / "locks" / key

    def _path(self, claim: Claim) -> Path:
        return self._folder(claim.key) / claim.token
