"""A store in a folder: artifacts are committed as a whole, and verified when they are read.

artifacts/KEY/        the files of a committed stage and MANIFEST.json
checkpoints/KEY/STEP/ checkpoints of an unfinished stage, committed in the same way
dropped/KEY.json      the manifest of an artifact that was removed after use
temporary/KEY-*/      files that are being written; the next holder of the key removes old ones
quarantine/KEY-*/     files that do not match their manifest
locks/KEY/            the claim of the process that holds the key
failed/KEY.json       the error of a stage; the next commit of the key removes it
progress/KEY.json     the progress of the process that holds the key
deaths/KEY.json       the number of processes that died one after another while they held the key
in_use/ID.json        the keys that a run needs, for as long as its process holds ID
hashes/, verified/    digests of data files, and of the files of artifacts
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
from maskpolicy.store.artifact_digests import ArtifactDigests
from maskpolicy.store.checkpoints import Checkpoints
from maskpolicy.store.claims import LEASE, Locks, check_key, is_key
from maskpolicy.store.data_digests import DataDigests
from maskpolicy.store.disk import Disk
from maskpolicy.store.folder_claims import FolderClaims
from maskpolicy.store.held_keys import HeldKeys
from maskpolicy.store.in_use import InUse
from maskpolicy.store.key_writer import KeyWriter
from maskpolicy.store.notes import Notes
from maskpolicy.types import Json

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Artifact:
    """A committed and verified artifact; `path` is the folder of its files."""

    key: str
    path: Path
    manifest: Mapping[str, Json]


class Store(HeldKeys):
    """A store in one folder, which any number of processes can share, but not threads of one."""

    patience = 5.0
    """The longest pause, in seconds, between two polls of a process that waits for others."""

    def __init__(self, root: str | Path, lease: float = LEASE, option: str = "--store") -> None:
        """Take the folder, which the first write creates; raises StoreError if it is a file.

        `lease` is the number of seconds without a refresh after which another process may take over
        the keys that this one holds. `option` is the command's option that names the folder.
        """
        self.root = Path(root).absolute()
        if self.root.exists() and not self.root.is_dir():
            raise StoreError(
                f"{option[2:]} {self.root}: is a file: name a folder with {option} or "
                f"$MASKPOLICY_{option[2:].upper()}"
            )
        isolation.give(self.root)
        self._disk = Disk(self.root, option)
        self._artifact_digests = ArtifactDigests(self._disk)
        self._data_digests = DataDigests(self._disk)
        self._locks = Locks(self._disk, FolderClaims(self._disk, lease), lease)
        self._in_use = InUse(self._disk, self._locks)
        self.failures = Notes(self._disk, "failed")
        self.progress = Notes(self._disk, "progress")
        self.deaths = Notes(self._disk, "deaths")
        self._under_way: dict[str, Checkpoints] = {}

    @property
    def place(self) -> str:
        """The folder's path, or a bucket's URL, for messages and run.json."""
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
        """Return the keys of all artifacts; lists one folder and reads no manifest."""
        folder = self.root / "artifacts"
        names = (path.name for path in folder.iterdir()) if folder.is_dir() else ()
        return {name for name in names if is_key(name)}

    def get(self, key: str) -> Artifact | None:
        """Return the verified artifact, or None. A damaged one is moved to quarantine/.

        Small files are read once per process, large ones once until they change. While another
        process holds the key, nothing is moved. The result is then None, and the caller must try
        again when it holds the key.
        """
        try:
            return self._load(key)
        except manifest.Damaged:
            with self.try_lock(key) as is_mine:
                return self._load_or_quarantine(key) if is_mine else None

    def read(self, key: str) -> Artifact | None:
        """Return the verified artifact, or None; unlike `get`, claim and move nothing.

        Raises manifest.Damaged for an artifact that does not match its manifest.
        """
        return self._load(key)

    def verify(self, key: str) -> str | None:
        """Read all files of an artifact again, and return what is damaged, as text, or None.

        Digests from earlier verifications are ignored, and nothing is moved.
        """
        try:
            with self._disk.explained():
                found = manifest.read(self.path(key), key=key)
                self._artifact_digests.check(key, found, afresh=True)
        except manifest.Damaged as damage:
            return str(damage)
        return None

    def peek(self, key: str) -> Json | None:
        """Return the manifest if the files match it by name and size, else None."""
        try:
            with self._disk.explained():
                return manifest.read(self.path(key), key=key)
        except manifest.Damaged:
            return None

    def prefetch(self, keys: Iterable[str]) -> None:
        """Read the manifests of these keys ahead of their use; does nothing in a folder."""

    def record_use(self, keys: Iterable[str]) -> None:
        """Record that a run uses the artifacts of these keys; in a folder, `touch` does this."""

    @contextmanager
    def using(self, keys: Iterable[str]) -> Iterator[None]:
        """Keep these artifacts from being pruned while the block runs."""
        with self._in_use.listed(keys):
            yield

    def in_use(self) -> set[str]:
        """Return the keys that running processes keep (see `using`)."""
        return self._in_use.keys()

    def recall(self, key: str) -> Json | None:
        """Return the manifest of an artifact, perhaps a dropped one, or None.

        The files are not checked, and may be gone.
        """
        check_key(key)
        return self._record("artifacts", key) or self._record("dropped", key)

    @contextmanager
    def write(self, key: str, record: Mapping[str, Json]) -> Iterator[Path]:
        """Hold a key, yield a temporary folder, and commit it as the key's artifact at the end.

        `record` (JSON) describes the stage; the manifest holds it as it is when the block ends. If
        the block raises, the folder is removed and the checkpoints stay. If the key already has an
        artifact, that one stays. Raises StoreError for a full disk, and ClaimLost if another
        process has taken over the key.
        """
        plain(record, "record")  # raises an error now rather than after hours of computation
        with self.lock(key):
            self._under_way[key] = checkpoints = self.checkpoints(key)
            self._data_digests.save()
            try:
                with self._writer(key).temporary() as folder:
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

        If the copy does not match the manifest, raises manifest.Damaged and commits nothing.
        """
        key, known = artifact.key, artifact.manifest
        facts = {name: value for name, value in known.items() if name not in manifest.SEALED}
        with self.lock(key), self._writer(key).temporary(ours=True) as folder:
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
        """Remove the local copy of an artifact in a bucket; a folder has no such copies."""
        return False

    @contextmanager
    def reading(self, keys: Iterable[str]) -> Iterator[None]:
        """Keep these artifacts while the block runs; in a folder, only `drop` removes any."""
        yield

    def drop(self, key: str) -> bool:
        """Remove an artifact that is no longer needed; keep its manifest for comparisons.

        Returns False and removes nothing while another process holds the key.
        """
        with suppress(ClaimLost), self.try_lock(key) as is_mine:
            if is_mine and self.has(key):
                self.checkpoints(key).clear()  # of a process that died just after its commit
                self._remove(key)
            return is_mine
        return False

    def tidy(self, key: str) -> None:
        """Remove temporary folders of dead processes, and the checkpoints of a committed stage.

        Does nothing while another process holds the key, or if the store is read-only.
        """
        done = self.has(key) and self.checkpoints(key).steps()
        if not done and not self._disk.leftovers(key):
            return
        with suppress(StoreError), self.try_lock(key) as is_mine:  # this removes the folders
            if is_mine and done:
                self.checkpoints(key).clear()

    def checkpoints(self, key: str) -> Checkpoints:
        """Return the checkpoints of a key; inside `write`, always the same object.

        The manifest then records its seconds.
        """
        return self._under_way.get(key) or Checkpoints(self._writer(key))

    def was_interrupted(self, key: str) -> bool:
        """Return whether the key has a temporary folder."""
        return bool(self._disk.leftovers(key))

    def hash_file(self, path: str | Path) -> str:
        """Return the sha256 of a data file, which is read again only when it changes.

        Raises DataError if the file cannot be read.
        """
        return self._data_digests.digest(Path(path))

    def distrust_digests(self) -> None:
        """Read each data file again, whatever is known of it."""
        self._data_digests.distrust()

    def cut_file(self, path: Path, size: int, unit: Unit) -> Sequence[Cut]:
        """Return the cuts of a data file, as `cuts.scan`, but read again only when it changes."""
        return self._data_digests.cuts(path, size, unit)

    def records(self, dropped: bool = True) -> list[Json]:
        """Return the manifests of all artifacts, and of dropped ones unless `dropped` is False."""
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

    def _writer(self, key: str) -> KeyWriter:
        return KeyWriter(self._disk, self._locks, key)

    def _remove(self, key: str) -> None:
        """Remove an artifact, but keep its manifest unless that is damaged."""
        found, writer = self.peek(key), self._writer(key)
        if found is not None:
            with writer.temporary(ours=True) as folder:
                manifest.write_json(folder / manifest.NAME, found)
                dropped = self._disk.folder("dropped") / f"{key}.json"
                writer.place(folder / manifest.NAME, dropped)
        with self._artifact_digests.removing(key):
            writer.discard(self.path(key))

    def _load(self, key: str) -> Artifact | None:
        folder = self.path(key)
        if not folder.exists():
            return None
        with self._disk.explained():
            found = manifest.read(folder, key=key)
            self._artifact_digests.check(key, found)
        return Artifact(key, folder, found)

    def _load_or_quarantine(self, key: str) -> Artifact | None:
        try:
            return self._load(key)
        except manifest.Damaged as damage:
            self._quarantine(key)
            _log.warning("an artifact is damaged and will be computed again: %s", damage)
            return None

    def _quarantine(self, key: str) -> None:
        """Move a damaged artifact to quarantine/."""
        with self._artifact_digests.removing(key):
            self._writer(key).quarantine(self.path(key), key)

    def _commit(self, key: str, temporary: Path, facts: Mapping[str, Json]) -> None:
        digest_of = partial(self._artifact_digests.digest_new, temporary)
        try:
            with self._disk.explained():
                sealed = manifest.seal(temporary, facts, digest_of)
            first = self._publish(key, temporary, sealed)
        finally:
            self._artifact_digests.forget(temporary)
        if first is not None and (names := manifest.differences(first, sealed)):
            _log.error(
                "%s was computed twice, on %s and on %s, with different results (%s): the first is "
                "kept; its stage is not deterministic, or the machines differ",
                facts["record"].get("kind", key[:12]),
                first["machine"]["name"],
                sealed["machine"]["name"],
                ", ".join(names),
            )

    def _publish(self, key: str, temporary: Path, sealed: Json) -> Json | None:
        """Commit a sealed folder, unless there is an artifact already; return its manifest then."""
        earlier = self.get(key)
        if earlier is not None:
            return earlier.manifest
        self._keep(key, temporary, sealed)
        return None

    def _keep(self, key: str, temporary: Path, sealed: Json) -> None:
        """Rename a sealed folder to that of its artifact."""
        self._writer(key).place(temporary, self._disk.folder("artifacts") / key)
        self._artifact_digests.commit(key, temporary, sealed)

    def _record(self, name: str, key: str) -> Json | None:
        """Return a key's manifest in a sub-folder, or None; the files are not checked."""
        return upkeep.record(self.root, name, key)


def available(store: Store, key: str, what: str) -> Artifact:
    """Return an artifact of a finished run; raises StoreError when the store lacks it."""
    found = store.get(key)
    if found is None:
        raise StoreError(
            f"store {store.place}: does not hold {what}: name the store of that run with --store, "
            "or run its experiment again"
        )
    return found
