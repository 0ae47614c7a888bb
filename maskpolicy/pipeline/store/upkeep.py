"""Measure, prune and copy stores."""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from maskpolicy.core.errors import StoreError
from maskpolicy.core.types import Json
from maskpolicy.pipeline.store import manifest
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.pipeline.store.bucket import GRACE, TRIALS, now
from maskpolicy.pipeline.store.disk import KEY_LENGTH, is_key
from maskpolicy.pipeline.store.mirror import USED, Mirror

FOLDERS = (
    *("artifacts", "checkpoints", "dropped", "temporary", "quarantine", "locks", "in_use"),
    *("events", "hashes", "files"),
)
_DAY = 86_400  # seconds
_MONTH = 30 * _DAY
_IN_USE = 3600  # seconds since its last use for which the copy of an artifact stays


def size(store: Store) -> dict[str, int]:
    """Return the bytes in each sub-folder, or below each prefix of a bucket and in its cache.

    A file with links in several folders counts once.
    """
    seen: set[tuple[int, int]] = set()
    if store.mirror is None:
        return {name: _folder_size(store.root / name, seen) for name in FOLDERS}
    sizes: dict[str, int] = defaultdict(int)
    for entry in store.mirror.bucket.entries(""):
        sizes[entry.name.partition("/")[0]] += entry.size
    return {**sizes, "cache": _folder_size(store.root, seen)}


def prune(store: Store, older: float | None = None, cache: int | None = None) -> dict[str, int]:
    """Remove what no command will need, and return the bytes freed in each sub-folder.

    This removes quarantine/; temporary folders, locks and lists of dead processes; damaged
    checkpoints and those of stages that were committed, or dropped after use; manifests of dropped
    artifacts that were computed again; and digests of files that have changed. With `older`, it
    also removes artifacts and checkpoints if no run has used them, or anything computed from them,
    for so many days. It keeps what a running process needs. Local copies of a bucket may take
    `cache` bytes at most.
    """
    before = size(store)
    since = -math.inf if older is None else time.time() - older * _DAY
    with store.disk.explained():
        if store.mirror is not None:
            _prune_bucket(store, store.mirror, older)
        _prune_folder(store, since)  # first, because dropping needs a little room on the disk
        if store.mirror is None and older is not None:
            _prune_artifacts(store, since)
        if cache is not None:
            _prune_cache(store, cache)
    after = size(store)
    return {name: max(0, bytes_ - after.get(name, 0)) for name, bytes_ in before.items()}


def _prune_artifacts(store: Store, since: float) -> None:
    """Remove artifacts that no run has used since `since`, in seconds of the epoch."""
    there = store.committed()
    recent = [*store.in_use(), *(key for key in there if _used(store.path(key)) >= since)]
    for key in _unused(there, store.records(), recent):
        store.drop(key, makes_room=True)


def _prune_folder(store: Store, since: float) -> None:
    needed = store.in_use()
    for path in store.disk.entries("quarantine"):
        _delete(path)
    for name in ("checkpoints", "dropped", "temporary", "locks"):
        for path in store.disk.entries(name):
            key = path.name[:KEY_LENGTH]
            if name == "checkpoints" and key in needed and not store.has(key):
                continue  # of a running command, which may just wait for a machine
            with store.lock(key) as is_mine:  # its end removes the lock's file
                if is_mine:
                    _prune_key(store, key, name, path, -math.inf if key in needed else since)
    store.digests.prune()
    for name in ("in_use", "hashes"):
        for path in (store.root / name).glob(".*"):  # unfinished notes
            _delete(path, older=_DAY)
    for path in store.disk.entries("in_use"):  # of another host: no run takes a month
        if not store.is_busy(path.stem):
            _delete(path, older=_MONTH)


def _prune_key(store: Store, key: str, name: str, path: Path, since: float) -> None:
    is_committed = store.has(key)
    if name == "temporary":  # another host may still write to it
        _delete(path, older=_DAY)
    elif name == "dropped" and is_committed:
        _delete(path)
    elif name == "checkpoints" and path.exists():
        is_done = store.recall(key) is not None  # also if it was dropped
        if is_done or path.stat().st_mtime < since or store.checkpoints(key).latest() is None:
            store.disk.discard(key, path)  # those in a bucket stay: another machine may need them


def _prune_bucket(store: Store, mirror: Mirror, older: float | None) -> None:
    """Remove from a bucket what `prune` removes from a folder.

    `older` are days since the commit, or since a run last recorded that it uses the artifact. What
    a run has recorded within a day stays. Files that no manifest lists are removed a day after they
    were written.
    """
    bucket = mirror.bucket
    clock = now(bucket)
    since = None if older is None else clock - timedelta(days=older)
    oldest = clock - timedelta(days=max(1, older or 0))  # a run records its use twice a day
    records, used = bucket.entries(USED), set[str]()
    for entry in records:
        if entry.modified >= oldest:
            with suppress(ValueError):  # not written by maskpolicy
                listed = json.loads(bucket.read(entry.name) or b"")
                used.update(key for key in listed if isinstance(key, str))
    if since is not None:
        artifacts = bucket.entries("artifacts")
        recent = [Path(entry.name).stem for entry in artifacts if entry.modified >= since]
        bucket.delete(entry.name for entry in records if entry.modified < oldest)
        for key in _unused(store.committed(), store.records(), [*used, *recent]):
            store.drop(key)
    there = mirror.committed(afresh=True)
    bucket.delete(entry.name for entry in bucket.entries("quarantine"))
    dropped = [entry.name for entry in bucket.entries("dropped")]
    bucket.delete(name for name in dropped if Path(name).stem in there)
    written: dict[str, list[bool]] = defaultdict(list)
    for entry in bucket.entries("checkpoints"):
        written[entry.name.split("/")[1]].append(since is not None and entry.modified < since)
    for key, are_old in written.items():
        is_done = key in there or f"dropped/{key}.json" in dropped
        if is_key(key) and key not in used and (is_done or all(are_old) or not mirror.steps(key)):
            store.checkpoints(key).clear()
    listed_files = {
        file["sha256"] for sealed in mirror.manifests(there).values() for file in sealed["files"]
    }
    # listing manifests comes first: later commits list files that are younger or written again
    old = [
        entry.name
        for entry in (*bucket.entries("blobs"), *bucket.entries(TRIALS))
        if entry.modified < clock - GRACE
    ]
    bucket.delete(name for name in old if name.rpartition("/")[2] not in listed_files)


def _prune_cache(store: Store, most: int) -> None:
    """Remove the least recently used copies until the cache has at most so many bytes.

    Copies that were used within an hour, or that a running process may use, stay.
    """
    shutil.rmtree(store.root / "files", ignore_errors=True)
    needed, total = store.in_use(), _folder_size(store.root)
    copies = [path.name for path in store.disk.entries("artifacts")]
    for used, key in sorted((_used(store.path(key)), key) for key in copies):
        if total <= most or time.time() - used < _IN_USE:
            return
        if key not in needed:
            total -= _folder_size(store.path(key))
            store.forget(key)


def _folder_size(folder: Path, seen: set[tuple[int, int]] | None = None) -> int:
    """Return the bytes of all files in a folder; a file with several links counts once.

    Files in `seen` (device, inode) do not count; other files with several links are added to it.
    """
    total, seen = 0, set() if seen is None else seen
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # another process may remove it
                about = (Path(parent) / name).lstat()
                inode = about.st_dev, about.st_ino
                if inode not in seen:
                    total += about.st_size
                if about.st_nlink > 1:
                    seen.add(inode)
    return total


def _used(folder: Path) -> float:
    """Return the time of an artifact's last use in seconds of the epoch; 0 without a manifest."""
    try:
        return (folder / manifest.NAME).stat().st_mtime
    except OSError:  # another process may have removed the artifact
        return 0.0


def _unused(keys: Iterable[str], records: Iterable[Json], recent: Iterable[str]) -> list[str]:
    """Return the `keys` that are neither `recent` nor inputs of recent ones, at any depth.

    `records` are the manifests of all artifacts, including dropped ones.
    """
    inputs = {sealed["key"]: sealed["record"].get("inputs", {}).values() for sealed in records}
    kept: set[str] = set()
    waiting = list(recent)
    while waiting:
        key = waiting.pop()
        if key not in kept:
            kept.add(key)
            waiting.extend(inputs.get(key, ()))
    return sorted(set(keys) - kept)


def _delete(path: Path, older: float = -math.inf) -> None:
    """Remove a folder or file that is older than so many seconds, if it still exists."""
    with suppress(FileNotFoundError):
        if time.time() - path.lstat().st_mtime > older:
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()


@dataclass
class Copied:
    """The result of a copy, as keys of artifacts."""

    new: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)  # in the source
    missing: list[str] = field(default_factory=list)  # not in the source
    different: dict[str, list[str]] = field(default_factory=dict)  # the files that differ, by key
    by_gpu: dict[str, str] = field(default_factory=dict)  # the GPUs of those that may differ


def copy(
    source: Store,
    target: Store,
    keys: Collection[str] | None = None,
    track: Callable[[Sequence[str]], Iterable[str]] = iter,
) -> Copied:
    """Copy the artifacts of `keys` (default: all) that `target` lacks, with their manifests.

    Of artifacts that were dropped after use, only the manifests are copied. Each artifact is
    committed by itself, so a copy can be interrupted and repeated. If both stores have an artifact,
    the digests in its manifests are compared; if it lacks files in `target`, it is replaced.
    `source` is neither locked nor changed. `track` wraps the keys and may show progress. Raises
    StoreError if a store cannot be used.
    """
    if source.place == target.place:
        raise StoreError(f"store {source.place}: cannot be copied to itself: name two stores")
    there, done, noted = source.committed(), target.committed(), target.committed("dropped")
    wanted = sorted(there | source.committed("dropped") if keys is None else set(keys))
    copied = Copied()
    for key in track(wanted):
        cached = [each for each in (source, target) if each.mirror and not each.path(key).exists()]
        if key not in there:
            if (sealed := source.recall(key)) is None:
                copied.missing.append(key)
            elif key not in done | noted:  # it was dropped after use
                target.note_dropped(key, sealed)
        elif key in done and (two := target.peek(key)) is not None:
            one = source.peek(key)
            if one and (names := manifest.differences(one, two)):
                copied.different[key] = names
                if cards := manifest.gpus(one, two):
                    copied.by_gpu[key] = cards
        else:
            try:
                if (artifact := source.read(key)) is not None:
                    target.adopt(artifact)
                    copied.new.append(key)
            except manifest.Damaged:
                if source.has(key):  # otherwise it was dropped meanwhile
                    copied.damaged.append(key)
        for store in cached:
            if key not in store.in_use():
                store.forget(key)
    return copied
