"""Checkpoints from which an interrupted stage resumes; they are committed like artifacts."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from maskpolicy.files import sha256
from maskpolicy.store import manifest
from maskpolicy.store.disk import Disk

KEPT = 2
_log = logging.getLogger(__name__)


class Checkpoints:
    """The checkpoints of one key. Only the holder of the key's lock may use them."""

    def __init__(self, disk: Disk, key: str) -> None:
        """Start the clock of this attempt at the stage."""
        self._disk = disk
        self._key = key
        self._folder = disk.root / "checkpoints" / key
        self._started = time.monotonic()
        self._before = 0.0

    @property
    def seconds(self) -> float:
        """Seconds spent on the stage: in this attempt, and before the resumed checkpoint."""
        return self._before + time.monotonic() - self._started

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, in ascending order, without verifying them."""
        if not self._folder.is_dir():
            return []
        return sorted(int(path.name) for path in self._folder.iterdir() if path.name.isdecimal())

    def save(self, step: int, write: Callable[[Path], None]) -> None:
        """Commit the files that `write` puts into a folder, and keep the two newest checkpoints.

        A checkpoint of the same step is replaced. Raises StoreError when the disk is full.
        """
        folder = self._disk.folder("checkpoints", self._key)
        temporary = self._disk.temporary(self._key)
        try:
            with self._disk.explained(ours=False):
                write(temporary)
            with self._disk.explained():
                manifest.seal(temporary, {"key": self._key, "step": step, "seconds": self.seconds})
                self._remove(step)
                self._disk.place(temporary, folder / _name(step))
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        for old in self.steps()[:-KEPT]:
            self._remove(old)

    def latest(self) -> tuple[int, Path] | None:
        """Return step and folder of the newest checkpoint that matches its manifest, or None.

        A damaged checkpoint goes to quarantine, and the one before it is tried.
        """
        for step in reversed(self.steps()):
            path = self._folder / _name(step)
            try:
                with self._disk.explained():
                    found = manifest.read(path, key=self._key, step=step)
                    manifest.verify(path, found, sha256)
            except manifest.Damaged as damage:
                _log.warning("a checkpoint is damaged, falling back: %s", damage)
                self._disk.quarantine(path, f"{self._key}-{step}")
                continue
            self._before = found["seconds"]
            return step, path
        return None

    def clear(self) -> None:
        """Remove all checkpoints."""
        if self._folder.is_dir():
            self._disk.discard(self._key, self._folder)

    def _remove(self, step: int) -> None:
        if (self._folder / _name(step)).exists():
            self._disk.discard(self._key, self._folder / _name(step))


def _name(step: int) -> str:
    return f"{step:012d}"
