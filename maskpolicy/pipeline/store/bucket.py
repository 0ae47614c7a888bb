"""The objects of a bucket: whole reads and writes, create-if-absent, and listings.

These work the same in every kind of bucket: a created object is visible to everybody at once, and
only one of several writers can create it. The store needs no other operations.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime, timedelta
from functools import cache, wraps
from multiprocessing import parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, TypeVar
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from maskpolicy.core.errors import MaskpolicyError, StoreError

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore, RetryConfig

FORMAT = 1
MARKER = "maskpolicy.json"
TRIALS = "trials"
GRACE = timedelta(days=1)  # the longest time from a file's upload to that of its manifest
CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_ENDPOINT_URL, AWS_REGION)",
    "gs": "GOOGLE_SERVICE_ACCOUNT (the path of a service account's JSON file)",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
SCHEMES = (*CREDENTIALS, "file", "memory")
CHUNK = 8 << 20  # bytes; larger files travel in parts of this size
_CONNECTIONS = 16
_PARTS = 2  # of one file at a time: at most _CONNECTIONS * _PARTS chunks are in memory
_FIRST = 5  # seconds of retries of a command's first request, whose address may be wrong
_LATER = 180  # seconds of retries of all others, for outages during a run
_PAUSES = (0.5, 15)  # seconds: the first pause between two requests, and the longest
_RETRY = (2, 20)  # obstore's own retries and their seconds; obstore does not repeat creations
_REFUSED = re.compile(r"(?<!\d)4(?!08|29)\d\d [A-Z]|NotFound|Unauth|Generic LocalFileSystem")
_ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AZURE_STORAGE_ENDPOINT")
_SHOWN = 400  # characters of an error
_FULL_TEXTS = ("os error 28", "os error 122", "No space left", "quota")

_log = logging.getLogger(__name__)
T = TypeVar("T")
U = TypeVar("U")
P = ParamSpec("P")


class Outage(StoreError):
    """A bucket did not answer as it should; the same request may succeed later."""


class Entry(NamedTuple):
    """An object in a listing."""

    name: str
    size: int  # bytes
    modified: datetime  # by the bucket's clock


def _lasting(method: Callable[Concatenate[Bucket, P], T]) -> Callable[Concatenate[Bucket, P], T]:
    """Let a method explain the errors of its request, and repeat it with pauses in an outage."""

    @wraps(method)
    def request(self: Bucket, /, *given: P.args, **named: P.kwargs) -> T:
        pause, longest = _PAUSES
        end, is_told = time.monotonic() + self.patience, False
        while True:
            try:
                with self._explained():
                    return method(self, *given, **named)
            except Outage as error:
                if time.monotonic() + pause > end:
                    raise
                if not is_told and pause >= 2:
                    _log.warning("%s; it is asked again for %.0f s", error, self.patience)
                    is_told = True
            time.sleep(pause * random.uniform(0.5, 1))
            pause = min(2 * pause, longest)

    return request


class Bucket:
    """The objects below the prefix of one URL. Methods raise StoreError with one line."""

    def __init__(self, url: str, objects: ObjectStore, patience: float = 0) -> None:
        """Wrap a connected object store (`open_bucket` connects one).

        In an outage, requests are repeated for `patience` seconds.
        """
        self.url = url
        self.patience = patience
        self._objects = objects

    @_lasting
    def read(self, name: str) -> bytes | None:
        """Return an object's bytes, or None if there is no such object."""
        import obstore

        try:
            return bytes(obstore.get(self._objects, name).bytes())
        except FileNotFoundError:
            return None

    @_lasting
    def write(self, name: str, content: bytes, *, new: bool = False) -> bool:
        """Write or replace an object; return whether this call has written it.

        With `new`, an existing object stays. If the answer of a request is lost, the repeated
        request recognises its own object by the content, so no two writers may write the same.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError

        try:
            obstore.put(self._objects, name, content, mode="create" if new else "overwrite")
        except AlreadyExistsError:
            return self.read(name) == content
        return True

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; names without an object are ignored."""
        wanted = list(names)
        if wanted:
            self._delete(wanted)

    @_lasting
    def _delete(self, names: list[str]) -> None:
        import obstore

        try:
            obstore.delete(self._objects, names)
        except FileNotFoundError:  # of other kinds than S3, which may not have deleted the rest
            for name in names:
                with suppress(FileNotFoundError):
                    obstore.delete(self._objects, name)

    @_lasting
    def entries(self, prefix: str) -> list[Entry]:
        """Return the objects below a prefix (of whole folders), sorted by name."""
        import obstore

        listed = obstore.list(self._objects, prefix, chunk_size=1000)
        return sorted(_entry(about) for some in listed for about in some)

    @_lasting
    def upload(self, path: Path, name: str) -> bool:
        """Write a file as an object, which becomes visible when it is complete.

        A young object of the same size stays; return whether this call has written the object.
        `store prune` might remove an old one before a manifest lists it.
        """
        import obstore

        old = datetime.now(UTC) - GRACE / 2  # clocks of machines differ by less than half a day
        with suppress(FileNotFoundError):
            there = _entry(obstore.head(self._objects, name))
            if there.size == path.stat().st_size and there.modified >= old:
                return False
        obstore.put(self._objects, name, path, chunk_size=CHUNK, max_concurrency=_PARTS)
        return True

    @_lasting
    def download(self, name: str, path: Path | None) -> str | None:
        """Write an object to a file, if there is a path, and return the sha256 of what arrived.

        Returns None if there is no such object.
        """
        import obstore

        digest = hashlib.sha256()
        with path.open("wb") if path else nullcontext() as file:
            try:
                chunks = obstore.get(self._objects, name).stream(min_chunk_size=1 << 20)
            except FileNotFoundError:
                return None
            for chunk in chunks:
                digest.update(chunk)
                if file is not None:
                    file.write(chunk)
            if file is not None:
                file.flush()
                os.fsync(file.fileno())
        return digest.hexdigest()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Raise a StoreError of one line for errors of the bucket, and pass other errors on."""
        from obstore.exceptions import BaseError

        try:
            yield
        except MaskpolicyError:
            raise
        except (BaseError, FileNotFoundError, PermissionError, ValueError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # an error of a local file
            raise _explanation(self.url, error) from error


class ReadOnly(Bucket):
    """A bucket without permission to write: writes and deletions do nothing."""

    def __init__(self, bucket: Bucket) -> None:
        """Share the connection of a bucket."""
        super().__init__(bucket.url, bucket._objects, bucket.patience)

    def write(self, name: str, content: bytes, *, new: bool = False) -> bool:
        """Do nothing."""
        return True

    def delete(self, names: Iterable[str]) -> None:
        """Do nothing."""

    def upload(self, path: Path, name: str) -> bool:
        """Do nothing."""
        return True


def _entry(about: ObjectMeta) -> Entry:
    return Entry(about["path"], about["size"], about["last_modified"])


def now(bucket: Bucket) -> datetime:
    """Return the time by the bucket's clock, like `Entry.modified`; writes a small object."""
    name = f"{TRIALS}/{uuid4().hex}"
    bucket.write(name, b"")
    try:
        return next(entry.modified for entry in bucket.entries(TRIALS) if entry.name == name)
    finally:
        bucket.delete([name])


def _probe(bucket: Bucket) -> None:
    """Check that a bucket can be read, and that this version can use it; raises StoreError."""
    marker = bucket.read(MARKER)
    if marker is None:
        bucket.entries("artifacts")
        return
    try:
        is_ours = json.loads(marker)["format"] == FORMAT
    except (ValueError, TypeError, KeyError):
        is_ours = False
    if not is_ours:
        raise StoreError(
            f"store {bucket.url}: {MARKER} is not of this version of maskpolicy: install the "
            "version that wrote it, or name another bucket or prefix"
        )


def prepare(bucket: Bucket) -> None:
    """Test that objects can be written, and created if absent; raises StoreError.

    A marker in the bucket records the second test.
    """
    is_new = bucket.read(MARKER) is None
    name = f"{TRIALS}/{uuid4().hex}"
    try:
        bucket.write(name, b"first", new=True)
        if is_new and bucket.write(name, b"second", new=True):
            raise StoreError(
                f"store {bucket.url}: its server ignores If-None-Match, so two writers "
                "would overwrite each other: use another server, or a newer version of it"
            )
    finally:
        bucket.delete([name])
    if is_new:
        bucket.write(MARKER, json.dumps({"format": FORMAT}).encode(), new=True)


def in_parallel(work: Callable[[T], U], items: Sequence[T]) -> list[U]:
    """Return the results of several requests; raise an error after all of them have ended."""
    if len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(_CONNECTIONS) as pool:
        return list(pool.map(work, items))


def open_bucket(url: str, *, is_known: bool = False) -> Bucket:
    """Connect to a bucket and check that it can be read; raises StoreError.

    With `is_known`, another process has used this address, so the check waits for an outage to end.
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise StoreError(f"store {url}: is not an address ({error}): correct it") from error
    scheme = parts.scheme
    if scheme not in SCHEMES:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise StoreError(f"store {url}: unknown kind of address: name a folder, or one of {known}")
    if parts.username or parts.query:
        raise StoreError(
            f"store {scheme}://...: a URL is kept in run.json and in logs: give credentials in the "
            f"environment ({CREDENTIALS.get(scheme, 'none are needed')})"
        )
    if parts.fragment:
        raise StoreError(f"store {scheme}://...: a URL ends before #: write %23 for a # in a name")
    try:
        import obstore  # noqa: F401
    except ImportError:
        raise StoreError(
            f"store {url}: needs the package obstore: pip install 'maskpolicy[bucket]'"
        ) from None
    objects, is_remote = _connect(url), scheme in CREDENTIALS
    bucket = Bucket(url, objects, _LATER if is_remote else 0)
    _probe(bucket if is_known else Bucket(url, objects, _FIRST if is_remote else 0))
    return bucket


def _connect(url: str) -> ObjectStore:
    from obstore.exceptions import BaseError
    from obstore.store import LocalStore, from_url

    parts = urlsplit(url)
    if parts.scheme == "memory":
        if parent_process() is not None:  # this process has a memory of its own
            raise StoreError(
                f"store {url}: processes cannot share it: add --jobs 1, or name a file:// bucket"
            )
        return _memory(url)
    if parts.scheme == "file":
        folder = Path(unquote(parts.path))
        if parts.netloc or not parts.path.strip("/") or not folder.is_dir():
            raise StoreError(f"store {url}: there is no such folder on this machine: create it")
        return LocalStore(folder)  # it keeps empty folders: removing them fails beside writers
    plain = any(os.environ.get(name, "").startswith("http://") for name in _ENDPOINTS)
    client: Any = {"connect_timeout": "5s", "read_timeout": "30s", "timeout": "1h"}
    client["allow_http"] = plain  # "read_timeout" is from one byte to the next
    retry: RetryConfig = {"max_retries": _RETRY[0], "retry_timeout": timedelta(seconds=_RETRY[1])}
    try:
        return from_url(url, client_options=client, retry_config=retry)
    except (BaseError, ValueError) as error:
        raise _explanation(url, error) from error


@cache
def _memory(url: str) -> ObjectStore:
    from obstore.store import MemoryStore

    return MemoryStore()


def _explanation(url: str, error: Exception) -> StoreError:
    """Return the StoreError for an error of obstore, by its text, as its type says too little."""
    scheme = urlsplit(url).scheme
    said = " ".join((str(error).strip() or type(error).__name__).splitlines()[0].split())
    needed = CREDENTIALS.get(scheme, "the folder's permissions")
    nobody = "Missing", "169.254.169.254", "/latest/api", "must be specified"
    denied = "403 Forbidden", "401 Un", "privileges", "os error 13"
    reasons = (
        (f"no credentials: set {needed}", nobody),
        ("is full: free some space there, or name another --store", _FULL_TEXTS),
        (f"no permission: check {needed}", denied),
        ("no such bucket: create it, or correct its name", ("NoSuchBucket", "404 Not Found")),
        (unreached := "cannot be reached: check the address and the network", ("",)),
    )
    advice = next(reason for reason, texts in reasons if any(text in said for text in texts))
    may_pass = advice == unreached and not _REFUSED.search(said)
    return (Outage if may_pass else StoreError)(f"store {url}: {advice} ({said[:_SHOWN]})")
