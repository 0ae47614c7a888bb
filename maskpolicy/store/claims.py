"""Claims on keys: leases with heartbeats, so that only one process of all hosts computes a stage.

The holder of a key refreshes its claim. Another process may take the key over when it has seen no
refresh for the duration of the claim's lease, by its own monotonic clock; or at once if it runs on
the same machine and the holder is dead. A holder that was stopped for that long finds its claim
gone.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeVar

from maskpolicy.errors import ClaimLost, StoreError
from maskpolicy.store.disk import Disk
from maskpolicy.store.holders import Holder, this_process

_log = logging.getLogger(__name__)
KEY_LENGTH = 64
LEASE = 90.0
"""Seconds. It must be longer than 60 s, for which an NFS client may answer from its cache, and than
calls into libraries that hold Python's global lock and so delay refreshes."""
_REFRESHES = 6  # in the duration of a lease
_PAUSES = 0.02, 1.0  # seconds between two attempts, at first and at most
T = TypeVar("T")
U = TypeVar("U")


def is_key(name: str) -> bool:
    """Return whether a name is a sha256 in hexadecimal digits."""
    return len(name) == KEY_LENGTH and set(name) <= set("0123456789abcdef")


def check_key(name: str) -> None:
    """Raise StoreError for a name that is not a key.

    Keys are also read from files that others wrote: `../..` must not lead out of the store.
    """
    if not is_key(name):
        raise StoreError(f"{name!r} is not a key of the store: those have 64 hexadecimal digits")


@dataclass(frozen=True)
class Claim:
    """One claim on a key, with a random token, which no other claim has."""

    key: str
    token: str
    number: int = 1  # in a bucket: how many claims on the key there were, this one included


@dataclass(frozen=True)
class SeenClaim:
    """A claim as it was read; each refresh changes its `state`."""

    claim: Claim
    holder: Holder
    state: Hashable
    refreshed: datetime  # by the clock of the disk or bucket, for people only


class Claims(Protocol):
    """How claims are stored: in a folder that hosts share, or in a bucket.

    Methods raise OSError or StoreError if the folder or bucket cannot be used.
    """

    place: str  # the folder or URL, for messages

    def each(self, call: Callable[[T], U], items: Sequence[T]) -> list[U]:
        """Return call(item) for each item; several at a time if that is faster."""

    def read(self, key: str) -> SeenClaim | None:
        """Return the claim on a key, or None; writes nothing."""

    def keys(self) -> set[str]:
        """Return the keys that have a claim, perhaps an expired one; reads one list of names."""

    def take(self, key: str, holder: Holder, expired: SeenClaim | None) -> Claim | None:
        """Claim a key, in place of a claim that has expired; None if another process was faster."""

    def holds(self, claim: Claim) -> bool:
        """Return whether a claim is still there, and no other process has taken it over."""

    def refresh(self, claim: Claim) -> None:
        """Refresh a claim, if it is still there."""

    def end(self, claim: Claim) -> None:
        """Remove a claim and no other one, if it is still there."""


class Locks:
    """The claims of one store: those that this process holds, and those of others."""

    def __init__(self, disk: Disk, claims: Claims, lease: float = LEASE) -> None:
        """Start without a claim; `lease` (seconds) is that of the claims of this process."""
        self._disk = disk
        self._claims = claims
        self._lease = lease
        self._held: dict[str, Claim] = {}
        self._former: dict[str, Holder] = {}  # from whom held keys were taken over
        self._seen: dict[str, tuple[Hashable, float]] = {}  # last state, and when it was new
        self._idle = threading.Event()
        self._changing = threading.Lock()  # of `_held`
        self._is_logged = False

    @contextmanager
    def hold(self, key: str, wait: bool) -> Iterator[bool]:
        """Hold a key and yield True; yield False if it is taken and `wait` is False.

        A process that holds the key can enter again; raises ClaimLost if it has lost the key.
        """
        check_key(key)
        if key in self._held:
            self.check(key)
            yield True
            return
        pause, longest = _PAUSES
        while not (is_mine := self._try(key)) and wait:
            time.sleep(random.uniform(0.5, 1) * pause)
            pause = min(1.5 * pause, longest)
        if not is_mine:
            yield False
            return
        try:
            yield True
        finally:
            self._release(key)

    @contextmanager
    def hold_all(self, keys: Iterable[str]) -> Iterator[bool]:
        """Hold several keys and yield True; yield False at once if one of them is taken.

        No process waits for a key while it holds some of the others, so there is no deadlock.
        """
        wanted = sorted(set(keys) - self._held.keys())
        try:
            is_free = not any(self._claims.each(self.is_busy, wanted))
            yield is_free and all(self._claims.each(self._try, wanted))
        finally:
            self._claims.each(self._release, [key for key in wanted if key in self._held])

    def former(self, key: str) -> Holder | None:
        """Return the process from which this one took over a key that it holds, or None."""
        return self._former.get(key)

    def check(self, key: str) -> None:
        """Raise ClaimLost if another process has taken over a key that this one claimed."""
        if key not in self._held:
            raise StoreError(f"store {self._claims.place}: {key} is not held: take its lock first")
        with self._disk.explained():
            if not self._claims.holds(self._held[key]):
                raise ClaimLost(
                    f"store {self._claims.place}: another process has taken over {key[:12]}, "
                    f"because this one did not refresh its claim for {self._lease:g} s: run the "
                    "command again"
                )

    def check_all(self) -> None:
        """Raise ClaimLost if another process has taken over any key that this one claimed."""
        for key in tuple(self._held):
            self.check(key)

    def is_holding(self) -> bool:
        """Return whether this process holds any key."""
        return bool(self._held)

    def is_busy(self, key: str) -> bool:
        """Return whether another process holds a key; writes nothing."""
        return key not in self._held and self.holder(key) is not None

    def holder(self, key: str) -> Holder | None:
        """Return who holds a key, perhaps this process, or None; writes nothing."""
        check_key(key)
        with self._disk.explained():
            found = self._read(key)
        return None if found is None or self._has_expired(found) else found.holder

    def last_refresh(self, key: str) -> datetime | None:
        """Return when the claim on a key was last refreshed, by the clock of the disk or bucket."""
        with self._disk.explained():
            found = self._claims.read(key)
        return None if found is None else found.refreshed

    def claimed(self) -> set[str]:
        """Return the keys that have a claim, perhaps an expired one; see `holder`."""
        with self._disk.explained():
            return self._claims.keys()

    def _try(self, key: str) -> bool:
        with self._disk.explained():
            found = self._read(key)
            if found is not None and not self._has_expired(found):
                return False
            claim = self._claims.take(key, this_process(self._lease), found)
        if claim is None:
            return False
        self._seen.pop(key, None)
        if found is not None:
            self._former[key] = found.holder
        with self._changing:
            self._held[key] = claim
            if len(self._held) == 1:
                self._idle = threading.Event()
                refreshing = threading.Thread(
                    target=self._refresh_all, args=(self._idle,), daemon=True
                )
                refreshing.start()
        self._clean(key)
        return True

    def _clean(self, key: str) -> None:
        """Move away the folders of an earlier holder, which may still run: see `KeyWriter`."""
        try:
            leftovers = self._disk.leftovers(key)
            if leftovers:
                self.check(key)  # so that none of them belongs to a later holder
            for path in leftovers:
                self._disk.sweep(key, path)
        except BaseException:
            self._release(key)
            raise

    def _release(self, key: str) -> None:
        with self._changing:
            claim = self._held.pop(key)
            if not self._held:
                self._idle.set()
        self._former.pop(key, None)
        with suppress(OSError, StoreError):  # a claim that cannot be removed expires
            self._claims.end(claim)

    def _refresh_all(self, idle: threading.Event) -> None:
        """Refresh the claims of this process, in a thread, until it holds none."""
        while not idle.wait(self._lease / _REFRESHES):
            self._claims.each(self._refresh, tuple(self._held.values()))

    def _refresh(self, claim: Claim) -> None:
        try:
            if self._held.get(claim.key) == claim:  # it may have been released meanwhile
                self._claims.refresh(claim)
        except (OSError, StoreError):
            pass  # the next refresh may succeed, and each commit checks the claim
        except Exception:  # noqa: BLE001 - without this thread all claims would expire
            if not self._is_logged:
                _log.exception("a claim could not be refreshed, and will be tried again")
            self._is_logged = True

    def _read(self, key: str) -> SeenClaim | None:
        """Return the claim on a key, and remember when this process first saw its state."""
        found = self._claims.read(key)
        if found is None:
            self._seen.pop(key, None)
        elif self._seen.get(key, (None, 0.0))[0] != found.state:
            self._seen[key] = found.state, time.monotonic()
        return found

    def _has_expired(self, found: SeenClaim) -> bool:
        silent = time.monotonic() - self._seen[found.claim.key][1]
        return silent >= found.holder.lease or found.holder.is_dead()
