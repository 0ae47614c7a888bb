"""The part of a store by which a process holds keys, and sees which keys others hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime

from maskpolicy.store.claims import Locks
from maskpolicy.store.holders import Holder


class HeldKeys:
    """Keys that processes hold: one process at a time computes, changes or removes an artifact."""

    _locks: Locks

    @contextmanager
    def lock(self, key: str) -> Iterator[bool]:
        """Wait until the key is free, and hold it; a process that holds the key can enter again."""
        with self._locks.hold(key, wait=True) as is_mine:
            yield is_mine

    @contextmanager
    def try_lock(self, key: str) -> Iterator[bool]:
        """Hold the key if it is free; yields whether this process holds it."""
        with self._locks.hold(key, wait=False) as is_mine:
            yield is_mine

    @contextmanager
    def try_lock_all(self, keys: Iterable[str]) -> Iterator[bool]:
        """Hold all of these keys if all are free; yields whether this process holds them."""
        with self._locks.hold_all(keys) as are_mine:
            yield are_mine

    def check_claim(self, key: str) -> None:
        """Raise ClaimLost if another process has taken over the key that this one holds."""
        self._locks.check(key)

    def is_busy(self, key: str) -> bool:
        """Return whether another process holds the key; writes nothing."""
        return self._locks.is_busy(key)

    def holder(self, key: str) -> Holder | None:
        """Return the process that holds the key, perhaps this one, or None; writes nothing."""
        return self._locks.holder(key)

    def former_holder(self, key: str) -> Holder | None:
        """Return the holder from whom this process took over a key that it holds, or None."""
        return self._locks.former(key)

    def last_refresh(self, key: str) -> datetime | None:
        """Return when the claim on a key was last refreshed, by the clock of the disk or bucket."""
        return self._locks.last_refresh(key)

    def claimed(self) -> set[str]:
        """Return the keys that have a claim, perhaps an expired one; `holder` checks that."""
        return self._locks.claimed()
