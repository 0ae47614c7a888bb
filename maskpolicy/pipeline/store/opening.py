"""Open the store that a command names: a folder, or the URL of a bucket."""

from __future__ import annotations

import os
import re
from pathlib import Path

from maskpolicy.core.errors import StoreError
from maskpolicy.core.files import slug
from maskpolicy.pipeline.store.artifacts import Store

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")  # two letters at least: C:// is a folder

_HALF_URL = re.compile(r"(s3|gs|az|file|memory):/?(?!/)")


def is_url(place: str | Path) -> bool:
    """Return whether a store's place is a URL; all else is a folder."""
    return isinstance(place, str) and _URL.match(place) is not None


def open_store(place: str | Path, cache: str | Path | None = None) -> Store:
    """Return the store at a place: a folder, or the URL of a bucket.

    `cache` is the folder for copies of what lies in buckets; each bucket has a sub-folder of it.
    By default it is in the user's cache. Raises StoreError, before any work, for a bucket that
    cannot be read and for a cache that cannot be written.
    """
    if not isinstance(place, str) or not is_url(place):
        if isinstance(place, str) and (found := _HALF_URL.match(place)):
            rest = place[found.end() :].lstrip("/")
            raise StoreError(f"store {place}: write {found[1]}://{rest} for a bucket")
        return Store(place)
    from maskpolicy.pipeline.store.bucket import open_bucket
    from maskpolicy.pipeline.store.mirror import Mirror

    bucket = open_bucket(place.rstrip("/"))
    folder = (Path(cache) if cache else default_cache()) / slug(place.rstrip("/"))
    return Store(_created(folder), Mirror(bucket), "--cache")


def default_cache() -> Path:
    """Return the folder of the user's cache for copies of what lies in buckets."""
    home = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(home) if home else Path.home() / ".cache") / "maskpolicy"
    except RuntimeError as error:
        raise StoreError(
            f"cache: {error}: name a folder for copies with --cache or $MASKPOLICY_CACHE"
        ) from error


def _created(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "CACHEDIR.TAG").write_text(_TAG)
    except OSError as error:
        raise StoreError(
            f"cache {folder}: cannot be written: {error.strerror}; name another folder with "
            "--cache or $MASKPOLICY_CACHE"
        ) from error
    return folder


_TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# maskpolicy: copies of what a bucket holds\n"
