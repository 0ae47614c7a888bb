"""Changes of a store by the holder of a key; a process that has lost the key changes nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from maskpolicy.errors import ClaimLost, StoreError
from maskpolicy.store.claims import Locks
from maskpolicy.store.disk import Disk


class KeyWriter:
    """The changes that the holder of one key may make.

    Each is a check of the claim, and then a rename from or to a temporary folder of that key. A
    holder may be stopped between the two and lose the key. Its rename then fails, because the first
    thing that the next holder does is to move these folders away.
    """

    def __init__(self, disk: Disk, locks: Locks, key: str) -> None:
        """Take the key, which the process must hold before the first change."""
        self.disk = disk
        self.key = key
        self._locks = locks

    def check(self) -> None:
        """Raise ClaimLost if another process has taken over the key."""
        self._locks.check(self.key)

    @contextmanager
    def temporary(self, ours: bool = False) -> Iterator[Path]:
        """Yield a new folder, which is removed at the end unless it was renamed.

        The block runs in `Disk.explained(ours)`. If it fails and the process has lost a claim,
        ClaimLost is raised instead of the error.
        """
        self.check()
        folder = self.disk.temporary(self.key)
        try:
            with self.disk.explained(ours):
                yield folder
        except ClaimLost:
            raise
        except Exception as error:
            self._explain_loss(error)
            raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def place(self, source: Path, target: Path) -> None:
        """Rename a temporary folder, or an entry of it, to its final path."""
        self.check()
        self.disk.place(source, target)

    def discard(self, path: Path) -> None:
        """Remove a folder as a whole: it is renamed first, then deleted."""
        with self.temporary(ours=True) as folder:
            self.place(path, folder / path.name)

    def quarantine(self, path: Path, name: str) -> None:
        """Move a damaged folder or file to quarantine/, where a person can inspect it."""
        away = self.disk.folder("quarantine") / f"{name}-{uuid4().hex[:12]}"
        with self.temporary(ours=True) as folder:
            self.place(path, folder / path.name)
            self.place(folder / path.name, away)

    def _explain_loss(self, error: Exception) -> None:
        try:
            self._locks.check_all()
        except ClaimLost as lost:
            raise lost from error
        except StoreError:  # the claims cannot be read now: the first error is more helpful
            pass
