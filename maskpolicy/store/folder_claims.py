"""Claims in a folder that several hosts may share.

locks/KEY/TOKEN        the claim on a key; a refresh sets its modification time
locks/KEY-TOKEN/TOKEN  a claim that is being made: renaming the folder to locks/KEY makes it

A folder can be renamed to an existing one only if that one is empty. So one of all processes that
try to claim a key succeeds. Ending a claim removes the file with its token and no other one. On
network file systems the server decides both; no lock of the operating system is used.
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
from maskpolicy.store.claims import LEASE, Claim, SeenClaim, T, U, is_key
from maskpolicy.store.disk import Disk
from maskpolicy.store.holders import Holder, decoded

_TAKEN = {errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.EBUSY}


class FolderClaims:
    """The claims in one folder."""

    def __init__(self, disk: Disk, lease: float = LEASE) -> None:
        """Take the folder; `lease` is used for a claim whose file a crash of the host emptied."""
        self.place = str(disk.root)
        self._disk = disk
        self._lease = lease

    def each(self, call: Callable[[T], U], items: Sequence[T]) -> list[U]:
        """Return call(item) for each item, one after the other."""
        return [call(item) for item in items]

    def read(self, key: str) -> SeenClaim | None:
        """Return the claim on a key, or None; writes nothing."""
        paths: list[Path] = []
        with suppress(FileNotFoundError):
            paths = sorted(self._folder(key).iterdir(), reverse=True)
        for path in paths:  # those that NFS keeps while they are open (.nfs..) come last
            with suppress(FileNotFoundError), path.open("rb") as file:
                about, holder = os.fstat(file.fileno()), decoded(file.read(), self._lease)
                state = (path.name, about.st_mtime_ns, about.st_ctime_ns)
                refreshed = datetime.fromtimestamp(about.st_mtime, UTC)
                return SeenClaim(Claim(key, path.name), holder, state, refreshed)
        return None

    def keys(self) -> set[str]:
        """Return the keys that have a claim, perhaps an expired one."""
        folder = self._disk.root / "locks"
        names = (path.name for path in folder.iterdir()) if folder.is_dir() else ()
        return {name for name in names if is_key(name)}

    def take(self, key: str, holder: Holder, expired: SeenClaim | None) -> Claim | None:
        """Claim a key, in place of a claim that has expired; None if another process was faster.

        Raises StoreError if a process of an earlier version of maskpolicy has locked the key.
        """
        self._check_former(key)
        claim = Claim(key, uuid4().hex)
        new = self._disk.folder("locks") / f"{key}-{claim.token}"
        path = self._path(claim)
        try:
            if expired is not None:
                self.end(expired.claim)
            with suppress(OSError):  # SMB cannot rename a folder to an empty one
                path.parent.rmdir()
            new.mkdir()
            (new / claim.token).write_bytes(holder.encoded())
            new.rename(path.parent)
        except OSError as error:
            if path.exists():  # the rename succeeded, and only the server's answer was lost
                return claim
            shutil.rmtree(new, ignore_errors=True)
            if error.errno in _TAKEN:
                return None
            raise
        return claim

    def holds(self, claim: Claim) -> bool:
        """Return whether a claim is still there, and refresh it."""
        try:
            os.utime(self._path(claim))
        except FileNotFoundError:
            return False
        return True

    def refresh(self, claim: Claim) -> None:
        """Set the modification time of a claim to now, if it is still there."""
        self.holds(claim)

    def end(self, claim: Claim) -> None:
        """Remove a claim, and its folder unless that has the next claim already."""
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
