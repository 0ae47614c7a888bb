"""Checkpoints, from which an interrupted stage resumes; they are committed like artifacts."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from maskpolicy.files import sha256
from maskpolicy.store import manifest
from maskpolicy.store.key_writer import KeyWriter

KEPT = 2
_log = logging.getLogger(__name__)


class Checkpoints:
    """The checkpoints of one key. Only the holder of the key may change them."""

    def __init__(self, writer: KeyWriter) -> None:
        """Take the writer of the key, and start the clock of this attempt."""
        self._writer = writer
        self._disk = writer.disk
        self._key = writer.key
        self._folder = self._disk.root / "checkpoints" / self._key
        self._started = time.monotonic()
        self._before = 0.0

    @property
    def seconds(self) -> float:
        """Seconds spent on the stage, those before the resumed checkpoint included."""
        return self._before + time.monotonic() - self._started

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, in ascending order; nothing is verified."""
        try:
            names = [path.name for path in self._folder.iterdir()]
        except (FileNotFoundError, NotADirectoryError):  # the holder may remove it at any time
            return []
        return sorted(int(name) for name in names if name.isdecimal())

    def save(self, step: int, write: Callable[[Path], None]) -> None:
        """Commit the files that `write` puts into a folder, and keep the two newest checkpoints.

        A checkpoint of the same step is replaced. Raises StoreError if the disk is full, and
        ClaimLost if another process has taken over the key.
        """
        with self._writer.temporary() as temporary:
            write(temporary)
            with self._disk.explained():
                manifest.seal(temporary, {"key": self._key, "step": step, "seconds": self.seconds})
            self._remove(step)
            target = self._disk.folder("checkpoints", self._key) / folder_name(step)
            self._writer.place(temporary, target)
        for old in self.steps()[:-KEPT]:
            self._remove(old)

    def latest(self) -> tuple[int, Path] | None:
        """Return step and folder of the newest checkpoint that matches its manifest, or None.

        A damaged checkpoint is moved to quarantine/, and the one before it is tried.
        """
        while steps := self.steps():
            step = steps[-1]
            path = self._folder / folder_name(step)
            try:
                self._fetch(step)
                with self._disk.explained():
                    found = manifest.read(path, key=self._key, step=step)
                    manifest.verify(path, found, sha256)
            except manifest.Damaged as damage:
                _log.warning("a checkpoint is damaged, falling back: %s", damage)
                self._quarantine(step)
                continue
            self._before = found["seconds"]
            return step, path
        return None

    def clear(self) -> None:
        """Remove all checkpoints."""
        if self._folder.is_dir():
            self._writer.discard(self._folder)

    def _fetch(self, step: int) -> None:
        """Fetch the files of a checkpoint if they are not on this disk; raises manifest.Damaged."""

    def _quarantine(self, step: int) -> None:
        """Move a damaged checkpoint to quarantine/."""
        self._writer.quarantine(self._folder / folder_name(step), f"{self._key}-{step}")

    def _remove(self, step: int) -> None:
        if (self._folder / folder_name(step)).exists():
            self._writer.discard(self._folder / folder_name(step))


def folder_name(step: int) -> str:
    """Return the name of a checkpoint's folder."""
    return f"{step:012d}"
