"""Remove from a bucket what no command will need, and old copies from its cache."""

from __future__ import annotations

import json
import shutil
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta

from maskpolicy.store import upkeep
from maskpolicy.store.bucket import TRIALS, Entry
from maskpolicy.store.bucket_files import GRACE
from maskpolicy.store.bucket_store import IN_USE, USED, BucketStore
from maskpolicy.store.claims import KEY_LENGTH, is_key

_FOLDERS = ("quarantine", "dropped", "failed", "deaths", "progress", "claims", "checkpoints")


def prune_bucket(store: BucketStore, older: float | None = None) -> None:
    """Remove from a bucket what `pruning.prune` removes from a folder.

    `older` are days since the commit, or since the last record of a run that used the artifact.
    Files that no manifest lists are removed a day after they were written.
    """
    now = store.bucket.now()
    since = None if older is None else now - timedelta(days=older)
    if since is not None:
        there = store.bucket.entries("artifacts")
        recent = [_key(entry) for entry in there if entry.modified >= since]
        # a run that goes on records its use twice a day
        recent += _used(store, min(since, now - timedelta(days=1)))
        for key in upkeep.unused(store.committed(), store.records(), recent):
            store.drop(key)
    for folder in _FOLDERS:
        found: dict[str, list[Entry]] = defaultdict(list)
        for entry in store.bucket.entries(folder):
            found[_key(entry)].append(entry)
        for key in filter(is_key, found):
            _prune(store, folder, key, found[key], since)
    records = store.records(dropped=False, afresh=True)
    listed = {each["sha256"] for known in records for each in known["files"]}
    # manifests are listed first: a file that a later commit lists is younger, or is written again
    written = [*store.bucket.entries("blobs"), *store.bucket.entries(TRIALS)]
    old = [each.name for each in written if each.modified < now - GRACE]
    store.bucket.delete(name for name in old if name.rpartition("/")[2] not in listed)


def _used(store: BucketStore, since: datetime) -> list[str]:
    """Return the keys that runs have used since `since`, and remove older records of use."""
    records = store.bucket.entries(USED)
    recent = [entry.name for entry in records if entry.modified >= since]
    store.bucket.delete(entry.name for entry in records if entry.modified < since)
    keys: list[str] = []
    for name in recent:
        with suppress(ValueError):  # not written by maskpolicy
            listed = json.loads(store.bucket.read(name) or b"")
            keys += [key for key in listed if isinstance(key, str)]
    return keys


def prune_cache(store: BucketStore, most: int) -> None:
    """Remove copies, the least recently used first, until the cache has at most so many bytes.

    Copies that were used within an hour, or that a stage reads now, stay. Single files, manifests
    and what dead processes left are removed in any case.
    """
    for name in ("files", "quarantine", "manifests"):
        shutil.rmtree(store.root / name, ignore_errors=True)
    store.sweep()
    size = upkeep.folder_size(store.root)
    for used, key in sorted((upkeep.used(store.path(key)), key) for key in store.copies()):
        if size <= most or time.time() - used < IN_USE:
            break
        of_copy = upkeep.folder_size(store.path(key))
        if store.evict(key):
            size -= of_copy


def _prune(
    store: BucketStore, folder: str, key: str, found: Iterable[Entry], since: datetime | None
) -> None:
    """Remove the objects of a key that no command will need, unless a process holds the key."""
    names = [entry.name for entry in found]
    is_committed = store.has(key)
    if folder == "quarantine" or (folder in ("dropped", "failed", "deaths") and is_committed):
        store.bucket.delete(names)
    if folder not in ("progress", "claims", "checkpoints"):
        return
    with store.try_lock(key) as is_mine:  # this ends the claims of dead processes
        if is_mine and folder == "progress":
            store.bucket.delete(names)
        is_old = since is not None and all(entry.modified < since for entry in found)
        if is_mine and folder == "checkpoints":
            checkpoints = store.checkpoints(key)
            if is_committed or is_old or not checkpoints.steps():
                checkpoints.clear()
    if is_mine and folder == "claims":  # heartbeats that came too late
        left = [entry.name for entry in store.bucket.entries(f"claims/{key}")]
        store.bucket.delete(left if not any(name.endswith(".json") for name in left) else ())


def _key(entry: Entry) -> str:
    return entry.name.partition("/")[2][:KEY_LENGTH]
