"""A run's folder as one zip file, and runs from folders, zip files and the Hub."""

from __future__ import annotations

import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath

from maskpolicy import hub
from maskpolicy.errors import ConfigError, DataError, StoreError
from maskpolicy.files import PART, part_of, remove_parts
from maskpolicy.results.cell import read_run
from maskpolicy.runs.contents import CONTENTS

HUB = "hf://"
_LEFT_OUT = "logs/"  # a tracker's files: large, and no part of the results
_DATE = (1980, 1, 1, 0, 0, 0)  # the first that zip files know, so that equal runs give equal bytes
_FILES, _BYTES = 200_000, 4 << 30  # the most in a zip file that is read


def pack(run: Path, out: Path) -> Path:
    """Write what a run left in its folder, without logs, to the zip file `out`, and return it.

    It has one folder with the run's name. Raises DataError for a folder without results, and
    StoreError if the file cannot be written.
    """
    name = read_run(run).name
    temporary = part_of(out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        remove_parts(out.parent, out.name)
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as file:
            for path in _files(run):
                entry = zipfile.ZipInfo(f"{name}/{path.relative_to(run).as_posix()}", _DATE)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = (stat.S_IFREG | 0o644) << 16
                with path.open("rb") as source, file.open(entry, "w") as target:
                    shutil.copyfileobj(source, target)
        temporary.replace(out)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise StoreError(
            f"{out}: cannot be written: {error.strerror}; choose another --out"
        ) from error
    return out


def _files(run: Path) -> list[Path]:
    """Return the files that a run leaves in its folder, sorted by name."""
    patterns = [each.name for each in CONTENTS if each.name != _LEFT_OUT]
    found = [
        path
        for pattern in patterns
        for path in run.glob(f"{pattern}**/*" if pattern.endswith("/") else pattern)
        if path.is_file() and not path.is_symlink() and not path.name.endswith(PART)
    ]
    return sorted(set(found))


@contextmanager
def folders(places: Sequence[str | Path]) -> Iterator[list[Path]]:
    """Yield the folders of runs that are folders, zip files of `pack`, or hf:// names.

    What is unpacked exists for as long as the block runs. Raises DataError for a file that is no
    such zip, and ConfigError for a name that the Hub does not have.
    """
    with ExitStack() as stack:
        found: list[Path] = []
        for place in map(str, places):
            path = fetched(place) if place.startswith(HUB) else Path(place)
            found += stack.enter_context(_unpacked(path))
        yield found


def fetched(place: str) -> Path:
    """Return the local folder of hf://datasets/OWNER/NAME[@REVISION][/FOLDER].

    Without a network, it is the newest copy in the cache. Raises ConfigError.
    """
    from huggingface_hub import snapshot_download

    kind, *parts = place.removeprefix(HUB).split("/")
    if kind != "datasets" or len(parts) < 2 or ".." in parts:
        raise ConfigError(f"{place}: write hf://datasets/OWNER/NAME, perhaps with @REVISION")
    name, _, revision = "/".join(parts[:2]).partition("@")
    inside = "/".join(parts[2:])
    pattern = f"{inside}*" if inside else None
    refused: tuple[type[Exception], ...] = (OSError, ValueError, *hub.http_errors())
    try:
        with hub.access():
            folder = snapshot_download(
                name, repo_type="dataset", revision=revision or None, allow_patterns=pattern
            )
    except refused as error:
        raise ConfigError(f"{place}: cannot be fetched: {hub.reason(error)}") from error
    return Path(folder) / inside


@contextmanager
def _unpacked(path: Path) -> Iterator[list[Path]]:
    """Yield the folders of the runs in a folder or a zip file; a folder may hold zip files."""
    packed = sorted(path.glob("*.zip")) if path.is_dir() else []
    if path.suffix == ".zip":
        packed = [path]
    if not packed or (path / "results").is_dir():
        yield [path]
        return
    with tempfile.TemporaryDirectory() as temporary:
        found = []
        for number, file in enumerate(packed):
            target = Path(temporary) / str(number)
            _extract(file, target)
            runs = sorted(each.parent for each in target.glob("*/results") if each.is_dir())
            if not runs:
                raise DataError(f"{file}: has no folder with results: make it with `pack`")
            found += runs
        yield found


def _extract(file: Path, target: Path) -> None:
    """Write the files of a zip file below a folder; raises DataError for a strange one."""
    try:
        with zipfile.ZipFile(file) as packed:
            entries = packed.infolist()
            size = sum(entry.file_size for entry in entries)
            if len(entries) > _FILES or size > _BYTES:
                raise DataError(
                    f"{file}: has {len(entries)} files of {size} bytes, too many to unpack here: "
                    "unpack it, and name the folder of the run"
                )
            for entry in entries:
                name = PurePosixPath(entry.filename)
                if name.is_absolute() or ".." in name.parts or "\\" in entry.filename:
                    raise DataError(f"{file}: leads out of its folder: {entry.filename!r}")
            packed.extractall(target)  # which writes links as files, and no more than file_size
    except (OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{file}: is no zip file that can be read: {error}") from error
