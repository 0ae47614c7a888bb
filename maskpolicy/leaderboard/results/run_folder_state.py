"""Whether a folder is that of a run, and whether its files are all of one run of the command."""

from __future__ import annotations

import fcntl
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path

from maskpolicy.core.errors import ConfigError, DataError, StoreError
from maskpolicy.core.files import (
    PART,
    check_folder,
    claim_folder,
    nearest_folder,
    part_of,
    sync,
    write_file,
)
from maskpolicy.experiment import verbatim
from maskpolicy.experiment.verbatim import WrittenExperiment

BEING_WRITTEN = ".being-written"
NAMES = (  # of all that a run leaves in its folder, as patterns
    *(verbatim.WRITTEN, "experiment.json", "run.json", "leaderboard.*", BEING_WRITTEN, f"*{PART}"),
    *("logs", "results", "predictions", "steps", "questions", "analyses"),
)
_TEXT = b"`maskpolicy run` was writing this folder; the same command writes it again.\n"


def check(folder: Path, asked: WrittenExperiment | None = None) -> None:
    """Raise StoreError unless a run can write to a folder; creates nothing.

    A run writes and removes files by name. It therefore takes no folder with other files, and none
    that has the results of another experiment than the one that is `asked`. A run's folder whose
    experiment was lost with the power is taken, whichever experiment that was.
    """
    check_folder(folder)
    if not folder.is_dir():
        return
    others = any(not path.name.endswith(PART) for path in folder.iterdir())
    if others and not _is_of_run(folder):
        raise StoreError(f"{folder}: holds files of another origin: choose another --out")
    if asked is not None:
        check_owner(folder, asked)


def _is_of_run(folder: Path) -> bool:
    """Return whether a run has written to a folder, perhaps one that lost power."""
    if verbatim.is_saved(folder):
        return True
    was_writing = (folder / BEING_WRITTEN).exists() and not (folder / verbatim.WRITTEN).exists()
    if not (was_writing or verbatim.is_lost(folder)):
        return False
    names = [path.name for path in folder.iterdir()]
    return all(any(fnmatch(name, pattern) for pattern in NAMES) for name in names)


def check_owner(folder: Path, asked: WrittenExperiment) -> None:
    """Raise StoreError for a folder with the results of another experiment."""
    if owner := owner_of(folder, asked):
        raise StoreError(f"{folder}: holds the results of {owner}: choose another --out")


def owner_of(folder: Path, asked: WrittenExperiment) -> str:
    """Return the name or file of another experiment whose results a folder holds, or ""."""
    file = verbatim.other_file(folder, asked)
    if file is None:
        return ""
    here = Path.cwd()
    shown = file.relative_to(here) if file.is_relative_to(here) else file
    return verbatim.name_of(file) or str(shown)


def check_labels(folder: Path, labels: Sequence[str]) -> None:
    """Raise ConfigError if two labels differ only in case, and so do not have files of their own.

    On a disk that tells case apart, they do.
    """
    alike = Counter(label.casefold() for label in labels)
    same = sorted((each for each in labels if alike[each.casefold()] > 1), key=str.casefold)
    if same and _ignores_case(nearest_folder(folder)):
        raise ConfigError(
            f"{folder}: the labels {same[0]} and {same[1]} differ only in case, and this disk "
            "would give them the same files: change one of them"
        )


def _ignores_case(folder: Path) -> bool:
    probe = part_of(folder / "Case")
    probe.touch()
    try:
        return probe.with_name(probe.name.swapcase()).exists()
    finally:
        probe.unlink(missing_ok=True)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Mark a folder while its files are replaced: if the block fails or is killed, it stays so.

    A command that writes the same folder waits, so that all files are those of one of both.
    """
    mark = folder / BEING_WRITTEN
    with _alone(folder):
        write_file(mark, _TEXT)
        sync(folder)
        yield
        sync(folder)
        mark.unlink(missing_ok=True)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lock a folder against other processes, as far as its file system can."""
    claim_folder(folder)
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # e.g. on NFS
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def check_whole(folder: Path) -> None:
    """Raise DataError for a folder whose files may be of two runs of the command."""
    if (folder / BEING_WRITTEN).exists():
        raise DataError(
            f"{folder}: is being written, or its command ended while it wrote: wait for the "
            "command, or give it again"
        )
