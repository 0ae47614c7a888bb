"""The size of a store, and which of its artifacts no run has used recently."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from maskpolicy.store import manifest
from maskpolicy.store.claims import KEY_LENGTH, is_key
from maskpolicy.types import Json

FOLDERS = (
    *("artifacts", "checkpoints", "dropped", "temporary", "quarantine", "locks"),
    *("failed", "progress", "deaths", "in_use", "hashes", "verified"),
)


def entries(root: Path, name: str) -> list[Path]:
    """Return the entries of a sub-folder whose names begin with a key."""
    folder = root / name
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path for path in paths if is_key(path.name[:KEY_LENGTH])]


def record(root: Path, name: str, key: str) -> Json | None:
    """Return a key's manifest in a sub-folder; None if it is missing or damaged."""
    folder = root / name
    path = folder / f"{key}.json" if name == "dropped" else folder / key / manifest.NAME
    try:
        return manifest.parse(path)
    except (manifest.Damaged, OSError):
        return None


def size(root: Path) -> dict[str, int]:
    """Return the bytes in each sub-folder; a file that is linked into several counts once."""
    seen: set[tuple[int, int]] = set()
    return {name: folder_size(root / name, seen) for name in FOLDERS}


def folder_size(folder: Path, seen: set[tuple[int, int]] | None = None) -> int:
    """Return the bytes of all files in a folder; a file with several links counts once.

    Files in `seen` (device, inode) do not count; other files with several links are added to it.
    """
    total, seen = 0, set() if seen is None else seen
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # another process has removed it meanwhile
                about = (Path(parent) / name).lstat()
                inode = about.st_dev, about.st_ino
                if inode not in seen:
                    total += about.st_size
                if about.st_nlink > 1:
                    seen.add(inode)
    return total


def touch(folder: Path) -> None:
    """Record that an artifact was used now, if the store is writable."""
    with suppress(OSError):
        os.utime(folder / manifest.NAME)


def used(folder: Path) -> float:
    """Return when an artifact was used last, in seconds of the epoch; 0 without a manifest."""
    try:
        return (folder / manifest.NAME).stat().st_mtime
    except OSError:  # another process may have removed the artifact
        return 0.0


def unused(keys: Iterable[str], records: Iterable[Json], recent: Iterable[str]) -> list[str]:
    """Return those of `keys` that are neither in `recent` nor an input of those, at any depth.

    `records` are the manifests of all artifacts, dropped ones included.
    """
    inputs = {known["key"]: known["record"].get("inputs", {}).values() for known in records}
    kept: set[str] = set()
    waiting = list(recent)
    while waiting:
        key = waiting.pop()
        if key not in kept:
            kept.add(key)
            waiting.extend(inputs.get(key, ()))
    return sorted(set(keys) - kept)
