"""A store in a bucket: artifacts are committed to it, and read from copies on this machine.

maskpolicy.json          the format of the bucket
blobs/sha256/DI/DIGEST   the files of all artifacts, each once
artifacts/KEY.json       the manifest of an artifact; creating it is the commit
checkpoints/KEY/STEP.json, checkpoints/KEY/files/DI/DIGEST   checkpoints of an unfinished stage
dropped/KEY.json         the manifest of an artifact that was removed after use
quarantine/KEY-*.json    the manifest of an artifact with damaged files
claims/KEY/              the claim of the process that holds the key, see bucket_claims
failed/KEY.json, progress/KEY.json, deaths/KEY.json   as in a folder
used/DIGEST.json         the keys that a run uses; its time is that of the last use
trials/                  objects that test the bucket, or show the time of its clock

The cache is a folder with the layout of a store, and besides:
manifests/               copies of artifacts/ and dropped/
files/DIGEST/            single files of artifacts that are not needed as a whole
fetching/                downloads in progress, with their claims
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import shutil
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

from maskpolicy.errors import StoreError
from maskpolicy.files import sha256
from maskpolicy.keys import digest
from maskpolicy.store import manifest, upkeep
from maskpolicy.store.artifacts import Artifact, Store
from maskpolicy.store.bucket import Bucket, Entry, in_parallel
from maskpolicy.store.bucket_checkpoints import BucketCheckpoints
from maskpolicy.store.bucket_claims import BucketClaims
from maskpolicy.store.bucket_files import BucketFiles
from maskpolicy.store.bucket_notes import BucketNotes
from maskpolicy.store.checkpoints import Checkpoints
from maskpolicy.store.claims import KEY_LENGTH, LEASE, Locks, check_key
from maskpolicy.store.disk import Disk
from maskpolicy.store.folder_claims import FolderClaims
from maskpolicy.store.holders import Holder
from maskpolicy.store.key_writer import KeyWriter
from maskpolicy.types import Json

USED = "used"
_RECORDED = timedelta(hours=12)  # for which the record of a use is not written again
_PARSED = 50_000  # manifests in memory, unless more are needed at once
_FRESH = 3.0  # seconds for which a listing is used again while no key is held
IN_USE = 3600  # seconds since its last use for which a copy stays
_log = logging.getLogger(__name__)


class BucketStore(Store):
    """The artifacts of a bucket; `root` is the cache, a folder with copies of some of them.

    While this process holds a key, it reads the current state of the bucket. Otherwise answers may
    be up to 3 seconds old.
    """

    patience = 30.0  # each look lists what is committed

    def __init__(self, bucket: Bucket, cache: Path, lease: float = LEASE) -> None:
        """Take a bucket and the folder of its copies, which the first copy creates."""
        super().__init__(cache, lease, "--cache")
        self.bucket = bucket
        self._files = BucketFiles(bucket)
        self._locks = Locks(self._disk, BucketClaims(bucket, lease), lease)
        self.failures = BucketNotes(bucket, "failed")
        self.progress = BucketNotes(bucket, "progress")
        self.deaths = BucketNotes(bucket, "deaths")
        self._fetching = Disk(self.root / "fetching", "--cache")
        self._fetches = Locks(self._fetching, FolderClaims(self._fetching, lease), lease)
        self._parsed: dict[str, Json] = {}
        self._recorded: dict[str, float] = {}
        self._listed: dict[str, tuple[float, dict[str, Entry]]] = {}

    @property
    def place(self) -> str:
        """The bucket's URL."""
        return self.bucket.url

    def has(self, key: str) -> bool:
        """Return whether the bucket has an artifact of the key, perhaps a damaged one."""
        check_key(key)
        name = _name("artifacts", key)
        if self._locks.is_holding():
            return self.bucket.size(name) is not None
        return name in self._listing("artifacts")

    def committed(self) -> set[str]:
        """Return the keys of all artifacts; reads one new listing."""
        return {_key(name) for name in self._listing("artifacts", afresh=True)}

    def peek(self, key: str) -> Json | None:
        """Return the manifest of an artifact, or None; the files are not checked."""
        check_key(key)
        return self._record("artifacts", key)

    def verify(self, key: str) -> str | None:
        """Read all files of an artifact in the bucket, and return what is damaged, or None.

        Nothing is moved, and the cache is not used.
        """
        name = _name("artifacts", key)
        try:
            known = manifest.decode(self.bucket.read(name) or b"", f"{self.place}/{name}", key=key)
        except manifest.Damaged as damage:
            return str(damage)
        damaged = self._files.damaged(known["files"])
        names = ", ".join(entry["path"] for entry in damaged)
        return f"{self.place}/{name} does not match {names}" if damaged else None

    def prefetch(self, keys: Iterable[str]) -> None:
        """Read the manifests of these keys in parallel, and keep them in memory."""
        there = self._listing("artifacts")
        names = (_name("artifacts", key) for key in keys)
        self._known([there[name] for name in names if name in there])

    def record_use(self, keys: Iterable[str]) -> None:
        """Record that a run uses the artifacts of these keys, at most once in half a day."""
        listed = sorted(keys)
        name = f"{USED}/{digest(listed)}.json"
        if time.monotonic() - self._recorded.get(name, -math.inf) < _RECORDED.total_seconds():
            return
        self._recorded[name] = time.monotonic()
        with suppress(StoreError):  # of a bucket that may only be read
            found = self.bucket.entry(name)
            if found is None or found.modified < datetime.now(UTC) - _RECORDED:
                self.bucket.write(name, json.dumps(listed).encode())

    @contextmanager
    def using(self, keys: Iterable[str]) -> Iterator[None]:
        """Do nothing: in a bucket, `record_use` keeps artifacts from being pruned."""
        yield

    def file(self, key: str, name: str) -> Path | None:
        """Return the path of one file, or None; without a copy, that file alone is fetched."""
        known = self.peek(key)
        entries = () if known is None else known["files"]
        entry = next((entry for entry in entries if entry["path"] == name), None)
        if entry is None:
            return None
        if self.path(key).exists() and self.get(key) is not None:
            return self.path(key) / name
        return self._fetch_file(entry)

    def checkpoints(self, key: str) -> Checkpoints:
        """Return the checkpoints of a key; inside `write`, always the same object."""
        return self._under_way.get(key) or BucketCheckpoints(
            self._writer(key), self.bucket, lambda: self._names_below(f"checkpoints/{key}")
        )

    def is_busy(self, key: str) -> bool:
        """Return whether another process holds the key; writes nothing."""
        return bool(self._names_below(f"claims/{key}")) and super().is_busy(key)

    def holder(self, key: str) -> Holder | None:
        """Return the process that holds the key, perhaps this one, or None; writes nothing."""
        check_key(key)
        return super().holder(key) if self._names_below(f"claims/{key}") else None

    def size(self) -> dict[str, int]:
        """Return the bytes below each prefix of the bucket, and those of the cache."""
        sizes: dict[str, int] = {}
        for entry in self.bucket.entries(""):
            top = entry.name.partition("/")[0]
            sizes[top] = sizes.get(top, 0) + entry.size
        return {**sizes, "cache": upkeep.folder_size(self.root)}

    def _load(self, key: str) -> Artifact | None:
        """Return the copy of an artifact, which is fetched if it is missing.

        Raises manifest.Damaged if the artifact in the bucket is damaged.
        """
        known = self.peek(key)
        if known is None and not self.has(key):
            return None
        with suppress(manifest.Damaged):
            found = super()._load(key)
            if found is not None and known is not None and _is_copy(found, known):
                self.touch(key)
                return found
        with self._fetches.hold(key, wait=True):
            return self._fetch(key)

    def _fetch(self, key: str) -> Artifact | None:
        """Download an artifact, unless another process has just done so."""
        content = self.bucket.read(_name("artifacts", key))
        if content is None:
            return None
        known = manifest.decode(content, f"{self.place}/{_name('artifacts', key)}", key=key)
        try:
            found = super()._load(key)
            if found is not None and _is_copy(found, known):
                return found
        except manifest.Damaged as damage:
            _log.warning("a copy is damaged and is fetched again: %s", damage)
        writer = KeyWriter(self._fetching, self._fetches, key)
        with writer.temporary(ours=True) as folder:
            self._files.download(folder, known["files"])
            manifest.write_json(folder / manifest.NAME, known)
            self._forget(key)
            self._disk.folder("artifacts")
            writer.place(folder, self.path(key))
        self._artifact_digests.learn(key, known)
        return Artifact(key, self.path(key), known)

    def _fetch_file(self, entry: Json) -> Path:
        """Return the copy of one file, whose folder is named after its digest."""
        digest, name = str(entry["sha256"]), Path(entry["path"]).name
        path = self.root / "files" / digest / name
        writer = KeyWriter(self._fetching, self._fetches, digest)
        with self._fetches.hold(digest, wait=True):
            if not path.is_file() or sha256(path) != digest:
                with writer.temporary(ours=True) as folder:
                    self._files.download(folder, [{**entry, "path": name}])
                    self._disk.folder("files", digest)
                    writer.place(folder / name, path)
        return path

    def _publish(self, key: str, temporary: Path, sealed: Json) -> Json | None:
        """Commit a sealed folder, unless there is an artifact already; return its manifest then."""
        files = sealed["files"]
        written = self._files.upload(temporary, files)
        self._locks.check(key)
        while not self.bucket.create(_name("artifacts", key), manifest.encode(sealed)):
            earlier = self.peek(key)
            if earlier is not None:
                return earlier
            _log.warning("an artifact has a damaged manifest and is replaced: %s", key)
            self._quarantine(key)
            self._locks.check(key)
        self._listed.pop("artifacts", None)
        # files that were in the bucket before may have been pruned, as no manifest listed them
        self._files.upload(temporary, [entry for entry in files if entry not in written])
        with self._fetches.hold(key, wait=True):
            self._forget(key)
            self._keep(key, temporary, sealed)
        return None

    def _remove(self, key: str) -> None:
        """Remove an artifact, but keep its manifest; `store prune` removes its files.

        Another artifact that lists one of them may be committed at any time.
        """
        self._withdraw(key, _name("dropped", key))

    def _quarantine(self, key: str) -> None:
        """Move the manifest of a damaged artifact to quarantine/, and delete its damaged files."""
        content = self._withdraw(key, f"quarantine/{key}-{uuid4().hex[:12]}.json")
        with suppress(manifest.Damaged):
            files = manifest.decode(content, key)["files"]
            self._files.remove(entry["sha256"] for entry in self._files.damaged(files))

    def _withdraw(self, key: str, target: str) -> bytes:
        """Move a manifest out of artifacts/, and return its content."""
        name = _name("artifacts", key)
        content = self.bucket.read(name) or b""
        self.bucket.write(target, content)
        self.bucket.delete([name])
        self._listed.get("artifacts", (0.0, {}))[1].pop(name, None)
        self._listed.pop("dropped", None)
        with self._fetches.hold(key, wait=True):
            self._forget(key)
        return content

    def _forget(self, key: str) -> None:
        """Remove the copy of an artifact from the cache."""
        if self.path(key).exists():
            with self._artifact_digests.removing(key):
                KeyWriter(self._fetching, self._fetches, key).discard(self.path(key))

    def records(self, dropped: bool = True, afresh: bool = False) -> list[Json]:
        """Return the manifests of all artifacts, and of dropped ones unless `dropped` is False.

        With `afresh`, from new listings.
        """
        entries = [*self._listing("artifacts", afresh).values()]
        entries += self._listing("dropped", afresh).values() if dropped else ()
        return self._known(entries)

    @contextmanager
    def reading(self, keys: Iterable[str]) -> Iterator[None]:
        """Show that the copies of some artifacts are in use, for as long as the block runs."""
        listed, done = list(keys), threading.Event()

        def touch() -> None:
            while not done.wait(IN_USE / 4):
                for key in listed:
                    self.touch(key)

        threading.Thread(target=touch, daemon=True).start()
        try:
            yield
        finally:
            done.set()

    def copies(self) -> list[str]:
        """Return the keys of artifacts that have a copy in the cache."""
        return [path.name for path in upkeep.entries(self.root, "artifacts")]

    def evict(self, key: str) -> bool:
        """Remove a copy from the cache, unless another process is fetching it."""
        with self._fetches.hold(key, wait=False) as is_mine:
            if is_mine:
                self._forget(key)
            return is_mine

    def sweep(self) -> None:
        """Remove temporary folders of dead processes, and copies of checkpoints, from the cache.

        Those of a key that a process holds or fetches stay.
        """
        for path in upkeep.entries(self._fetching.root, "temporary"):
            with self._fetches.hold(path.name[:KEY_LENGTH], wait=False):
                pass  # claiming the key removes what earlier holders left
        for name in ("temporary", "checkpoints"):
            for path in upkeep.entries(self.root, name):
                with self.try_lock(path.name[:KEY_LENGTH]) as is_mine:
                    if is_mine and name == "checkpoints":
                        shutil.rmtree(path, ignore_errors=True)

    def _record(self, name: str, key: str) -> Json | None:
        """Return a key's manifest below a prefix, or None."""
        if self._locks.is_holding():
            with suppress(manifest.Damaged):
                return manifest.decode(self.bucket.read(_name(name, key)) or b"", name, key=key)
            return None
        entry = self._listing(name).get(_name(name, key))
        return next(iter(self._known([entry])), None) if entry else None

    def _known(self, entries: Iterable[Entry]) -> list[Json]:
        """Return the manifests of these objects, without those that are damaged or gone."""
        marks = {f"{_key(entry.name)}-{_short(entry)}": entry for entry in entries}
        new = [mark for mark in marks if mark not in self._parsed]
        if len(self._parsed) + len(new) > _PARSED:
            self._parsed.clear()
            new = list(marks)
        for mark, known in zip(
            new, in_parallel(lambda m: self._read(m, marks[m]), new), strict=True
        ):
            if known is not None:
                self._parsed[mark] = known
        return [self._parsed[mark] for mark in marks if mark in self._parsed]

    def _read(self, mark: str, entry: Entry) -> Json | None:
        """Return the manifest in an object, from the cache if there is a copy."""
        path = self.root / "manifests" / f"{mark}.json"
        with suppress(manifest.Damaged):
            return manifest.parse(path)
        with suppress(manifest.Damaged):
            known = manifest.decode(self.bucket.read(entry.name) or b"", entry.name)
            part = path.with_name(f".{path.name}.{uuid4().hex[:12]}")
            with suppress(OSError):  # without a copy it is read again
                path.parent.mkdir(exist_ok=True)
                part.write_bytes(manifest.encode(known))
                part.replace(path)
            return known
        return None

    def _names_below(self, prefix: str) -> list[str]:
        """Return the names of objects below a prefix, from a listing of its first folder."""
        if self._locks.is_holding():
            return [entry.name for entry in self.bucket.entries(prefix)]
        top = prefix.partition("/")[0]
        return [name for name in self._listing(top) if name.startswith(f"{prefix}/")]

    def _listing(self, prefix: str, afresh: bool = False) -> dict[str, Entry]:
        """Return the objects below a prefix by name; at most 3 s old, or new with `afresh`."""
        now = time.monotonic()
        since, known = self._listed.get(prefix, (0.0, {}))
        if afresh or prefix not in self._listed or now - since > _FRESH:
            known = {entry.name: entry for entry in self.bucket.entries(prefix)}
            self._listed[prefix] = now, known
        return known


def _is_copy(found: Artifact, known: Json) -> bool:
    """Return whether an artifact in the cache is the one that a manifest in the bucket lists."""
    return bool(found.manifest["sha256"] == known["sha256"])


def _name(folder: str, key: str) -> str:
    return f"{folder}/{key}.json"


def _key(name: str) -> str:
    return name.rpartition("/")[2].removesuffix(".json")


def _short(entry: Entry) -> str:
    return hashlib.sha256(f"{entry.name} {entry.tag}".encode()).hexdigest()[:16]
