"""What lies in a store, and the removal of what no command needs again."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from maskpolicy.locks import KEY_LENGTH, is_key

if TYPE_CHECKING:
    from maskpolicy.store import Store

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


def prune(store: Store) -> None:
    """Remove quarantine, and of each key that nobody holds what is of no more use."""
    for path in entries(store.root, "quarantine"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name in ("checkpoints", "dropped", "temporary", "locks"):
        for path in entries(store.root, name):
            key = path.name[:KEY_LENGTH]
            with store.try_lock(key) as mine:
                if mine:
                    _prune(store, key, name, path)


def _prune(store: Store, key: str, name: str, path: Path) -> None:
    is_committed = store.path(key).exists()
    if name == "temporary":
        shutil.rmtree(path, ignore_errors=True)
    elif name == "locks":
        path.unlink(missing_ok=True)  # filelock's waiters notice, and make a new one
    elif name == "dropped" and is_committed:
        path.unlink()
    elif name == "checkpoints":
        checkpoints = store.checkpoints(key)
        if is_committed or checkpoints.latest() is None:
            checkpoints.clear()
