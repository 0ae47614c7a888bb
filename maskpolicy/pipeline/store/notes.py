"""Notes by key, small JSON files for other processes: failures and progress of stages, digests.

No result depends on them. A note that is lost or late costs time, or a line on the screen.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from maskpolicy.core.errors import StoreError
from maskpolicy.core.types import Json
from maskpolicy.pipeline.store.disk import Disk
from maskpolicy.pipeline.store.key_locks import check_key, is_key

_SUFFIX = ".json"


class Notes:
    """One kind of notes: a file for each key, in a sub-folder of the store."""

    def __init__(self, disk: Disk, name: str) -> None:
        """Take the sub-folder's name; the first note creates it."""
        self._disk = disk
        self._name = name

    def keys(self) -> set[str]:
        """Return the keys that have a note."""
        folder = self._disk.root / self._name
        names = (path.name.removesuffix(_SUFFIX) for path in _files(folder))
        return {name for name in names if is_key(name)}

    def read(self, key: str) -> dict[str, Json] | None:
        """Return a key's note, or None if there is no readable one."""
        try:
            found = json.loads(self._path(key).read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None

    def write(self, key: str, note: Mapping[str, Json]) -> None:
        """Write or replace a key's note atomically; an error of the disk keeps the old one."""
        path = self._path(key)
        with suppress(StoreError), self._disk.explained():
            part = self._disk.folder(self._name) / f".{key}.{uuid4().hex[:12]}"
            try:
                part.write_text(json.dumps(note), encoding="utf-8")
                part.replace(path)
            finally:
                part.unlink(missing_ok=True)

    def remove(self, key: str) -> None:
        """Remove a key's note, if there is one."""
        path = self._path(key)
        if path.exists():
            with suppress(OSError):
                path.unlink()

    def _path(self, key: str) -> Path:
        check_key(key)
        return self._disk.root / self._name / f"{key}{_SUFFIX}"


def _files(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.suffix == _SUFFIX]
    except OSError:
        return []
