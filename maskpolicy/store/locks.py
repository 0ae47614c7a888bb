"""One file lock for each key: two processes never work on the same stage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from filelock import FileLock, Timeout

from maskpolicy.errors import StoreError
from maskpolicy.store.disk import Disk

KEY_LENGTH = 64


def is_key(name: str) -> bool:
    """Return whether a name is a sha256 in hexadecimal digits."""
    return len(name) == KEY_LENGTH and set(name) <= set("0123456789abcdef")


def check_key(name: str) -> None:
    """Raise StoreError for a name that is not a key.

    Keys are also read from files that others wrote: `../..` must not lead out of the store.
    """
    if not is_key(name):
        raise StoreError(f"{name!r} is not a key of the store: those have 64 hexadecimal digits")


class Locks:
    """The locks of one store; the operating system releases those of a dead process."""

    def __init__(self, disk: Disk) -> None:
        """Start without a lock."""
        self._disk = disk
        self._held: dict[str, FileLock] = {}

    @contextmanager
    def hold(self, key: str, wait: bool) -> Iterator[bool]:
        """Hold a key's lock and yield True; yield False if it is taken and `wait` is False.

        The holder of a lock can take it again.
        """
        check_key(key)
        held = self._held.get(key)
        lock = FileLock(self._disk.folder("locks") / f"{key}.lock") if held is None else held
        if not self._acquire(lock, wait):
            yield False
            return
        if held is None:
            self._held[key] = lock
        try:
            yield True
        finally:
            lock.release()
            if held is None:
                del self._held[key]

    def is_busy(self, key: str) -> bool:
        """Return whether another process holds a key's lock; creates no lock file."""
        if key in self._held or not (self._disk.root / "locks" / f"{key}.lock").exists():
            return False
        with self.hold(key, wait=False) as mine:
            return not mine

    def _acquire(self, lock: FileLock, wait: bool) -> bool:
        with self._disk.explained():
            try:
                lock.acquire(blocking=wait)
            except Timeout:
                return False
        return True
