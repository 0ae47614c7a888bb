"""Write files atomically, and read them with errors of one line."""

from __future__ import annotations

import errno
import fcntl
import glob
import hashlib
import json
import os
import re
import resource
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from maskpolicy.core.errors import ConfigError, DataError, StoreError
from maskpolicy.core.types import Json

PART = ".part"  # ends the name of a file that is being written
_DAY = 86_400  # seconds
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NOTHING_LEFT = 1 << 16  # bytes; a disk with less free space counts as full
_ABSOLUTE = re.compile(r"(?:file://|(?<![\w./~:<-]))(?:/[^\s/'\"`:;,()\[\]{}<>]+){2,}")


def with_home(path: str | os.PathLike[str]) -> str:
    """Return a path whose ~ is the user's folder; as it is if the user has none."""
    return os.path.expanduser(path)  # noqa: PTH111 - Path raises an error then


def sha256(path: Path) -> str:
    """Return the sha256 of a file's bytes, as 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_times(paths: Iterable[Path]) -> tuple[int, ...]:
    """Return sizes and times of files, and of the links that they may be.

    Unlike a digest, they show a change that was undone: each write sets the ctime to now.
    """
    facts = (of for path in paths for of in (path.stat(), path.lstat()))
    return tuple(n for of in facts for n in (of.st_size, of.st_mtime_ns, of.st_ctime_ns))


def files_below(folder: Path, above: frozenset[Path] = frozenset()) -> list[Path]:
    """Return all files in a folder and its sub-folders, sorted; follows links, but no loops.

    `above` are the resolved folders that `folder` lies in. Raises DataError for a folder that
    cannot be read.
    """
    above |= {folder.resolve()}
    files: list[Path] = []
    try:
        for path in sorted(folder.iterdir()):
            if path.is_file():
                files.append(path)
            elif path.is_dir() and path.resolve() not in above:
                files += files_below(path, above)
    except OSError as error:
        raise DataError(f"{folder}: cannot be read: {error.strerror}") from error
    return files


def weights_in(folder: Path) -> list[Path]:
    """Return the files of weights that Transformers may read from a model's folder.

    These are at its top, or named by an index or by `transformers_weights` in config.json. Raises
    ConfigError for a name that leads out of the folder.
    """
    weights = {*folder.glob("*.safetensors"), *folder.glob("*.bin")}
    indexes = (*folder.glob("*.safetensors.index.json"), *folder.glob("*.bin.index.json"))
    sources = sorted(indexes)
    config = json_or_none(folder / "config.json")  # Transformers names what is wrong with it
    name = config.get("transformers_weights") if isinstance(config, dict) else None
    if isinstance(name, str):
        sources.append(_inside(folder, name, folder / "config.json"))
    weights |= {path for path in sources if path.suffix != ".json" and path.is_file()}
    for index in sources:
        content = json_or_none(index) if index.suffix == ".json" else None
        shards = content.get("weight_map") if isinstance(content, dict) else None
        names = shards.values() if isinstance(shards, dict) else ()
        weights |= {_inside(folder, str(name), index) for name in names}
    return sorted(path for path in weights if path.is_file())


def _inside(folder: Path, name: str, index: Path) -> Path:
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise ConfigError(
            f"{index}: names weights outside of its folder ({name}): save the model again with "
            "save_pretrained, which puts all files into one folder"
        )
    return folder / name


def temporary_fault(error: BaseException, other: Path | None = None) -> str:
    """Return a message for an error about a full folder of temporary files, or "" for any other.

    An error that names no file is about that folder if `other`, where the command writes, has room
    on another disk. Without `other`, the message names both possibilities.
    """
    if not isinstance(error, OSError):
        return ""
    advice = "free some space, or let $TMPDIR name a folder with room"
    if "No usable temporary directory" in str(error):
        return f"{error.strerror}: {advice}"
    if error.errno not in FULL:
        return ""
    folder = Path(tempfile.gettempdir())
    if error.filename is not None:
        name = Path(os.fsdecode(error.filename))
        inside = name.relative_to(folder).parts if name.is_relative_to(folder) else ()
        is_there = bool(inside) and inside[0].startswith(tempfile.gettempprefix())
    elif other is not None:
        there = nearest_folder(other)
        is_other = folder.stat().st_dev != there.stat().st_dev and has_room(there)
        is_there = error.errno == errno.ENOSPC and is_other
    else:
        return f"the output, or the folder of temporary files {folder} ($TMPDIR): {error.strerror}"
    told = f"the folder of temporary files, {folder}, is full ({error.strerror}): {advice}"
    return told if is_there else ""


def has_room(folder: Path) -> bool:
    """Return whether the disk of a folder has some free space."""
    return shutil.disk_usage(folder).free >= _NOTHING_LEFT


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def nearest_folder(path: Path) -> Path:
    """Return a path if it exists, or else the nearest of its parents that does."""
    return next((each for each in (path, *path.parents) if each.exists()), path)


def check_folder(folder: Path, marks: Sequence[str] = ()) -> None:
    """Raise StoreError unless results can be written to a folder; creates nothing.

    With `marks`, a folder that is not empty must contain one of these names.
    """
    if folder.exists() and not folder.is_dir():
        raise StoreError(f"{folder}: is a file, not a folder: choose another --out")
    if marks and folder.is_dir():
        there = {path.name for path in folder.iterdir()}
        if there and not there & set(marks):
            raise StoreError(f"{folder}: holds other files: choose another --out")
    near = nearest_folder(folder)
    if near == folder and not os.access(folder, os.W_OK):
        raise StoreError(f"{folder}: cannot be written: choose another --out")
    if not near.is_dir() or not os.access(near, os.W_OK):
        why = "cannot be written" if near.is_dir() else "is a file"
        raise StoreError(f"{folder}: cannot be created: {near} {why}; choose another --out")


def claim_folder(folder: Path, marks: Sequence[str] = ()) -> None:
    """Create a folder for results; raises StoreError if it cannot be used (see `check_folder`)."""
    check_folder(folder, marks)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"{folder}: cannot be created: {error.strerror}; choose another --out"
        ) from error


@contextmanager
def locked(folder: Path) -> Iterator[bool]:
    """Wait for other processes that lock a folder, and lock it; leaves no lock file.

    Yields False where the file system does not support locks, e.g. on NFS.
    """
    handle, is_locked = os.open(folder, os.O_RDONLY), False
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
            is_locked = True
        yield is_locked
    finally:
        os.close(handle)


def link(source: Path, target: Path) -> None:
    """Give a finished file a second name; copy it if the file system has no links."""
    try:
        os.link(source, target)
    except OSError:  # another file system, too many links, or a file of another user
        shutil.copyfile(source, target)


def allow_files(count: int) -> None:
    """Let this process open `count` files at a time, or as many as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))


@contextmanager
def writing_to(path: Path, option: str = "--out") -> Iterator[None]:
    """Raise StoreError, which names the `option` that gave the path, for errors of the system."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise StoreError(f"{path}: cannot be written: {reason}; choose another {option}") from error


def write_file(path: Path, data: bytes, option: str = "--out") -> None:
    """Write a file atomically and flush it to disk; raises StoreError as `writing_to` does."""
    temporary = part_of(path)
    try:
        with writing_to(path, option):
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(data)
            sync(temporary)
            temporary.replace(path)
    finally:
        with suppress(OSError):
            temporary.unlink()  # there is none once it is renamed


def part_of(path: Path) -> Path:
    """Return a new path, to which a file is written before it is renamed to `path`."""
    return path.with_name(f".{path.name}.{uuid4().hex}{PART}")


def parts_of(path: Path) -> Iterator[Path]:
    """Yield what commands that were killed left of a file or folder that they wrote."""
    yield from path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 32}{PART}")


def remove_parts(folder: Path, name: str = "", is_locked: bool = False) -> None:
    """Remove half-written files, or only those of the file `name`, that nobody writes any more.

    Where other processes may be writing (not `is_locked`), only those that are older than a day.
    """
    for path in parts_of(folder / name) if name else folder.glob(f".*{PART}"):
        with suppress(OSError):
            if is_locked or time.time() - path.lstat().st_mtime > _DAY:
                path.unlink()


def read_json(path: Path, advice: str = "remove it and run again") -> Json:
    """Return the value of a JSON file; raises DataError with its path and advice."""
    try:
        if path.exists() and not path.is_file():
            raise DataError(f"{path}: is not a regular file: remove it")
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not JSON: {error}; {advice}") from error


def json_lines(path: Path) -> Iterator[Json]:
    """Yield the value of each line of a file of JSON Lines that maskpolicy wrote."""
    with path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def json_or_none(path: Path) -> Json:
    """Return the value of a JSON file, or None if it cannot be read."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


def json_bytes(value: Json) -> bytes:
    """Return the bytes of a JSON file with sorted keys."""
    text = json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True, allow_nan=False)
    return f"{text}\n".encode()


def slug(label: str) -> str:
    """Return a label for use in a file name; adds a digest if it had to replace characters."""
    safe = re.sub(r"[^A-Za-z0-9._=-]+", "-", label)[:80]
    if safe == label and "--" not in label and not label.startswith("."):
        return label
    return f"{safe.strip('.-')}-{hashlib.sha256(label.encode()).hexdigest()[:8]}"


def name_of(path: Path) -> str:
    """Return the name of a file or folder, also that of "." and ".."; a link has its own."""
    return path.name if path.name not in ("", "..") else path.resolve().name


def from_here(path: str | Path) -> str:
    """Return a path relative to the working directory if it is inside, else unchanged."""
    here = Path.cwd()
    return str(Path(path).relative_to(here) if Path(path).is_relative_to(here) else path)


def relative_paths(value: Json, home: Path) -> Json:
    """Return text, or JSON with texts, without absolute paths, for files that are shared.

    A path near the folder `home` becomes relative to it; any other is reduced to its name.
    """
    if isinstance(value, str):
        return _ABSOLUTE.sub(lambda match: _relative(match[0], home), _near(value, home.resolve()))
    if isinstance(value, list | tuple):
        return [relative_paths(each, home) for each in value]
    if isinstance(value, dict):
        return {key: relative_paths(each, home) for key, each in value.items()}
    return value


def _near(text: str, home: Path) -> str:
    """Return text in which folders that hold `home` are relative to it, whatever their names."""
    for parent in (home, *home.parents) if "/" in text else ():
        if len(parent.parts) > 2 and f"{parent}/" in text:
            up = os.path.relpath(parent, home)
            begin = re.compile(rf"(?<![\w./~:<-])(?:file://)?{re.escape(str(parent))}/(?=\S)")
            text = begin.sub("" if up == "." else f"{up}/", text)
    return text


def _relative(path: str, home: Path) -> str:
    target, start = Path(path.removeprefix("file://")), home.resolve()
    shared = os.path.commonpath([target, start])
    is_near = len(Path(shared).parts) > 2  # deeper than /home or /tmp
    return os.path.relpath(target, start) if is_near else f"…/{target.name}"
