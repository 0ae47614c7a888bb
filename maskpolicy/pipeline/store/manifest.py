"""MANIFEST.json lists the files of a finished folder with their digests; it is written last."""

from __future__ import annotations

import json
import os
import platform
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath
from typing import Any

from maskpolicy.core import hardware
from maskpolicy.core.errors import StageError, StoreError
from maskpolicy.core.files import sha256, sync
from maskpolicy.core.keys import digest, digest_parsed
from maskpolicy.core.types import Json
from maskpolicy.core.version import VERSION
from maskpolicy.experiment.budgets import ON_GPU, block_of

NAME = "MANIFEST.json"
FORMAT = 1
KEYED_BY = ("kind", "version", "params", "inputs")  # of a stage's record: its key is their digest
RUN = "run"  # fact of a packed run: its name
FINDINGS, KEYED = "analysis", "keyed"  # the kind of findings, and what digests to their key
SEALED = ("format", "files", "sha256")  # what `seal` adds to the facts
PACKAGES = (
    *("torch", "transformers", "tokenizers", "accelerate", "safetensors", "datasets"),
    *("evaluate", "spacy", "numpy", "scipy", "higher", "bm25s"),
)
_ROUNDING = (  # variables that choose instructions or threads, and so the order of sums
    *("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "MKL_CBWR"),
    *("MKL_ENABLE_INSTRUCTIONS", "MKL_NUM_THREADS", "OPENBLAS_CORETYPE", "OPENBLAS_NUM_THREADS"),
)
_OF_CHECKPOINTS: dict[str, Any] = {"key": str, "seconds": int | float, "files": list}
_OF_ARTIFACTS = _OF_CHECKPOINTS | {"record": dict, "machine": dict}
_OF_RUNS = {RUN: str, "files": list}
_SHA256 = re.compile("[0-9a-f]{64}")


class Damaged(StoreError):
    """The files of a folder do not match its manifest."""


def seal(folder: Path, facts: Mapping[str, Json]) -> Json:
    """Flush a finished folder to disk, then write its manifest, and return the manifest.

    The manifest has `facts`, the list of files (path, size, sha256) and its own digest. Raises
    StageError for a link or special file, and for a file with the manifest's name.
    """
    if (folder / NAME).exists():
        raise StageError(f"a stage must not write {NAME}: choose another name for that file")
    files, folders = list[Path](), [folder]
    allowed = folder.stat().st_mode & 0o666  # by the user's umask; safetensors ignores it
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise StageError(f"{path.relative_to(folder)}: a stage may write only plain files")
        if path.is_dir():
            folders.append(path)
            continue
        mode = path.stat().st_mode
        if mode & allowed != allowed:
            with suppress(PermissionError):  # a link to a file of another user
                path.chmod(mode | allowed)
        sync(path)
        files.append(path)
    for path in folders:
        sync(path)
    manifest = describe(folder, files, facts)
    write_json(folder / NAME, manifest)
    sync(folder)
    return manifest


def describe(folder: Path, files: Iterable[Path], facts: Mapping[str, Json]) -> dict[str, Json]:
    """Return the manifest of these files of a folder, with `facts` and its own digest."""
    named = [(path.relative_to(folder).as_posix(), path) for path in files]
    entries = [{"path": n, "size": p.stat().st_size, "sha256": sha256(p)} for n, p in named]
    manifest = {"format": FORMAT, **facts, "files": entries}
    return manifest | {"sha256": digest(manifest)}


def write_json(path: Path, value: Json) -> None:
    """Write a manifest and flush it to disk."""
    path.write_bytes(encode(value))
    sync(path)


def parse(path: Path, **expected: Json) -> Json:
    """Return the manifest in a file; raises Damaged if it is missing, or what `decode` raises."""
    try:
        return decode(path.read_bytes(), str(path), **expected)
    except (FileNotFoundError, NotADirectoryError):
        raise Damaged(f"{path} is missing") from None


def encode(manifest: Json) -> bytes:
    """Return the bytes of a manifest's file."""
    return f"{json.dumps(manifest, indent=1, allow_nan=False)}\n".encode()


def decode(content: bytes, place: str, **expected: Json) -> Json:
    """Return the manifest that `encode` wrote; raises Damaged, which names its `place`.

    `expected` are facts that the manifest must contain. As a stranger may have written it, types
    are checked, and paths must not lead out of the folder.
    """
    try:
        manifest = json.loads(content)
        rest = {name: value for name, value in manifest.items() if name != "sha256"}
        facts = (manifest.get("format"), manifest.get("sha256"))
        is_whole = facts == (FORMAT, digest_parsed(rest))
    except (ValueError, RecursionError, AttributeError) as error:  # no JSON mapping
        raise Damaged(f"{place} is not a manifest") from error
    if not is_whole:
        raise Damaged(f"{place} was changed after it was written")
    wanted = _OF_CHECKPOINTS if "step" in manifest else _OF_ARTIFACTS
    wanted = _OF_RUNS if RUN in expected else wanted
    for name, kind in wanted.items():
        if not isinstance(manifest.get(name), kind):
            raise Damaged(f"{place} has no {name} as the store writes it")
    for entry in manifest["files"]:
        if not _is_file(entry):
            raise Damaged(f"{place} lists a file that no stage writes, or outside of its artifact")
    for name, value in expected.items():
        if manifest.get(name) != value:
            raise Damaged(f"{place} belongs elsewhere: its {name} is not {value}")
    return manifest


def compare_key(manifest: Json, place: str, whole: bool = True) -> None:
    """Raise Damaged unless an artifact's key is the digest of the keyed facts of its record.

    With `whole`, a record that lacks one of them is damaged. Early findings, which have neither
    `KEYED` nor the machine's settings, cannot be compared.
    """
    record = manifest["record"]
    keyed: Json = {name: record.get(name) for name in KEYED_BY}
    if record.get("kind") == FINDINGS:
        if KEYED not in record and "settings" not in manifest["machine"]:
            return
        keyed = record.get(KEYED)
    elif not whole and not record.keys() >= keyed.keys():
        return
    if digest_parsed(keyed) != manifest["key"]:
        raise Damaged(f"{place} belongs elsewhere: its key is not that of its record")


def _is_file(entry: Json) -> bool:
    """Return whether an entry of a manifest describes a file inside its folder."""
    if not isinstance(entry, dict):
        return False
    path, size, sha = (entry.get(name) for name in ("path", "size", "sha256"))
    if not (isinstance(path, str) and type(size) is int and isinstance(sha, str)):
        return False
    plain = PurePosixPath(path)
    inside = not plain.is_absolute() and ".." not in plain.parts and path not in (".", NAME)
    return (
        (inside and str(plain) == path and not set("\\\0") & set(path))
        and size >= 0
        and _SHA256.fullmatch(sha) is not None
    )


def differences(first: Json, second: Json) -> list[str]:
    """Return the names of files that two manifests list with different contents."""
    one, two = ({(each["path"], each["sha256"]) for each in m["files"]} for m in (first, second))
    return sorted({path for path, _ in one ^ two})


def gpus(*manifests: Json) -> str:
    """Return the GPUs on which artifacts were computed; "" if they should have the same bytes."""
    machines = (each["machine"] for each in manifests)
    return " and ".join(sorted({str(each["gpu"]) for each in machines if "gpu" in each}))


def read(folder: Path, **expected: Json) -> Json:
    """Return the manifest of a folder whose files match it by name and size.

    `expected` are facts that the manifest must contain. Raises Damaged.
    """
    manifest = parse(folder / NAME, **expected)
    try:
        names = misfits(folder, manifest)
    except FileNotFoundError as error:
        raise Damaged(f"{folder} was removed while it was read") from error
    if names:
        raise Damaged(f"{folder / names[0]} does not match its manifest")
    return manifest


def misfits(folder: Path, manifest: Json) -> list[str]:
    """Return the names of files that differ in size from a manifest, or exist on one side only."""
    listed = {(entry["path"], entry["size"]) for entry in manifest["files"]}
    return sorted({name for name, _ in listed ^ set(_present(folder, dict(listed)))})


def verify(folder: Path, manifest: Json, digest_of: Callable[[Path], str]) -> None:
    """Compare the sha256 of every file with the manifest; raises Damaged."""
    for entry in manifest["files"]:
        path = folder / entry["path"]
        with suppress(FileNotFoundError):
            if digest_of(path) == entry["sha256"]:
                continue
        raise Damaged(f"{path} does not match its manifest")


def _present(folder: Path, listed: Container[str]) -> Iterator[tuple[str, int]]:
    """Yield name and size of each file, without hidden files that desktops and file systems add."""
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if name == NAME or (path.is_dir() and not path.is_symlink()):
            continue
        if name in listed or not path.name.startswith("."):
            about = path.lstat()
            yield name, about.st_size if stat.S_ISREG(about.st_mode) else -1  # -1: e.g. a link


def surroundings(kind: str = "") -> dict[str, Json]:
    """Return versions, commit and machine, which are in manifests but not in keys.

    The machine has a "gpu" if a kind of stage that uses GPUs was computed on one.
    """
    torch = sys.modules.get("torch")
    machine = {
        "name": platform.node(),
        "system": platform.platform(),
        "cpus": os.cpu_count(),
        "threads": str(torch.get_num_threads()) if torch else os.environ.get("OMP_NUM_THREADS"),
        "settings": {name: os.environ[name] for name in _ROUNDING if name in os.environ},
    }
    if block_of(kind) in (*ON_GPU, "annotate") and (gpu := hardware.gpu_in_use()):
        machine["gpu"] = gpu
    return {"versions": _versions(), "commit": _commit(), "machine": machine}


@cache
def _versions() -> dict[str, str]:
    versions = {"maskpolicy": VERSION, "python": platform.python_version()}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


@cache
def _commit() -> str | None:
    """Return the commit of maskpolicy's checkout, with "-dirty" for an edited one, or None."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        done = subprocess.run(
            [*command, "--exclude=*"],
            capture_output=True,
            text=True,
            timeout=10,
            env=os.environ | {"GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
