"""The files of artifacts and checkpoints in a bucket, each under its digest.

A file is written before the manifest that lists it. So a killed process leaves at most files that
no manifest lists. The next process finds them there, or `store prune` removes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from maskpolicy.files import sync
from maskpolicy.store import manifest
from maskpolicy.store.bucket import Bucket, in_parallel
from maskpolicy.types import Json

BLOBS = "blobs/sha256"
GRACE = timedelta(days=1)  # the longest time from a file's upload to that of its manifest
_ATTEMPTS = 2  # to fetch a file that arrives with another digest


class BucketFiles:
    """The files below one prefix of a bucket."""

    def __init__(self, bucket: Bucket, prefix: str = BLOBS) -> None:
        """Take the bucket and the prefix of the files' names."""
        self._bucket = bucket
        self._prefix = prefix

    def name(self, digest: str) -> str:
        """Return the name of the object that holds a file."""
        return f"{self._prefix}/{digest[:2]}/{digest}"

    def upload(self, folder: Path, entries: Iterable[Json]) -> list[Json]:
        """Write those files of a folder that the bucket lacks, and return their entries.

        An object of another size is damaged, and is replaced. So is an old one, because `store
        prune` might remove it before the manifest that lists it is written.
        """
        old = datetime.now(UTC) - GRACE / 2  # half a day: more than clocks of machines differ

        def upload(entry: Json) -> bool:
            name = self.name(entry["sha256"])
            found = self._bucket.entry(name)
            is_new = found is None or found.size != entry["size"] or found.modified < old
            if is_new:
                self._bucket.upload(folder / entry["path"], name)
            return is_new

        wanted = list({entry["sha256"]: entry for entry in entries}.values())
        written = in_parallel(upload, wanted)
        return [entry for entry, is_new in zip(wanted, written, strict=True) if is_new]

    def download(self, folder: Path, entries: Iterable[Json]) -> None:
        """Write files into a folder and verify them; raises manifest.Damaged, with the object."""

        def download(entry: Json) -> None:
            path = folder / entry["path"]
            path.parent.mkdir(parents=True, exist_ok=True)
            name = self.name(entry["sha256"])
            for _ in range(_ATTEMPTS):
                if self._bucket.download(name, path) == entry["sha256"]:
                    return
            raise manifest.Damaged(f"{self._bucket.url}/{name} is missing or damaged")

        wanted = list(entries)
        in_parallel(download, wanted)
        for each in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
            sync(each)

    def damaged(self, entries: Iterable[Json]) -> list[Json]:
        """Read all objects, and return the entries of those that are missing or damaged."""
        wanted = list(entries)
        found = in_parallel(lambda entry: self._bucket.digest(self.name(entry["sha256"])), wanted)
        return [
            each for each, digest in zip(wanted, found, strict=True) if digest != each["sha256"]
        ]

    def remove(self, digests: Iterable[str]) -> None:
        """Delete the files with these digests."""
        self._bucket.delete([self.name(digest) for digest in digests])
