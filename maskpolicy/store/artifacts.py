"""Artifacts under the hash of their inputs: committed as a whole, verified when read, locked.

artifacts/KEY/        the files of a committed stage and MANIFEST.json
checkpoints/KEY/STEP/ of a stage that is not finished, committed in the same way
dropped/KEY.json      the manifest of an artifact that was removed after use
temporary/KEY-*/      being written; the next owner of the key removes what a dead process left
quarantine/KEY-*/     files that do not match their manifest
locks/KEY/            the claim of the process that works on the key
failed/KEY.json       why a stage failed; the next commit of the key removes it
progress/KEY.json     what a process that works on the key has reached
deaths/KEY.json       how many processes one after another died at the key
hashes/, verified/    digests of data files, and of artifacts' files, that need not be read again
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from maskpolicy.datafiles.cuts import Cut
from maskpolicy.datafiles.rows import Unit
from maskpolicy.errors import ClaimLost, StoreError
from maskpolicy.files import sha256
from maskpolicy.keys import plain
from maskpolicy.plugins import isolation
from maskpolicy.store import manifest, upkeep
from maskpolicy.store.checkpoints import Checkpoints
from maskpolicy.store.claimed import Claimed
from maskpolicy.store.disk import Disk
from maskpolicy.store.hashes import Remembered
from maskpolicy.store.holders import Holder
from maskpolicy.store.locks import LEASE, Locks, check_key, is_key
from maskpolicy.store.notes import Notes
from maskpolicy.store.shared_folder import FolderClaims
from maskpolicy.store.verified import Verified
from maskpolicy.types import Json

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Artifact:
    """A committed and verified artifact: its files lie in `path`."""

    key: str
    path: Path
    manifest: Mapping[str, Json]


class Store:
    """One folder of artifacts. Any number of processes can share it, threads of one cannot."""

    patience = 5.0
    """The longest pause, in seconds, between two looks of a process that waits for others."""

    def __init__(self, root: str | Path, lease: float = LEASE, option: str = "--store") -> None:
        """Take the folder, which the first write creates; raises StoreError if it is a file.

        `lease` is the number of seconds without a sign of life after which another process may
        take over what this one works on. `option` is the one that names the folder.
        """
        self.root = Path(root).absolute()
        if self.root.exists() and not self.root.is_dir():
            raise StoreError(
                f"{option[2:]} {self.root}: is a file: name a folder with {option} or "
                f"$MASKPOLICY_{option[2:].upper()}"
            )
        isolation.give(self.root)
        self._disk = Disk(self.root, option)
        self._verified = Verified(self._disk)
        self._remembered = Remembered(self._disk)
        self._locks = Locks(self._disk, FolderClaims(self._disk, lease), lease)
        self.failures = Notes(self._disk, "failed")
        self.progress = Notes(self._disk, "progress")
        self.deaths = Notes(self._disk, "deaths")
        self._under_way: dict[str, Checkpoints] = {}

    @property
    def place(self) -> str:
        """The store as messages and run.json name it: the folder's path, or a bucket's URL."""
        return str(self.root)

    def path(self, key: str) -> Path:
        """Return the folder of a key's committed artifact; raises StoreError for a bad key."""
        check_key(key)
        return self.root / "artifacts" / key

    def has(self, key: str) -> bool:
        """Return whether a key has an artifact, perhaps a damaged one."""
        return self.path(key).exists()

    def file(self, key: str, name: str) -> Path | None:
        """Return one file of an artifact, or None if the store lacks it or it is damaged.

        A damaged file is named in the log.
        """
        listed = (self.peek(key) or {"files": ()})["files"]
        digest = next((entry["sha256"] for entry in listed if entry["path"] == name), None)
        if digest is None:
            return None
        path = self.path(key) / name
        try:
            if sha256(path) == digest:
                return path
        except OSError:
            pass
        _log.warning(
            "%s is damaged, and left out: `maskpolicy store verify` names all damaged files", path
        )
        return None

    def committed(self) -> set[str]:
        """Return the keys of all artifacts; reads one list of names and no manifest."""
        folder = self.root / "artifacts"
        names = (path.name for path in folder.iterdir()) if folder.is_dir() else ()
        return {name for name in names if is_key(name)}

    def get(self, key: str) -> Artifact | None:
        """Return the artifact, or None. One that does not match its manifest goes to quarantine.

        Small files are read once per process, large ones once until they change. While another
        process holds the key, nothing is moved: the result is None, and the caller asks again once
        it holds the key.
        """
        try:
            return self._load(key)
        except manifest.Damaged:
            with self.try_lock(key) as mine:
                return self._load_or_quarantine(key) if mine else None

    def read(self, key: str) -> Artifact | None:
        """Return the artifact as `get` does, but hold and move nothing.

        Raises manifest.Damaged for one that does not match its manifest.
        """
        return self._load(key)

    def verify(self, key: str) -> str | None:
        """Read the files of an artifact again, and return what does not match its manifest.

        Returns None if all is well. What processes have verified before is ignored; nothing is
        moved.
        """
        try:
            with self._disk.explained():
                found = manifest.read(self.path(key), key=key)
                self._verified.check(key, found, afresh=True)
        except manifest.Damaged as damage:
            return str(damage)
        return None

    def peek(self, key: str) -> Json | None:
        """Return the manifest if the files match it by name and size, else None; moves nothing."""
        try:
            with self._disk.explained():
                return manifest.read(self.path(key), key=key)
        except manifest.Damaged:
            return None

    def prefetch(self, keys: Iterable[str]) -> None:
        """Expect that the manifests of these keys are asked for soon; a folder needs no time."""

    def record_use(self, keys: Iterable[str]) -> None:
        """Record that a run uses the artifacts of these keys; in a folder, `touch` does so."""

    def recall(self, key: str) -> Json | None:
        """Return the manifest of an artifact, also of a dropped one, or None.

        The files are not checked: they may be gone.
        """
        check_key(key)
        return self._record("artifacts", key) or self._record("dropped", key)

    @contextmanager
    def write(self, key: str, record: Mapping[str, Json]) -> Iterator[Path]:
        """Yield a temporary folder, and commit it as the artifact of `key` on a clean exit.

        `record` is the resolved config; the manifest holds it as it is at the exit. The key is
        held meanwhile. An exception removes the folder and keeps the checkpoints; a full disk
        raises StoreError. If the key already has an artifact, that one stays. Raises ClaimLost if
        another process has taken over the key.
        """
        plain(record, "record")  # fails here rather than after hours of work
        with self.lock(key):
            self._under_way[key] = checkpoints = self.checkpoints(key)
            self._remembered.save()
            try:
                with self._claimed(key).temporary() as folder:
                    yield folder
                    facts = {
                        "key": key,
                        "record": plain(record, "record"),
                        **manifest.surroundings(),
                        "committed": datetime.now(UTC).isoformat(timespec="microseconds"),
                        "seconds": round(checkpoints.seconds, 3),
                    }
                    self._commit(key, folder, facts)
                checkpoints.clear()
                self.failures.remove(key)
                self.progress.remove(key)
                if self.former_holder(key) is not None:
                    self.deaths.remove(key)
            finally:
                del self._under_way[key]

    def adopt(self, artifact: Artifact) -> None:
        """Commit a copy of another store's artifact, with the facts of its manifest.

        Raises manifest.Damaged, and commits nothing, if the copy does not match the manifest.
        """
        key, known = artifact.key, artifact.manifest
        facts = {name: value for name, value in known.items() if name not in manifest.SEALED}
        with self.lock(key), self._claimed(key).temporary(ours=True) as folder:
            for entry in known["files"]:
                target = folder / entry["path"]
                target.parent.mkdir(parents=True, exist_ok=True)
                try:
                    shutil.copyfile(artifact.path / entry["path"], target)
                except FileNotFoundError as error:
                    raise manifest.Damaged(f"{artifact.path} was removed meanwhile") from error
            manifest.verify(folder, known, sha256)
            self._commit(key, folder, facts)

    def evict(self, key: str) -> bool:
        """Remove the copy of an artifact that lies elsewhere; a folder holds no copies."""
        return False

    @contextmanager
    def reading(self, keys: Iterable[str]) -> Iterator[None]:
        """Keep what the block reads; in a folder, only `drop` removes artifacts."""
        yield

    def drop(self, key: str) -> bool:
        """Remove an artifact that is no longer needed; its manifest stays for comparisons.

        Returns False, and removes nothing, while another process holds the key.
        """
        with suppress(ClaimLost), self.try_lock(key) as mine:
            if mine and self.has(key):
                self.checkpoints(key).clear()  # of a process that died when it had committed
                self._remove(key)
            return mine
        return False

    def tidy(self, key: str) -> None:
        """Remove what a dead process left: its folders, and its checkpoints if it committed.

        Does nothing while another process works on the key, or if the store is read-only.
        """
        done = self.has(key) and self.checkpoints(key).steps()
        if not done and not self._disk.leftovers(key):
            return
        with suppress(StoreError), self.try_lock(key) as mine:  # this removes the folders
            if mine and done:
                self.checkpoints(key).clear()

    def checkpoints(self, key: str) -> Checkpoints:
        """Return the checkpoints of a key; inside `write`, those whose seconds are recorded."""
        return self._under_way.get(key) or Checkpoints(self._claimed(key))

    @contextmanager
    def lock(self, key: str) -> Iterator[bool]:
        """Wait for the key and hold it; the same store can take it again."""
        with self._locks.hold(key, wait=True) as mine:
            yield mine

    @contextmanager
    def try_lock(self, key: str) -> Iterator[bool]:
        """Hold the key if it is free; yields whether it is held."""
        with self._locks.hold(key, wait=False) as mine:
            yield mine

    @contextmanager
    def try_lock_all(self, keys: Iterable[str]) -> Iterator[bool]:
        """Hold all of these keys if they are free; yields whether they are held."""
        with self._locks.hold_all(keys) as mine:
            yield mine

    def check_claim(self, key: str) -> None:
        """Raise ClaimLost if another process has taken over the key that this one holds."""
        self._locks.check(key)

    def is_busy(self, key: str) -> bool:
        """Return whether another process works on the key; writes nothing."""
        return self._locks.is_busy(key)

    def holder(self, key: str) -> Holder | None:
        """Return the process that holds the key, perhaps this one, or None; writes nothing."""
        return self._locks.holder(key)

    def former_holder(self, key: str) -> Holder | None:
        """Return who held a key before that this process holds, and did not give it back."""
        return self._locks.former(key)

    def heard(self, key: str) -> datetime | None:
        """Return when the claim on a key was last refreshed, by the clock of the store's disk."""
        return self._locks.heard(key)

    def claimed(self) -> set[str]:
        """Return the keys that have a claim, which may be over; ask `holder` for each."""
        return self._locks.claimed()

    def was_interrupted(self, key: str) -> bool:
        """Return whether the key has an unfinished folder."""
        return bool(self._disk.leftovers(key))

    def hash_file(self, path: str | Path) -> str:
        """Return a data file's sha256, remembered by path, size, times and inode.

        Raises DataError if the file cannot be read.
        """
        return self._remembered.digest(Path(path))

    def cut_file(self, path: Path, size: int, unit: Unit) -> Sequence[Cut]:
        """Return the cuts of a data file, as `cuts.scan`; remembered like its digest."""
        return self._remembered.cuts(path, size, unit)

    def records(self, dropped: bool = True) -> list[Json]:
        """Return the manifests of all artifacts, of dropped ones too unless told otherwise."""
        places = [
            (name, path.name.removesuffix(".json"))
            for name in ("artifacts", *(("dropped",) if dropped else ()))
            for path in upkeep.entries(self.root, name)
        ]
        return [known for place in places if (known := self._record(*place)) is not None]

    def size(self) -> dict[str, int]:
        """Return the bytes in each sub-folder of the store."""
        return upkeep.size(self.root)

    def touch(self, key: str) -> None:
        """Record that an artifact was used now."""
        upkeep.touch(self.path(key))

    def _claimed(self, key: str) -> Claimed:
        return Claimed(self._disk, self._locks, key)

    def _remove(self, key: str) -> None:
        """Remove an artifact, but keep its manifest if it is sound."""
        found, claimed = self.peek(key), self._claimed(key)
        if found is not None:
            with claimed.temporary(ours=True) as folder:
                manifest.write_json(folder / manifest.NAME, found)
                dropped = self._disk.folder("dropped") / f"{key}.json"
                claimed.place(folder / manifest.NAME, dropped)
        with self._verified.removing(key):
            claimed.discard(self.path(key))

    def _load(self, key: str) -> Artifact | None:
        folder = self.path(key)
        if not folder.exists():
            return None
        with self._disk.explained():
            found = manifest.read(folder, key=key)
            self._verified.check(key, found)
        return Artifact(key, folder, found)

    def _load_or_quarantine(self, key: str) -> Artifact | None:
        try:
            return self._load(key)
        except manifest.Damaged as damage:
            self._quarantine(key)
            _log.warning("an artifact is damaged and will be computed again: %s", damage)
            return None

    def _quarantine(self, key: str) -> None:
        """Set a damaged artifact aside."""
        with self._verified.removing(key):
            self._claimed(key).quarantine(self.path(key), key)

    def _commit(self, key: str, temporary: Path, facts: Mapping[str, Json]) -> None:
        digest_of = partial(self._verified.digest_new, temporary)
        try:
            with self._disk.explained():
                sealed = manifest.seal(temporary, facts, digest_of)
            first = self._publish(key, temporary, sealed)
        finally:
            self._verified.forget(temporary)
        if first is not None and (names := manifest.differences(first, sealed)):
            _log.error(
                "%s was computed twice, on %s and on %s, with different results (%s): the first is "
                "kept; its stage is not deterministic, or the machines differ",
                *(facts["record"].get("kind", key[:12]), first["machine"]["name"]),
                *(sealed["machine"]["name"], ", ".join(names)),
            )

    def _publish(self, key: str, temporary: Path, sealed: Json) -> Json | None:
        """Commit a sealed folder; return the manifest of an earlier artifact, which stays."""
        earlier = self.get(key)
        if earlier is not None:
            return earlier.manifest
        self._keep(key, temporary, sealed)
        return None

    def _keep(self, key: str, temporary: Path, sealed: Json) -> None:
        """Rename a sealed folder to that of its artifact."""
        self._claimed(key).place(temporary, self._disk.folder("artifacts") / key)
        self._verified.commit(key, temporary, sealed)

    def _record(self, name: str, key: str) -> Json | None:
        """Return a key's manifest in a sub-folder, without a look at the files, or None."""
        folder = self.root / name
        path = folder / f"{key}.json" if name == "dropped" else folder / key / manifest.NAME
        try:
            return manifest.parse(path)
        except (manifest.Damaged, OSError):
            return None


def available(store: Store, key: str, what: str) -> Artifact:
    """Return an artifact of a finished run; raises StoreError when the store lacks it."""
    found = store.get(key)
    if found is None:
        raise StoreError(
            f"store {store.place}: {what} is not there: name the store of that run with --store, "
            "or run its experiment again"
        )
    return found
