"""A store that cannot be written, read through a temporary one that can."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from maskpolicy.store import manifest
from maskpolicy.store.artifacts import Artifact, Store
from maskpolicy.store.bucket_store import BucketStore
from maskpolicy.types import Json

_log = logging.getLogger(__name__)


class Overlay(Store):
    """A store in a temporary folder, which is removed at the end, over another one."""

    def __init__(self, base: Store) -> None:
        """Take the store that is read where this one lacks an artifact."""
        self._folder = TemporaryDirectory()
        super().__init__(self._folder.name)
        self._base = base

    @property
    def place(self) -> str:
        """The place of the store below, which users know."""
        return self._base.place

    def get(self, key: str) -> Artifact | None:
        """Return the verified artifact of either store, or None; a damaged one below stays there.

        The log names it.
        """
        found = super().get(key)
        if found is not None:
            return replace(found, path=found.path.resolve())
        try:
            found = self._base.read(key)
        except manifest.Damaged as damage:
            _log.warning("an artifact is damaged, and left out: %s", damage)
            return None
        if found is not None:
            self._link(found)
        return found

    def _link(self, lower: Artifact) -> None:
        """Link an artifact of the store below to where stages look for what they read."""
        place = self.path(lower.key)
        place.parent.mkdir(exist_ok=True)
        with suppress(FileExistsError):
            place.symlink_to(lower.path.absolute(), target_is_directory=True)

    def has(self, key: str) -> bool:
        """Return whether either store has an artifact."""
        return super().has(key) or self._base.has(key)

    def committed(self) -> set[str]:
        """Return the keys of all artifacts of both stores."""
        return super().committed() | self._base.committed()

    def records(self, dropped: bool = True) -> list[Json]:
        """Return the manifests of all artifacts of both stores, each key once."""
        found = {known["key"]: known for known in self._base.records(dropped)}
        found |= {known["key"]: known for known in super().records(dropped)}
        return list(found.values())

    def read(self, key: str) -> Artifact | None:
        """Return the verified artifact of either store, or None; raises manifest.Damaged."""
        return super().read(key) or self._base.read(key)

    def peek(self, key: str) -> Json | None:
        """Return the manifest of either store, or None."""
        return super().peek(key) or self._base.peek(key)

    def file(self, key: str, name: str) -> Path | None:
        """Return one file of an artifact of either store, or None."""
        found = super().file(key, name) if super().has(key) else None
        return found or self._base.file(key, name)

    def recall(self, key: str) -> Json | None:
        """Return a manifest of either store, perhaps of a dropped artifact, or None."""
        return super().recall(key) or self._base.recall(key)


def writable(store: Store) -> Store:
    """Return the store, or an overlay if its folder or bucket cannot be written.

    A log line says so.
    """
    if isinstance(store, BucketStore):
        can_write = store.bucket.is_writable()
    else:
        can_write = not store.root.is_dir() or os.access(store.root, os.W_OK)
    if can_write:
        return store
    _log.info("store %s cannot be written: what is computed is not kept", store.place)
    return Overlay(store)
