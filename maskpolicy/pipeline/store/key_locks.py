"""Locks on keys: one process of a host at a time computes, changes or removes an artifact.

They are locks of the operating system (flock), which a dead process lets go. Two hosts whose file
system does not share them may compute one key at the same time; the first commit counts.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from filelock import FileLock, Timeout

from maskpolicy.core.errors import StoreError
from maskpolicy.pipeline.store.disk import Disk

KEY_LENGTH = 64
_MISSING = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}
_DENIED = {errno.EROFS, errno.EACCES, errno.EPERM}


def is_key(name: str) -> bool:
    """Return whether a name is a sha256 in hexadecimal digits."""
    return len(name) == KEY_LENGTH and set(name) <= set("0123456789abcdef")


def check_key(name: str) -> None:
    """Raise StoreError for a name that is not a key.

    Keys are also read from files that others wrote: `../..` must not lead out of the store.
    """
    if not is_key(name):
        raise StoreError(f"{name!r} is not a key of the store: those have 64 hexadecimal digits")


class KeyLocks:
    """The locks of one store: locks/KEY.lock, a file that exists while a process holds KEY."""

    def __init__(self, disk: Disk) -> None:
        """Take the store's disk; the first lock creates the folder."""
        self._disk = disk
        self._held: set[str] = set()

    @contextmanager
    def hold(self, key: str, wait: bool = False) -> Iterator[bool]:
        """Hold a key while the block runs; yields whether this process holds it.

        With `wait`, it first waits until the key is free. A process that holds the key can enter
        again. What dead processes of this host left of the key is removed. Where the file system
        has no locks, every process holds every key.
        """
        check_key(key)
        if key in self._held:
            yield True
            return
        path = self._disk.folder("locks") / f"{key}.lock"
        lock = FileLock(path, fallback_to_soft=False, thread_local=False)
        try:
            with self._disk.explained():
                lock.acquire(blocking=wait)
        except Timeout:
            yield False
            return
        except StoreError as error:
            if getattr(error.__cause__, "errno", None) not in _MISSING:
                raise
        self._held.add(key)
        try:
            for leftover in self._disk.leftovers(key) if lock.is_locked else ():
                self._disk.sweep(key, leftover)
            yield True
        finally:
            self._held.discard(key)
            if lock.is_locked:
                with suppress(OSError):
                    path.unlink(missing_ok=True)  # whoever waits for it makes a new one
                lock.release()

    def holds(self, key: str) -> bool:
        """Return whether this process holds the key."""
        return key in self._held

    def is_busy(self, key: str) -> bool:
        """Return whether another process of this host holds the key."""
        check_key(key)
        path = self._disk.root / "locks" / f"{key}.lock"
        if key in self._held or not path.exists():
            return False
        lock = FileLock(path, fallback_to_soft=False, thread_local=False)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            return True
        except OSError as error:
            if error.errno in _MISSING | _DENIED:
                return False
            raise
        lock.release()
        return False
