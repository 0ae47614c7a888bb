"""Checkpoints: an interrupted stage resumes from the newest; they are committed like artifacts."""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from maskpolicy.core.errors import StoreError
from maskpolicy.core.files import sha256
from maskpolicy.pipeline.store import manifest
from maskpolicy.pipeline.store.disk import Disk
from maskpolicy.pipeline.store.mirror import Mirror

_KEPT = 2
_CROSSED = {errno.EEXIST, errno.ENOTEMPTY, errno.ENOENT}  # errors when two hosts save one step
_log = logging.getLogger(__name__)


class Checkpoints:
    """The checkpoints of one key; only the process that computes its stage changes them.

    If the store has a bucket, they are saved there too, so that any machine can resume.
    """

    def __init__(self, disk: Disk, key: str, mirror: Mirror | None) -> None:
        """Start the clock of this attempt."""
        self._disk = disk
        self._key = key
        self._mirror = mirror
        self._folder = disk.root / "checkpoints" / key
        self._started = time.monotonic()
        self._before = 0.0

    @property
    def seconds(self) -> float:
        """Seconds spent on the stage, including those before the resumed checkpoint."""
        return self._before + time.monotonic() - self._started

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, in ascending order; verifies nothing."""
        names: list[str] = []
        with suppress(FileNotFoundError, NotADirectoryError):  # another process may remove it
            names = [path.name for path in self._folder.iterdir()]
        there = self._mirror.steps(self._key) if self._mirror else []
        return sorted({*there, *(int(name) for name in names if name.isdecimal())})

    def save(self, step: int, write: Callable[[Path], None]) -> None:
        """Commit the files that `write` puts into a folder, and keep the two newest checkpoints.

        A checkpoint of the same step is replaced. Raises StoreError if the disk is full.
        """
        with self._disk.temporary(self._key) as temporary:
            write(temporary)
            with self._disk.explained():
                about = {"key": self._key, "step": step, "seconds": self.seconds}
                sealed = manifest.seal(temporary, about)
            if step in self.steps():
                self.clear(folder_name(step))
            if self._mirror:
                self._mirror.push_checkpoint(self._key, folder_name(step), temporary, sealed)
            self._place(temporary, step)
        for old in self.steps()[:-_KEPT]:
            self.clear(folder_name(old))

    def latest(self) -> tuple[int, Path] | None:
        """Return step and folder of the newest checkpoint that matches its manifest, or None.

        A damaged checkpoint is moved to quarantine/; the bucket's is tried, then the one before it.
        """
        while steps := self.steps():
            step = steps[-1]
            path = self._folder / folder_name(step)
            is_here = path.exists()
            try:
                if self._mirror and not is_here:
                    with self._disk.temporary(self._key, ours=True) as temporary:
                        self._mirror.pull_checkpoint(self._key, path.name, temporary)
                        self._place(temporary, step)
                with self._disk.explained():
                    sealed = manifest.read(path, key=self._key, step=step)
                    manifest.verify(path, sealed, sha256)
            except manifest.Damaged as damage:
                _log.warning("a checkpoint is damaged, another one is tried: %s", damage)
                self._disk.quarantine(path, f"{self._key}-{step}")
                if not is_here:
                    self.clear(path.name)
                continue
            self._before = sealed["seconds"]
            return step, path
        return None

    def clear(self, name: str = "") -> None:
        """Remove the checkpoint with the folder of this name, or all checkpoints."""
        if (self._folder / name).exists():
            self._disk.discard(self._key, self._folder / name)
        if self._mirror:
            self._mirror.remove_checkpoints(self._key, name)

    def _place(self, temporary: Path, step: int) -> None:
        """Rename a finished folder to a step's, unless another host has saved the step."""
        target = self._disk.folder("checkpoints", self._key) / folder_name(step)
        try:
            self._disk.place(temporary, target)
        except StoreError as error:
            if getattr(error.__cause__, "errno", None) not in _CROSSED:
                raise


def folder_name(step: int) -> str:
    """Return the name of a checkpoint's folder."""
    return f"{step:012d}"
