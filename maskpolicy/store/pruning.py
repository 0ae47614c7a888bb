"""Remove from a store what no command will need."""

from __future__ import annotations

import math
import shutil
import time
from contextlib import suppress
from pathlib import Path

from maskpolicy.store import upkeep
from maskpolicy.store.artifacts import Store
from maskpolicy.store.bucket_pruning import prune_bucket, prune_cache
from maskpolicy.store.bucket_store import BucketStore
from maskpolicy.store.claims import KEY_LENGTH
from maskpolicy.store.data_digests import DataDigests
from maskpolicy.store.disk import Disk

_DAY = 86_400  # seconds


def prune(store: Store, older: float | None = None, cache: int | None = None) -> dict[str, int]:
    """Remove what no command will need, and return the bytes freed in each sub-folder.

    Removed are quarantine/; temporary folders, claims and notes of dead processes; checkpoints that
    are damaged or whose stage is committed; manifests of dropped artifacts that were computed
    again; and digests of files that have changed. Artifacts and resumable checkpoints stay, unless
    no run has used them, or anything computed from them, for `older` days; what a running process
    needs stays in any case. Local copies of a
    bucket's artifacts are removed until they take at most `cache` bytes.
    """
    before = store.size()
    if isinstance(store, BucketStore):
        prune_bucket(store, older)
        if cache is not None:
            prune_cache(store, cache)
    else:
        since = -math.inf if older is None else time.time() - older * _DAY
        with Disk(store.root).explained():
            _prune_folder(store, since)
    after = store.size()
    return {name: max(0, size - after.get(name, 0)) for name, size in before.items()}


def _prune_folder(store: Store, since: float) -> None:
    """Prune a store in a folder; keys that a process holds are left alone.

    Artifacts and resumable checkpoints are removed if no run has used them since `since` (seconds
    of the epoch).
    """
    needed = store.in_use()
    if since > -math.inf:
        there = store.committed()
        recent = list(needed)
        recent += [key for key in there if upkeep.used(store.path(key)) >= since]
        for key in upkeep.unused(there, store.records(), recent):
            store.drop(key)
    for path in upkeep.entries(store.root, "quarantine"):
        _delete(path)
    for name in ("checkpoints", "dropped", "temporary", "progress", "failed", "deaths", "locks"):
        for path in upkeep.entries(store.root, name):
            key = path.name[:KEY_LENGTH]
            with store.try_lock(key) as is_mine:
                if is_mine:
                    _prune(store, key, name, path, -math.inf if key in needed else since)
    DataDigests(Disk(store.root)).prune()
    for name in ("failed", "progress", "deaths", "in_use", "verified"):
        for path in (store.root / name).glob(".*"):  # notes that were not written to the end
            with suppress(FileNotFoundError):
                if time.time() - path.lstat().st_mtime > _DAY:
                    path.unlink()
    for path in upkeep.entries(store.root, "verified"):
        if not store.path(path.name[:KEY_LENGTH]).exists():
            path.unlink(missing_ok=True)
    (store.root / "hashes.sqlite").unlink(missing_ok=True)  # of an earlier version


def _prune(store: Store, key: str, name: str, path: Path, since: float) -> None:
    is_committed = store.path(key).exists()
    useless = {
        "locks": path.name != key,  # KEY-TOKEN of a dead process; KEY is this one's
        "progress": True,
        "dropped": is_committed,
        "failed": is_committed,
        "deaths": is_committed,
    }
    if useless.get(name):
        _delete(path)
    elif name == "checkpoints" and path.exists():
        checkpoints = store.checkpoints(key)
        is_old = path.stat().st_mtime < since
        if is_committed or is_old or checkpoints.latest() is None:
            checkpoints.clear()


def _delete(path: Path) -> None:
    """Remove a folder or file, which another process may remove at the same time."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
