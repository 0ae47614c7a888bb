"""The copy of a store in a bucket: read where the folder lacks something, written on commit.

maskpolicy.json          the format of the bucket
blobs/sha256/DI/DIGEST   the files of all artifacts, each once
artifacts/KEY.json       the manifest of an artifact; creating it is the commit
checkpoints/KEY/STEP.json, checkpoints/KEY/files/DI/DIGEST   checkpoints of an unfinished stage
dropped/KEY.json         the manifest of an artifact that was removed after use
quarantine/KEY-*.json    the manifest of an artifact with damaged files
used/DIGEST.json         the keys that a run uses, written at each use
trials/                  objects that test the bucket, or show the time of its clock

Files are written before the manifest that lists them. So a killed process leaves at most files that
no manifest lists; the next process uses them, or `store prune` removes them.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import compress
from pathlib import Path
from uuid import uuid4

from maskpolicy.core.errors import StoreError
from maskpolicy.core.files import sync
from maskpolicy.core.keys import digest
from maskpolicy.core.types import Json
from maskpolicy.pipeline.store import manifest
from maskpolicy.pipeline.store.bucket import Bucket, Entry, in_parallel, prepare

BLOBS = "blobs/sha256"
USED = "used"
RECORDED = timedelta(hours=12)  # until the use of the same keys is recorded again
_FRESH = 3.0  # seconds until a listing is made again
_ATTEMPTS = 2  # to fetch a file that arrives damaged


class Mirror:
    """The artifacts and checkpoints of one bucket. Answers may be up to 3 seconds old."""

    def __init__(self, bucket: Bucket, is_prepared: bool = False) -> None:
        """Use a bucket; the first push prepares it, unless `is_prepared`."""
        self.bucket = bucket
        self._manifests: dict[tuple[str, datetime], Json] = {}
        self._listed: dict[str, tuple[float, dict[str, Entry]]] = {}
        self._is_prepared = is_prepared

    def committed(self, folder: str = "artifacts", afresh: bool = False) -> set[str]:
        """Return the keys of artifacts, or of dropped ones; with `afresh`, from a new listing."""
        return {_key(name) for name in self._listing(folder, afresh)}

    def manifests(self, keys: Iterable[str], folder: str = "artifacts") -> dict[str, Json]:
        """Return by key the manifests of these keys that exist and can be read."""
        listed = self._listing(folder)
        wanted = [entry for key in keys if (entry := listed.get(f"{folder}/{key}.json"))]

        def read(entry: Entry) -> None:
            with suppress(manifest.Damaged):
                parsed = self._decode(entry.name, self.bucket.read(entry.name))
                self._manifests[entry.name, entry.modified] = parsed

        known = self._manifests
        in_parallel(read, [each for each in wanted if (each.name, each.modified) not in known])
        found = {_key(each.name): known.get((each.name, each.modified)) for each in wanted}
        return {key: parsed for key, parsed in found.items() if parsed is not None}

    def prepare(self) -> None:
        """Test once that the bucket can be written; raises StoreError."""
        if not self._is_prepared:
            prepare(self.bucket)
            self._is_prepared = True

    def push(self, key: str, folder: Path, sealed: Json) -> Json | None:
        """Commit a sealed folder, or return the manifest of an artifact that exists already."""
        self.prepare()
        name, content = f"artifacts/{key}.json", manifest.encode(sealed)
        written = self._upload(BLOBS, folder, sealed["files"])
        while not self.bucket.write(name, content, new=True):
            if (earlier := self.bucket.read(name)) is None:  # it was dropped meanwhile
                continue
            try:
                return self._decode(name, earlier, key=key)
            except manifest.Damaged:
                self.withdraw(key, _quarantined(key))
        self._listed.pop("artifacts", None)
        # another process may have pruned files that were there before, when no manifest listed them
        self._upload(BLOBS, folder, [each for each in sealed["files"] if each not in written])
        return None

    def pull(self, key: str, folder: Path, withdraws: bool) -> Json | None:
        """Write the files of an artifact into a folder, and return its manifest; None if absent.

        Raises manifest.Damaged; `withdraws` says whether it moves a damaged artifact before.
        """
        name = f"artifacts/{key}.json"
        content = self.bucket.read(name)
        if content is None:
            self._listed.pop("artifacts", None)
            return None
        try:
            sealed = self._decode(name, content, key=key)
            manifest.compare_key(sealed, f"{self.bucket.url}/{name}", whole=False)
            self._download(BLOBS, folder, sealed)
        except manifest.Damaged:
            if withdraws:
                with suppress(StoreError):  # the bucket may be read-only
                    content = self.withdraw(key, _quarantined(key))
                    damaged = self._damaged(manifest.decode(content, key)["files"])
                    self.bucket.delete(_blob(BLOBS, each["sha256"]) for each in damaged)
            raise
        return sealed

    def damage(self, key: str) -> str | None:
        """Read all files of an artifact in the bucket; return a text about damage, or None."""
        name = f"artifacts/{key}.json"
        if (content := self.bucket.read(name)) is None:  # another machine has just removed it
            return None
        try:
            sealed = self._decode(name, content, key=key)
            manifest.compare_key(sealed, f"{self.bucket.url}/{name}")
        except manifest.Damaged as damage:
            return str(damage)
        names = ", ".join(sorted(entry["path"] for entry in self._damaged(sealed["files"])))
        return f"{self.bucket.url}/{name} does not match {names}" if names else None

    def withdraw(self, key: str, target: str) -> bytes:
        """Move a manifest from artifacts/ to the object `target`, and return its content."""
        name = f"artifacts/{key}.json"
        content = self.bucket.read(name)
        if content is not None:  # None: another machine has just removed it
            self.bucket.write(target, content)
            self.bucket.delete([name])
        self._listed.clear()
        return content or b""

    def record_use(self, keys: Iterable[str]) -> None:
        """Record that a run uses the artifacts of these keys, at most once in half a day."""
        listed = sorted(keys)
        name = f"{USED}/{digest(listed)}.json"
        with suppress(StoreError):  # the bucket may be read-only
            there = [entry for entry in self.bucket.entries(USED) if entry.name == name]
            if not there or there[0].modified < datetime.now(UTC) - RECORDED:
                self.bucket.write(name, json.dumps(listed).encode())

    def steps(self, key: str) -> list[int]:
        """Return the steps that have a checkpoint in the bucket."""
        listed = (name for name in self._listing("checkpoints") if f"/{key}/" in name)
        steps = (_key(name) for name in listed if name.endswith(".json"))
        return [int(step) for step in steps if step.isdecimal()]

    def push_checkpoint(self, key: str, step: str, folder: Path, sealed: Json) -> None:
        """Write a checkpoint."""
        prefix = f"checkpoints/{key}"
        self._upload(f"{prefix}/files", folder, sealed["files"])
        self.bucket.write(f"{prefix}/{step}.json", manifest.encode(sealed))
        self._listed.pop("checkpoints", None)

    def pull_checkpoint(self, key: str, step: str, folder: Path) -> None:
        """Write a checkpoint into a folder; raises manifest.Damaged."""
        prefix = f"checkpoints/{key}"
        sealed = self._decode(
            f"{prefix}/{step}.json", self.bucket.read(f"{prefix}/{step}.json"), key=key
        )
        self._download(f"{prefix}/files", folder, sealed)

    def remove_checkpoints(self, key: str, step: str = "") -> None:
        """Delete the checkpoint of a step, or all of a key's: manifests, then files of no other."""
        prefix = f"checkpoints/{key}"
        self._listed.pop("checkpoints", None)
        names = {entry.name for entry in self.bucket.entries(prefix)}
        manifests = {name for name in names if name.endswith(".json")}
        removed = {name for name in manifests if step in ("", _key(name))}
        self.bucket.delete(sorted(removed))
        listed: set[str] = set()
        for name in manifests - removed:
            with suppress(manifest.Damaged):  # nobody resumes from a damaged one
                files = self._decode(name, self.bucket.read(name))["files"]
                listed |= {_blob(f"{prefix}/files", each["sha256"]) for each in files}
        self.bucket.delete(sorted(names - manifests - listed))

    def _upload(self, prefix: str, folder: Path, files: Iterable[Json]) -> list[Json]:
        """Write the files of a folder that the bucket lacks, and return their entries."""

        def upload(entry: Json) -> bool:
            return self.bucket.upload(folder / entry["path"], _blob(prefix, entry["sha256"]))

        wanted = list({entry["sha256"]: entry for entry in files}.values())
        return list(compress(wanted, in_parallel(upload, wanted)))

    def _download(self, prefix: str, folder: Path, sealed: Json) -> None:
        """Write files and their manifest into a folder; raises manifest.Damaged."""

        def download(entry: Json) -> None:
            path = folder / entry["path"]
            path.parent.mkdir(parents=True, exist_ok=True)
            self.fetch(entry["sha256"], path, prefix)

        in_parallel(download, list(sealed["files"]))
        for inner in (path for path in folder.rglob("*") if path.is_dir()):
            sync(inner)
        manifest.write_json(folder / manifest.NAME, sealed)
        sync(folder)

    def fetch(self, sha256: str, path: Path, prefix: str = BLOBS) -> None:
        """Write one file of an artifact to a path; raises manifest.Damaged."""
        name = _blob(prefix, sha256)
        if not any(self.bucket.download(name, path) == sha256 for _ in range(_ATTEMPTS)):
            raise manifest.Damaged(f"{self.bucket.url}/{name} is missing or damaged")

    def _damaged(self, files: Iterable[Json]) -> list[Json]:
        """Read the objects of all files; return the entries of missing and damaged ones."""

        def is_damaged(entry: Json) -> bool:
            arrived = self.bucket.download(_blob(BLOBS, entry["sha256"]), None)
            return arrived != entry["sha256"]

        wanted = list(files)
        return list(compress(wanted, in_parallel(is_damaged, wanted)))

    def _decode(self, name: str, content: bytes | None, **expected: Json) -> Json:
        return manifest.decode(content or b"", f"{self.bucket.url}/{name}", **expected)

    def _listing(self, prefix: str, afresh: bool = False) -> dict[str, Entry]:
        """Return the objects below a prefix by name: as of the last 3 s, or of now (`afresh`)."""
        now = time.monotonic()
        since, listed = self._listed.get(prefix, (-math.inf, {}))
        if afresh or now - since > _FRESH:
            listed = {entry.name: entry for entry in self.bucket.entries(prefix)}
            self._listed[prefix] = now, listed
        return listed


def _blob(prefix: str, sha256: str) -> str:
    return f"{prefix}/{sha256[:2]}/{sha256}"


def _quarantined(key: str) -> str:
    return f"quarantine/{key}-{uuid4().hex[:12]}.json"


def _key(name: str) -> str:
    return name.rpartition("/")[2].removesuffix(".json")
