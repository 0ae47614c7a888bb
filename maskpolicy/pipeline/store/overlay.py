"""A store that cannot be written, read through a temporary one that can."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from maskpolicy.core.errors import StoreError
from maskpolicy.core.types import Json
from maskpolicy.pipeline.store import manifest
from maskpolicy.pipeline.store.artifacts import Artifact, Store
from maskpolicy.pipeline.store.bucket import now

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

        The log names it. An artifact below is linked to where stages look for what they read.
        """
        artifact = super().get(key)
        if artifact is not None:
            return replace(artifact, path=artifact.path.resolve())
        try:
            artifact = self._base.read(key)
        except manifest.Damaged as damage:
            _log.warning("an artifact is damaged, and left out: %s", damage)
            return None
        if artifact is not None:
            self.path(key).parent.mkdir(exist_ok=True)
            with suppress(FileExistsError):
                self.path(key).symlink_to(artifact.path.absolute(), target_is_directory=True)
        return artifact

    def has(self, key: str) -> bool:
        """Return whether either store has an artifact."""
        return super().has(key) or self._base.has(key)

    def committed(self) -> set[str]:
        """Return the keys of all artifacts of both stores."""
        return super().committed() | self._base.committed()

    def records(self, dropped: bool = True) -> list[Json]:
        """Return the manifests of all artifacts of both stores, each key once."""
        both = (*self._base.records(dropped), *super().records(dropped))
        return list({sealed["key"]: sealed for sealed in both}.values())

    def peek(self, key: str) -> Json | None:
        """Return the manifest of either store, or None."""
        return super().peek(key) or self._base.peek(key)

    def file(self, key: str, name: str) -> Path | None:
        """Return one file of an artifact of either store, or None."""
        path = super().file(key, name) if super().has(key) else None
        return path or self._base.file(key, name)

    def recall(self, key: str) -> Json | None:
        """Return a manifest of either store, perhaps of a dropped artifact, or None."""
        return super().recall(key) or self._base.recall(key)


def writable(store: Store) -> Store:
    """Return the store, or an overlay if its folder or bucket cannot be written.

    A log line says so.
    """
    if store.mirror is None:
        can_write = not store.root.is_dir() or os.access(store.root, os.W_OK)
    else:
        try:
            can_write = bool(now(store.mirror.bucket))
        except StoreError:
            can_write = False
    if can_write:
        return store
    _log.info("store %s cannot be written: what is computed is not kept", store.place)
    return Overlay(store)
