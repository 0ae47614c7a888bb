"""A store: a folder of artifacts, which are committed as a whole, and verified when they are read.

artifacts/KEY/        the files of a committed stage and MANIFEST.json
checkpoints/KEY/STEP/ checkpoints of an unfinished stage, committed in the same way
dropped/KEY.json      the manifest of an artifact that was removed after use
temporary/KEY-HOST-*/ files that are being written; the next holder of the key removes old ones
quarantine/KEY-*/     files that do not match their manifest
locks/KEY.lock        locked by the process that computes or changes the key's artifact
in_use/ID.json        the keys that a run needs while its process holds the lock of ID
events/PLAN.jsonl     the events of the last run of a plan
hashes/               digests of data files and of artifacts' files
files/DIGEST/         single files, fetched from artifacts in a bucket
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from maskpolicy.core.errors import StoreError
from maskpolicy.core.files import sha256
from maskpolicy.core.keys import digest, plain
from maskpolicy.core.types import Json
from maskpolicy.pipeline.store import manifest
from maskpolicy.pipeline.store.checkpoints import Checkpoints
from maskpolicy.pipeline.store.digests import Digests
from maskpolicy.pipeline.store.disk import Disk, check_key
from maskpolicy.pipeline.store.mirror import Mirror

_log = logging.getLogger(__name__)
_IN_USE = "in_use"
_READS = 3  # a copy and then the bucket's artifact may be damaged; the third read finds nothing


@dataclass(frozen=True)
class Artifact:
    """A committed and verified artifact; `path` is the folder of its files."""

    key: str
    path: Path
    manifest: Mapping[str, Json]


class Store:
    """A store in one folder. Any number of processes can share it, but not threads of one process.

    With a `mirror`, the folder is a cache of a bucket: missing artifacts are pulled from the
    bucket, and new ones pushed to it.
    """

    def __init__(
        self, root: str | Path, mirror: Mirror | None = None, option: str = "--store"
    ) -> None:
        """Open a store in a folder, which the first write creates.

        `option` is the command's option that names the folder. Raises StoreError for a file.
        """
        self.root = Path(root).absolute()
        if self.root.exists() and not self.root.is_dir():
            raise StoreError(
                f"{option[2:]} {self.root}: is a file: name a folder with {option} or "
                f"$MASKPOLICY_{option[2:].upper()}"
            )
        self.mirror = mirror
        self.place = mirror.bucket.url if mirror else str(self.root)  # for messages and run.json
        self.cache: str | None = None  # the folder for copies of buckets, if not the default
        self.temporary: Any = None  # the TemporaryDirectory that the store lies in, if any
        self.disk = Disk(self.root, option)
        self.digests = Digests(self.disk)
        self.lock, self.is_busy = self.disk.lock, self.disk.is_busy
        self.hash_file, self.cut_file = self.digests.data_file, self.digests.cuts

    def path(self, key: str) -> Path:
        """Return the folder of a key's committed artifact; raises StoreError for a bad key."""
        check_key(key)
        return self.root / "artifacts" / key

    def has(self, key: str) -> bool:
        """Return whether a key has an artifact, which may be damaged."""
        return self.path(key).exists() or bool(self.mirror and key in self.mirror.committed())

    def committed(self, name: str = "artifacts") -> set[str]:
        """Return the keys of all artifacts, or of "dropped" ones; reads no manifest."""
        there = self.mirror.committed(name, afresh=True) if self.mirror else set()
        return there | {path.name.removesuffix(".json") for path in self.disk.entries(name)}

    def get(self, key: str) -> Artifact | None:
        """Return the verified artifact, or None. A damaged one is moved to quarantine/.

        Each process reads small files once; large files are read again only if they change. While
        another process holds the key, nothing is moved.
        """
        try:
            return self.read(key, withdraws=True)
        except manifest.Damaged as error:
            damage = error
        artifact = None
        with self.lock(key) as is_mine:
            for _ in range(_READS if is_mine else 0):
                try:
                    # another process may have replaced it
                    artifact = self.read(key, withdraws=True)
                    break
                except manifest.Damaged as error:
                    damage = error
                    self.disk.quarantine(self.path(key), key)
        if is_mine and artifact is None:
            _log.warning("an artifact is damaged and will be computed again: %s", damage)
        return artifact

    def read(self, key: str, *, withdraws: bool = False) -> Artifact | None:
        """Return the verified artifact, or None; raises manifest.Damaged instead of moving it.

        With `withdraws`, a damaged one in a bucket is moved to the bucket's quarantine/.
        """
        folder = self.path(key)
        if not folder.exists():
            return self._pull(key, withdraws)
        with self.disk.explained():
            sealed = manifest.read(folder, key=key)
            manifest.compare_key(sealed, str(folder), whole=False)
            self.digests.check(folder, sealed)
        return Artifact(key, folder, sealed)

    def file(self, key: str, name: str) -> Path | None:
        """Return one file of an artifact, or None if the store lacks it or it is damaged.

        The log names a damaged file. No other file is fetched from a bucket.
        """
        listed = (self.peek(key) or {"files": ()})["files"]
        entry = next((entry for entry in listed if entry["path"] == name), None)
        if entry is None:
            return None
        path = self.path(key) / name
        if self.mirror and not self.path(key).exists():
            path = self.root / "files" / entry["sha256"] / Path(name).name
            with self._fetching(key) as folder, suppress(manifest.Damaged):
                if not path.exists():
                    self.mirror.fetch(entry["sha256"], folder / path.name)
                    self.disk.folder("files", entry["sha256"])
                    self.disk.place(folder / path.name, path)
        with suppress(OSError):
            if sha256(path) == entry["sha256"]:
                return path
        _log.warning(
            "%s is damaged, and left out: `maskpolicy store verify` names all damaged files", path
        )
        return None

    def verify(self, key: str) -> str | None:
        """Read all files of an artifact again; return a text about the damage, or None.

        Known digests are ignored, and nothing is moved. A removed artifact is not damaged.
        """
        if self.mirror:
            return self.mirror.damage(key)
        try:
            with self.disk.explained():
                sealed = manifest.read(self.path(key), key=key)
                manifest.compare_key(sealed, str(self.path(key)))
                self.digests.check(self.path(key), sealed, afresh=True)
        except manifest.Damaged as damage:
            return str(damage) if self.path(key).exists() else None
        return None

    def peek(self, key: str) -> Json | None:
        """Return the manifest if names and sizes of the files match it, else None."""
        path = self.path(key)
        if self.mirror and not path.exists():
            return self.mirror.manifests([key]).get(key)
        try:
            with self.disk.explained():
                return manifest.read(path, key=key)
        except manifest.Damaged:
            return None

    def recall(self, key: str) -> Json | None:
        """Return the manifest of an artifact, even of a dropped one, or None; reads no file."""
        for name in ("artifacts", "dropped"):
            if (sealed := self._record(name, key)) is not None:
                return sealed
            if self.mirror and (there := self.mirror.manifests([key], name)):
                return there[key]
        return None

    def records(self, dropped: bool = True) -> list[Json]:
        """Return the manifests of all artifacts, and of dropped ones unless `dropped` is False."""
        sealed: dict[str, Json] = {}
        for name in ("artifacts", *(("dropped",) if dropped else ())):
            keys = sorted(self.committed(name))
            if self.mirror:
                sealed = {**self.mirror.manifests(keys, name), **sealed}
            for key in keys:
                if key not in sealed and (record := self._record(name, key)) is not None:
                    sealed[key] = record
        return list(sealed.values())

    def prefetch(self, keys: Iterable[str]) -> None:
        """Read the manifests of these keys in a bucket ahead of their use."""
        if self.mirror:
            self.mirror.manifests(key for key in keys if not self.path(key).exists())

    @contextmanager
    def using(self, keys: Iterable[str], name: str | None = None) -> Iterator[None]:
        """Prevent other processes from pruning or dropping these artifacts while the block runs.

        `name` is the name of the run; `knows_run` tells other hosts whether they see this store.
        """
        run, wanted = name or run_name(), sorted(set(keys))
        if self.mirror:
            self.mirror.record_use(wanted)
        with ExitStack() as held:
            try:
                held.enter_context(self.lock(run))
                self.digests.save()
                held.callback(self.disk.remove_note, _IN_USE, run)
                self.disk.write_note(_IN_USE, run, {"keys": wanted, "host": self.disk.HOST})
            except StoreError:
                if not self.root.is_dir():  # else it may be read-only
                    raise
            yield

    def in_use(self) -> set[str]:
        """Return the keys that other running processes keep (see `using`).

        Without locks, nobody knows which processes run, so all lists count.
        """
        needed: set[str] = set()
        for run in (path.stem for path in self.disk.entries(_IN_USE)):
            if self.disk.holds(run):
                continue
            with self.lock(run) as has_ended:
                note = self.disk.note(_IN_USE, run) or {}
                if not has_ended or not self.disk.has_locks:
                    needed.update(note.get("keys", ()))
                elif note.get("host", self.disk.HOST) == self.disk.HOST:
                    self.disk.remove_note(_IN_USE, run)  # another host may not share its locks
        return needed

    def knows_run(self, name: str) -> bool:
        """Return whether the run of this name uses this store."""
        return self.mirror is not None or self.disk.note(_IN_USE, name) is not None

    @contextmanager
    def write(
        self, key: str, record: Mapping[str, Json], checkpoints: Checkpoints | None = None
    ) -> Iterator[Path]:
        """Hold a key, yield a temporary folder, and commit it as the key's artifact at the end.

        `record` (JSON) describes the stage; the manifest gets it at the end of the block, with the
        seconds of the `checkpoints` from which the block resumes. If the block raises, the folder
        is removed and the checkpoints stay. If the key already has an artifact, that one stays, and
        a difference is logged. Raises StoreError for a full disk.
        """
        plain(record, "record")  # raises an error now rather than after hours of computation
        with self.lock(key, wait=True):
            checkpoints = checkpoints or self.checkpoints(key)
            with self.disk.temporary(key) as folder:
                yield folder
                facts = {
                    "key": key,
                    "record": plain(record, "record"),
                    **manifest.surroundings(str(record.get("kind", ""))),
                    "committed": datetime.now(UTC).isoformat(timespec="microseconds"),
                    "seconds": round(checkpoints.seconds, 3),
                }
                self._commit(key, folder, facts)
            checkpoints.clear()

    def adopt(self, artifact: Artifact) -> None:
        """Commit a copy of another store's artifact, with the facts of its manifest.

        Raises manifest.Damaged if the copy does not match the manifest, or the key its record.
        """
        key, sealed = artifact.key, artifact.manifest
        manifest.compare_key(sealed, str(artifact.path))
        facts = {name: value for name, value in sealed.items() if name not in manifest.SEALED}
        with self.lock(key, wait=True), self.disk.temporary(key, ours=True) as folder:
            for entry in sealed["files"]:
                target = folder / entry["path"]
                target.parent.mkdir(parents=True, exist_ok=True)
                try:
                    shutil.copyfile(artifact.path / entry["path"], target)
                except FileNotFoundError as error:
                    raise manifest.Damaged(f"{artifact.path} was removed meanwhile") from error
            manifest.verify(folder, sealed, sha256)
            self._commit(key, folder, facts)

    def drop(self, key: str, *, makes_room: bool = False) -> bool:
        """Remove an artifact that is no longer needed; keep its manifest for comparisons.

        With `makes_room`, a full disk may have no room for the manifest. Removes nothing, and
        returns False, while another process holds the key.
        """
        with self.lock(key) as is_mine:
            if is_mine and self.has(key):
                self.checkpoints(key).clear()  # a process may have died just after its commit
                if self.mirror:
                    self.mirror.withdraw(key, f"dropped/{key}.json")
                elif (sealed := self.peek(key)) is not None:
                    with suppress(*((StoreError,) if makes_room else ())):
                        self.note_dropped(key, sealed)
                self.forget(key)
            return is_mine

    def note_dropped(self, key: str, sealed: Json) -> None:
        """Keep the manifest of an artifact that was dropped, here or in another store."""
        name = f"dropped/{key}.json"
        if self.mirror:
            self.mirror.prepare()
            self.mirror.bucket.write(name, manifest.encode(sealed), new=True)
            return
        self.disk.folder("dropped")
        with self.lock(key, wait=True), self.disk.temporary(key, ours=True) as folder:
            manifest.write_json(folder / manifest.NAME, sealed)
            self.disk.place(folder / manifest.NAME, self.root / name)

    def forget(self, key: str) -> None:
        """Remove the folder of an artifact; an artifact in a bucket stays there."""
        if self.path(key).exists():
            self.disk.discard(key, self.path(key))

    def tidy(self, key: str) -> None:
        """Remove temporary folders of dead processes, and the checkpoints of a committed stage.

        Does nothing while another process holds the key, or if the store is read-only.
        """
        done = self.has(key) and self.checkpoints(key).steps()
        if not done and not self.disk.leftovers(key):
            return
        with suppress(StoreError), self.lock(key) as is_mine:  # the lock removes the folders
            if is_mine and done:
                self.checkpoints(key).clear()

    def checkpoints(self, key: str) -> Checkpoints:
        """Return the checkpoints of a key, with a clock that starts now."""
        return Checkpoints(self.disk, key, self.mirror)

    def touch(self, key: str) -> None:
        """Record that an artifact is used now, if the store can be written."""
        with suppress(OSError):
            (self.path(key) / manifest.NAME).touch()

    def events(self, plan: str) -> Path:
        """Return the file with the events of the last run of a plan, by the plan's digest."""
        return self.disk.root / "events" / f"{plan}.jsonl"

    def _pull(self, key: str, withdraws: bool) -> Artifact | None:
        """Fetch an artifact from the bucket, or return None; raises manifest.Damaged."""
        if self.mirror is None:
            return None
        with self._fetching(key) as folder:
            if self.path(key).exists():  # another process has just fetched it
                return self.read(key)
            sealed = self.mirror.pull(key, folder, withdraws)
            if sealed is None:
                return None
            try:
                self.disk.place(folder, self.disk.folder("artifacts") / key)
            except StoreError:
                if not self.path(key).exists():  # another process of this host has committed it
                    raise
                return self.read(key)
            self.digests.placed(self.path(key), sealed)
        return Artifact(key, self.path(key), sealed)

    @contextmanager
    def _fetching(self, key: str) -> Iterator[Path]:
        """Yield a temporary folder for the files of an artifact, to one process of a host.

        Its lock is not that of the key, which the process that computes the stage may hold.
        """
        name = digest(["fetch", key])
        with self.lock(name, wait=True), self.disk.temporary(name, ours=True) as folder:
            yield folder

    def _commit(self, key: str, temporary: Path, facts: Mapping[str, Json]) -> None:
        """Commit a folder; an artifact that was committed before stays."""
        with self.disk.explained():
            sealed = manifest.seal(temporary, facts)
        earlier = self.get(key)
        first = None if earlier is None else earlier.manifest
        if first is None and self.mirror:
            first = self.mirror.push(key, temporary, sealed)
        if first is None:
            first = self._place(key, temporary, sealed)
        if first is not None and (names := manifest.differences(first, sealed)):
            why = "its stage is not deterministic, or the machines differ"
            if cards := manifest.gpus(first, sealed):
                why = f"{cards} rounds differently each time"
            _log.log(
                logging.WARNING if cards else logging.ERROR,
                "%s was computed twice, on %s and on %s, with different results (%s): the first is "
                "kept; %s",
                facts["record"].get("kind", key[:12]),
                first["machine"]["name"],
                sealed["machine"]["name"],
                ", ".join(names),
                why,
            )

    def _place(self, key: str, temporary: Path, sealed: Json) -> Json | None:
        """Rename a sealed folder; return the manifest if another host has committed before."""
        try:
            self.disk.place(temporary, self.disk.folder("artifacts") / key)
        except StoreError:
            if (earlier := self.get(key)) is None:
                raise
            return dict(earlier.manifest)
        self.digests.placed(self.path(key), sealed)
        return None

    def _record(self, name: str, key: str) -> Json | None:
        """Return a key's manifest in a sub-folder, or None; the files are not checked."""
        check_key(key)
        folder = self.root / name
        try:
            return manifest.parse(
                folder / f"{key}.json" if name == "dropped" else folder / key / manifest.NAME
            )
        except (manifest.Damaged, OSError):
            return None


def run_name() -> str:
    """Return a new name for a run, in the form of a key, so that it can be locked."""
    return uuid4().hex + uuid4().hex


def available(store: Store, key: str, what: str) -> Artifact:
    """Return an artifact of a finished run; raises StoreError if the store lacks it."""
    artifact = store.get(key)
    if artifact is None:
        raise StoreError(
            f"store {store.place}: does not hold {what}: name the store of that run with --store, "
            "or run its experiment again"
        )
    return artifact
