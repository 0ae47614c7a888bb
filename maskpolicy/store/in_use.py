"""Which artifacts the runs of living processes need, so that pruning keeps them.

in_use/ID.json lists the keys of one run's stages. The process of the run holds the claim on ID.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from uuid import uuid4

from maskpolicy.errors import StoreError
from maskpolicy.store.claims import Locks
from maskpolicy.store.disk import Disk
from maskpolicy.store.notes import Notes


class InUse:
    """The lists of keys that runs in one folder need."""

    def __init__(self, disk: Disk, locks: Locks) -> None:
        """Take the disk and the claims of a store."""
        self._notes = Notes(disk, "in_use")
        self._locks = locks

    @contextmanager
    def listed(self, keys: Iterable[str]) -> Iterator[None]:
        """List these keys while the block runs; a store that cannot be written is left as it is."""
        run = uuid4().hex + uuid4().hex  # as long as a key, so that it can be claimed
        with ExitStack() as held:
            with suppress(StoreError):
                if held.enter_context(self._locks.hold(run, wait=False)):
                    held.callback(self._notes.remove, run)
                    self._notes.write(run, {"keys": sorted(set(keys))})
            yield

    def keys(self) -> set[str]:
        """Return the keys of all runs whose processes live, and remove the lists of others."""
        found: set[str] = set()
        for run in sorted(self._notes.keys()):
            with self._locks.hold(run, wait=False) as has_ended:
                if has_ended:
                    self._notes.remove(run)
                else:
                    found.update((self._notes.read(run) or {}).get("keys", ()))
        return found
