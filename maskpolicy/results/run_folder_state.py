"""Whether a folder is that of a run, and whether its files are all of one run of the command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from maskpolicy.config import verbatim
from maskpolicy.errors import DataError, StoreError
from maskpolicy.files import PART, claim_folder, sync, write_file

BEING_WRITTEN = ".being-written"
_TEXT = b"`maskpolicy run` was writing this folder; the same command writes it again.\n"


def claim(folder: Path) -> None:
    """Create the folder of a run, or take one that a run has written to.

    Raises StoreError for a folder with other files: a run writes and removes files by name.
    """
    claim_folder(folder)
    others = any(not path.name.endswith(PART) for path in folder.iterdir())
    if others and not verbatim.is_saved(folder):
        raise StoreError(f"{folder}: holds files of another origin: choose another --out")


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Mark a folder while its files are replaced: if the block fails or is killed, it stays so."""
    mark = folder / BEING_WRITTEN
    write_file(mark, _TEXT)
    sync(folder)
    yield
    sync(folder)
    mark.unlink(missing_ok=True)


def check_whole(folder: Path) -> None:
    """Raise DataError for a folder whose files may be of two runs of the command."""
    if (folder / BEING_WRITTEN).exists():
        raise DataError(
            f"{folder}: is being written, or its command ended while it wrote: wait for the "
            "command, or give it again"
        )
