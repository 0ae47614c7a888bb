"""Claims on keys: one process at a time works on a stage, whatever hosts share the store.

The holder refreshes its claim. Another process takes the key once it has seen no refresh for as
long as the claim's lease, by its own monotonic clock, or at once if it runs on the same machine and
the holder is dead. A holder that was stopped for so long finds its claim gone.
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
"""Seconds. An NFS client may answer from its cache for 60 s, and a process may be kept from
refreshing by a long call that holds Python's lock."""
_REFRESHES = 6  # in each lease
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
    """One claim on a key; its token is random, so that no other claim is mistaken for it."""

    key: str
    token: str
    number: int = 1  # where claims on a key are counted


@dataclass(frozen=True)
class Seen:
    """A claim that was read; each refresh gives it another sight."""

    claim: Claim
    holder: Holder
    sight: Hashable
    heard: datetime  # when it was last refreshed, by the clock of the disk or bucket; for people


class Claims(Protocol):
    """Where claims lie: in a folder that hosts share, or in a bucket.

    Methods raise OSError or StoreError if it cannot be used.
    """

    place: str  # as messages name it

    def each(self, work: Callable[[T], U], items: Sequence[T]) -> list[U]:
        """Return work(item) for each item; several at a time where that is faster."""

    def look(self, key: str) -> Seen | None:
        """Return the claim on a key, or None; writes nothing."""

    def keys(self) -> set[str]:
        """Return the keys that have a claim, which may be over; reads one list of names."""

    def take(self, key: str, holder: Holder, over: Seen | None) -> Claim | None:
        """Claim a key in place of a claim that is over; None if another process was faster."""

    def holds(self, claim: Claim) -> bool:
        """Return whether a claim is still there, and no other one in its place."""

    def refresh(self, claim: Claim) -> None:
        """Show a sign of life, if the claim is still there."""

    def end(self, claim: Claim) -> None:
        """Remove a claim and no other one, if it is still there."""


class Locks:
    """The claims of one store that this process holds, and what it knows of others."""

    def __init__(self, disk: Disk, claims: Claims, lease: float = LEASE) -> None:
        """Start without a claim; `lease` is that of claims made here, others state their own."""
        self._disk = disk
        self._claims = claims
        self._lease = lease
        self._held: dict[str, Claim] = {}
        self._former: dict[str, Holder] = {}
        self._seen: dict[str, tuple[Hashable, float]] = {}
        self._idle = threading.Event()
        self._changing = threading.Lock()  # of what is held
        self._told = False

    @contextmanager
    def hold(self, key: str, wait: bool) -> Iterator[bool]:
        """Hold a key and yield True; yield False if it is taken and `wait` is False.

        The holder of a key can take it again. Raises ClaimLost if it no longer holds it.
        """
        check_key(key)
        if key in self._held:
            self.check(key)
            yield True
            return
        pause, longest = _PAUSES
        while not (mine := self._try(key)) and wait:
            time.sleep(random.uniform(0.5, 1) * pause)
            pause = min(1.5 * pause, longest)
        if not mine:
            yield False
            return
        try:
            yield True
        finally:
            self._release(key)

    @contextmanager
    def hold_all(self, keys: Iterable[str]) -> Iterator[bool]:
        """Hold several keys and yield True; yield False at once if one of them is taken.

        So no process waits for a key while it keeps others from those that it holds already.
        """
        wanted = sorted(set(keys) - self._held.keys())
        try:
            is_free = not any(self._claims.each(self.is_busy, wanted))
            yield is_free and all(self._claims.each(self._try, wanted))
        finally:
            self._claims.each(self._release, [key for key in wanted if key in self._held])

    def former(self, key: str) -> Holder | None:
        """Return who lost a key that this process holds: a dead process, or one without a sign."""
        return self._former.get(key)

    def check(self, key: str) -> None:
        """Raise ClaimLost if another process has taken over a key that this one claimed."""
        if key not in self._held:
            raise StoreError(f"store {self._claims.place}: {key} is not held: take its lock first")
        with self._disk.explained():
            if not self._claims.holds(self._held[key]):
                raise ClaimLost(
                    f"store {self._claims.place}: another process has taken over {key[:12]}, "
                    f"because this one gave no sign of life for {self._lease:g} s: run the command "
                    "again"
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
            found = self._look(key)
        return None if found is None or self._is_over(found) else found.holder

    def heard(self, key: str) -> datetime | None:
        """Return when the claim on a key was last refreshed, by the clock of the disk or bucket."""
        with self._disk.explained():
            found = self._claims.look(key)
        return None if found is None else found.heard

    def claimed(self) -> set[str]:
        """Return the keys that have a claim, which may be over; see `holder`."""
        with self._disk.explained():
            return self._claims.keys()

    def _try(self, key: str) -> bool:
        with self._disk.explained():
            found = self._look(key)
            if found is not None and not self._is_over(found):
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
                beating = threading.Thread(target=self._beat, args=(self._idle,), daemon=True)
                beating.start()
        self._clean(key)
        return True

    def _clean(self, key: str) -> None:
        """Move away what an earlier holder left: if it still runs, it can commit no more of it."""
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

    def _beat(self, idle: threading.Event) -> None:
        """Refresh the claims while there are any."""
        while not idle.wait(self._lease / _REFRESHES):
            self._claims.each(self._refresh, tuple(self._held.values()))

    def _refresh(self, claim: Claim) -> None:
        try:
            self._claims.refresh(claim)
        except (OSError, StoreError):
            pass  # the next time may succeed, and commits check
        except Exception:  # noqa: BLE001 - without this thread all claims would expire
            if not self._told:
                _log.exception("a claim could not be refreshed, and will be tried again")
            self._told = True

    def _look(self, key: str) -> Seen | None:
        """Return the claim on a key, and remember when it was last refreshed."""
        found = self._claims.look(key)
        if found is None:
            self._seen.pop(key, None)
        elif self._seen.get(key, (None, 0.0))[0] != found.sight:
            self._seen[key] = found.sight, time.monotonic()
        return found

    def _is_over(self, found: Seen) -> bool:
        silent = time.monotonic() - self._seen[found.claim.key][1]
        return silent >= found.holder.lease or found.holder.is_dead()
