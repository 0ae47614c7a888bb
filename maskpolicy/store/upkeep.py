"""What lies in a store, and the removal of what no command needs again."""

from __future__ import annotations

import math
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from maskpolicy.store import manifest
from maskpolicy.store.locks import KEY_LENGTH, is_key

if TYPE_CHECKING:
    from maskpolicy.store.artifacts import Store

FOLDERS = ("artifacts", "checkpoints", "dropped", "temporary", "quarantine", "locks")


def entries(root: Path, name: str) -> list[Path]:
    """Return what the store itself made in a sub-folder: never a stranger's files."""
    folder = root / name
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path for path in paths if is_key(path.name[:KEY_LENGTH])]


def size(root: Path) -> dict[str, int]:
    """Return the bytes in each sub-folder."""
    return {
        name: sum(path.lstat().st_size for path in (root / name).rglob("*") if path.is_file())
        for name in FOLDERS
    }


def touch(folder: Path) -> None:
    """Note that an artifact was of use just now, where the store can be written."""
    with suppress(OSError):
        os.utime(folder / manifest.NAME)


def unused(root: Path, since: float) -> list[str]:
    """Return the keys of artifacts that were not of use since a time (of the epoch, in seconds).

    Of use is what a run made or found, and all that this was made from.
    """
    inputs: dict[str, list[str]] = {}
    for path in (*_manifests(root), *entries(root, "dropped")):
        with suppress(manifest.Damaged, OSError):
            known = manifest.parse(path)
            inputs[known["key"]] = list(known["record"].get("inputs", {}).values())
    kept: set[str] = set()
    waiting = [path.parent.name for path in _manifests(root) if path.stat().st_mtime >= since]
    while waiting:
        key = waiting.pop()
        if key not in kept:
            kept.add(key)
            waiting.extend(inputs.get(key, ()))
    return [path.name for path in entries(root, "artifacts") if path.name not in kept]


def _manifests(root: Path) -> list[Path]:
    paths = (path / manifest.NAME for path in entries(root, "artifacts"))
    return [path for path in paths if path.is_file()]


def prune(store: Store, since: float = -math.inf) -> None:
    """Remove quarantine, and of each key that nobody holds what is of no more use.

    That goes for artifacts, and checkpoints of stages under way, not touched since a time too.
    """
    for key in unused(store.root, since) if since > -math.inf else ():
        store.drop(key)
    for path in entries(store.root, "quarantine"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name in ("checkpoints", "dropped", "temporary", "locks"):
        for path in entries(store.root, name):
            key = path.name[:KEY_LENGTH]
            with store.try_lock(key) as mine:
                if mine:
                    _prune(store, key, name, path, since)


def _prune(store: Store, key: str, name: str, path: Path, since: float) -> None:
    is_committed = store.path(key).exists()
    if name == "temporary":
        shutil.rmtree(path, ignore_errors=True)
    elif name == "locks":
        path.unlink(missing_ok=True)  # filelock's waiters notice, and make a new one
    elif name == "dropped" and is_committed:
        path.unlink()
    elif name == "checkpoints":
        checkpoints = store.checkpoints(key)
        is_old = path.stat().st_mtime < since
        if is_committed or is_old or checkpoints.latest() is None:
            checkpoints.clear()
