"""Checkpoints of a stage under way, committed as artifacts are, so that a stage can resume."""

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
    """The checkpoints of one key; to be used by the holder of the key's lock."""

    def __init__(self, disk: Disk, key: str) -> None:
        """Start the clock of an attempt at the stage."""
        self._disk = disk
        self._key = key
        self._folder = disk.root / "checkpoints" / key
        self._started = time.monotonic()
        self._before = 0.0

    @property
    def seconds(self) -> float:
        """Seconds spent on the stage: this attempt, and earlier ones up to what was resumed."""
        return self._before + time.monotonic() - self._started

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, ascending, without looking into them."""
        if not self._folder.is_dir():
            return []
        return sorted(int(path.name) for path in self._folder.iterdir() if path.name.isdecimal())

    def save(self, step: int, write: Callable[[Path], None]) -> None:
        """Commit what `write` puts into the folder it is given; the two newest are kept.

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
        """Return step and folder of the newest checkpoint that its manifest verifies.

        What fails is quarantined, and the one before it is tried.
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
        """Remove all of them: the stage has committed."""
        if self._folder.is_dir():
            self._disk.discard(self._key, self._folder)

    def _remove(self, step: int) -> None:
        if (self._folder / _name(step)).exists():
            self._disk.discard(self._key, self._folder / _name(step))


def _name(step: int) -> str:
    return f"{step:012d}"
