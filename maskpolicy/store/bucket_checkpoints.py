"""Checkpoints in a bucket and its cache, so that any machine can resume from them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from maskpolicy.errors import ClaimLost
from maskpolicy.store import manifest
from maskpolicy.store.bucket import Bucket
from maskpolicy.store.bucket_files import BucketFiles
from maskpolicy.store.checkpoints import Checkpoints, folder_name
from maskpolicy.store.key_writer import KeyWriter

_SUFFIX = ".json"


class BucketCheckpoints(Checkpoints):
    """The checkpoints of one key, in the cache and in the bucket."""

    def __init__(self, writer: KeyWriter, bucket: Bucket, names: Callable[[], list[str]]) -> None:
        """Take the key's writer and the bucket; `names()` lists the key's checkpoints there."""
        super().__init__(writer)
        self._bucket = bucket
        self._prefix = f"checkpoints/{writer.key}"
        self._files = BucketFiles(bucket, f"{self._prefix}/files")
        self._names = names

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint here or in the bucket, in ascending order."""
        return sorted({*super().steps(), *self._there()})

    def save(self, step: int, write: Callable[[Path], None]) -> None:
        """Commit the files that `write` puts into a folder, here and then in the bucket."""
        super().save(step, write)
        folder = self._folder / folder_name(step)
        sealed = manifest.parse(folder / manifest.NAME)
        self._files.upload(folder, sealed["files"])
        self._writer.check()
        self._bucket.write(self._object(step), manifest.encode(sealed))
        try:
            self._writer.check()
        except ClaimLost:  # the stage may be committed by now: nobody would remove this object
            self._bucket.delete([self._object(step)])
            raise
        self._sweep()

    def clear(self) -> None:
        """Remove all checkpoints."""
        super().clear()
        names = self._names()
        self._bucket.delete([name for name in names if _step(name) is not None])
        self._bucket.delete(names)

    def _there(self) -> list[int]:
        return [step for name in self._names() if (step := _step(name)) is not None]

    def _fetch(self, step: int) -> None:
        folder = self._folder / folder_name(step)
        content = None if folder.exists() else self._bucket.read(self._object(step))
        if content is None:
            return
        place = f"{self._bucket.url}/{self._object(step)}"
        known = manifest.decode(content, place, key=self._key, step=step)
        with self._writer.temporary(ours=True) as temporary:
            self._files.download(temporary, known["files"])
            manifest.write_json(temporary / manifest.NAME, known)
            self._disk.folder("checkpoints", self._key)
            self._writer.place(temporary, folder)

    def _quarantine(self, step: int) -> None:
        """Move the copy to quarantine/, or if there is none, delete the one in the bucket."""
        if (self._folder / folder_name(step)).exists():
            super()._quarantine(step)
        else:
            self._bucket.delete([self._object(step)])

    def _remove(self, step: int) -> None:
        super()._remove(step)
        self._bucket.delete([self._object(step)])

    def _sweep(self) -> None:
        """Delete the files that no checkpoint in the bucket lists."""
        names = self._names()
        kept = set()
        for name in names:
            if _step(name) is not None and (content := self._bucket.read(name)) is not None:
                with suppress(manifest.Damaged):  # which `latest` does not use
                    files = manifest.decode(content, name)["files"]
                    kept |= {self._files.name(entry["sha256"]) for entry in files}
        self._bucket.delete([n for n in names if _step(n) is None and n not in kept])

    def _object(self, step: int) -> str:
        return f"{self._prefix}/{folder_name(step)}{_SUFFIX}"


def _step(name: str) -> int | None:
    """Return the step of a checkpoint's manifest; None for other objects."""
    stem = name.rpartition("/")[2].removesuffix(_SUFFIX)
    return int(stem) if name.endswith(_SUFFIX) and stem.isdecimal() else None
