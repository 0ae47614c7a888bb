"""Write files whole or not at all, and read them back with errors of one line."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from maskpolicy.errors import DataError, StoreError
from maskpolicy.types import Json

PART = ".part"  # ends the name of a file that is being written, after the writer's process


def sha256(path: Path) -> str:
    """Return the sha256 of a file's bytes, 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def claim_folder(folder: Path, marks: Sequence[str] = ()) -> None:
    """Make a folder for results before hours of work, not after; raises StoreError.

    With `marks`, a folder that holds anything must hold one of these: it is not somebody's else.
    """
    if folder.exists() and not folder.is_dir():
        raise StoreError(f"{folder}: is a file, not a folder: choose another --out")
    if marks and folder.is_dir():
        there = {path.name for path in folder.iterdir()}
        if there and not there & set(marks):
            raise StoreError(f"{folder}: holds other files than this writes: choose another --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"{folder}: cannot be made: {error.strerror}; choose another --out"
        ) from error
    if not os.access(folder, os.W_OK):
        raise StoreError(f"{folder}: cannot be written: choose another --out")


def write_file(path: Path, data: bytes, option: str = "--out") -> None:
    """Write a file whole or not at all, flushed to disk; StoreError names the `option` it is of."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}{PART}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        reason = error.strerror or type(error).__name__
        raise StoreError(f"{path}: cannot be written: {reason}; choose another {option}") from error


def read_json(path: Path) -> Json:
    """Return what a JSON file holds; raises DataError that names it."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise DataError(f"{path}: not JSON: {error}; remove it and run again") from error


def json_bytes(value: Json) -> bytes:
    """Return a JSON file that is the same for equal values, whatever the order of their keys."""
    text = json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True, allow_nan=False)
    return f"{text}\n".encode()


def slug(label: str) -> str:
    """Return a label as part of a file name; one that had to be changed gets a digest."""
    made = re.sub(r"[^A-Za-z0-9._=-]+", "-", label)[:80]
    if made == label and "--" not in label and not label.startswith("."):
        return label
    return f"{made.strip('.-')}-{hashlib.sha256(label.encode()).hexdigest()[:8]}"
