"""Open the store that a command names: a folder, or the URL of a bucket."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from tempfile import TemporaryDirectory

from maskpolicy.core.errors import StoreError
from maskpolicy.core.files import slug, with_home
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.pipeline.store.bucket import MARKER, ReadOnly, now, open_bucket
from maskpolicy.pipeline.store.mirror import Mirror

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")  # two letters at least: C:// is a folder
_HALF_URL = re.compile(r"(s3|gs|az|file|memory):/?(?!/)")
_TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# maskpolicy: copies of what a bucket holds\n"
_log = logging.getLogger(__name__)


def is_url(place: str | Path) -> bool:
    """Return whether a store's place is a URL; all else is a folder."""
    return isinstance(place, str) and _URL.match(place) is not None


def stated_place() -> str | None:
    """Return the store that $MASKPOLICY_STORE names, or None."""
    return os.environ.get("MASKPOLICY_STORE") or None


def open_store(
    place: str | Path, cache: str | Path | None = None, *, is_known: bool = False
) -> Store:
    """Return the store at a place: a folder, or the URL of a bucket.

    `cache` is the folder for copies of buckets, with a sub-folder for each (default:
    $MASKPOLICY_CACHE, or one in the user's cache). Raises StoreError for a bucket that cannot be
    read, and for a cache that cannot be written. If another process of the run uses the place
    (`is_known`), an outage is waited for.
    """
    if not str(place).strip():
        raise StoreError(
            "store: its name is empty: name a folder or a URL, or leave the option out"
        )
    if not isinstance(place, str) or not is_url(place):
        if half := _HALF_URL.match(str(place)):
            rest = str(place)[half.end() :].lstrip("/")
            raise StoreError(f"store {place}: write {half[1]}://{rest} for a bucket")
        folder = Path(with_home(place)).absolute()  # a shell leaves the ~ of --store=~/x
        if (folder / MARKER).is_file():
            raise StoreError(f"store {place}: holds a bucket: name its URL, {folder.as_uri()} here")
        return Store(folder)
    bucket = open_bucket(place.rstrip("/"), is_known=is_known)
    folder = (Path(with_home(cache)) if cache else _default_cache()) / slug(place.rstrip("/"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "CACHEDIR.TAG").write_text(_TAG)
    except OSError as error:
        raise StoreError(
            f"cache {folder}: cannot be written: {error.strerror}; name another folder with "
            "--cache or $MASKPOLICY_CACHE"
        ) from error
    store = Store(folder, Mirror(bucket), "--cache")
    store.cache = str(cache) if cache else None
    return store


def _default_cache() -> Path:
    if stated := os.environ.get("MASKPOLICY_CACHE"):
        return Path(with_home(stated))
    home = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(home) if home else Path.home() / ".cache") / "maskpolicy"
    except RuntimeError as error:
        raise StoreError(
            f"cache: {error}: name a folder for copies with --cache or $MASKPOLICY_CACHE"
        ) from error


def writable(store: Store) -> Store:
    """Return the store, or a temporary one with links to its artifacts if it cannot be written.

    Logs a line about the temporary store, which is removed at the end.
    """
    try:
        if store.mirror and now(store.mirror.bucket):
            return store
        if not store.mirror and (not store.root.is_dir() or os.access(store.root, os.W_OK)):
            return store
    except StoreError:
        pass
    _log.info("store %s cannot be written: what is computed is not kept", store.place)
    folder = TemporaryDirectory()
    mirror = store.mirror and Mirror(ReadOnly(store.mirror.bucket), is_prepared=True)
    upper = Store(folder.name, mirror)
    upper.place, upper.temporary = store.place, folder
    for name in ("artifacts", "dropped"):
        (upper.root / name).mkdir()
        for path in store.disk.entries(name):
            (upper.root / name / path.name).symlink_to(path, target_is_directory=path.is_dir())
    return upper
