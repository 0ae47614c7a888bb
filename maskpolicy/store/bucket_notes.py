"""Notes that processes leave for each other in a bucket: an object for each key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress

from maskpolicy.errors import StoreError
from maskpolicy.store.bucket import Bucket
from maskpolicy.store.claims import check_key, is_key
from maskpolicy.store.notes import Notes
from maskpolicy.types import Json

_SUFFIX = ".json"


class BucketNotes(Notes):
    """One kind of notes, below one prefix; errors of the bucket are ignored."""

    def __init__(self, bucket: Bucket, name: str) -> None:
        """Take the prefix."""
        self._bucket = bucket
        self._name = name

    def keys(self) -> set[str]:
        """Return the keys that have a note."""
        names = (entry.name.rpartition("/")[2] for entry in self._bucket.entries(self._name))
        return {key for name in names if is_key(key := name.removesuffix(_SUFFIX))}

    def read(self, key: str) -> dict[str, Json] | None:
        """Return a key's note, or None if there is no readable one."""
        try:
            found = json.loads(self._bucket.read(self._object(key)) or b"")
        except (StoreError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def write(self, key: str, note: Mapping[str, Json]) -> None:
        """Write or replace a key's note."""
        with suppress(StoreError):
            self._bucket.write(self._object(key), json.dumps(note).encode())

    def remove(self, key: str) -> None:
        """Remove a key's note, if there is one."""
        with suppress(StoreError):
            self._bucket.delete([self._object(key)])

    def _object(self, key: str) -> str:
        check_key(key)
        return f"{self._name}/{key}{_SUFFIX}"
