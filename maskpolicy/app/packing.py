"""Read and write runs as zip files and on the Hub; upload models to the Hub."""

from __future__ import annotations

import lzma
import re
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from maskpolicy.app.contents import CONTENTS
from maskpolicy.core import hub
from maskpolicy.core.errors import ConfigError, DataError, MaskpolicyError
from maskpolicy.core.files import FULL, PART, locked, part_of, remove_parts, writing_to
from maskpolicy.leaderboard.results.cell import read_run
from maskpolicy.pipeline.store import manifest
from maskpolicy.pipeline.store.artifacts import Store

HUB, ZIP = "hf://", ".zip"
_ON_HUB = re.compile(rf"{HUB}datasets/([^/@]+/[^/@]+)(?:@(refs/pr/\d+|[^/]*))?(?:/(.*))?")
_LEFT_OUT = "logs/"  # a tracker's files: large, and no part of the results
_DATE = (1980, 1, 1, 0, 0, 0)  # the first that zip files know, so that equal runs give equal bytes
_BROKEN = (zlib.error, lzma.LZMAError)
# what messages advise the owner of a run's folder
_ADVICE = re.compile(r"[:;] (?:remove (?:it|the file)|run (?:it|(?:the|its) experiment))\b[^:;]*$")
_FILES, _BYTES = 200_000, 4 << 30  # the most in a zip file that is read


def default_file(run: Path) -> Path:
    """Return the default zip file of a run: a__b.zip for runs/a/b."""
    folder, home = run.resolve(), Path("runs").resolve()
    parts = folder.relative_to(home).parts if folder.is_relative_to(home) else ()
    return Path(f"{'__'.join(parts) or folder.name}{ZIP}")


def pack(run: Path, out: Path) -> Path:
    """Write the files of a run's folder, without logs, to the zip file `out`, and return its path.

    The zip file has one folder, named after the run, with a manifest of the digests of all files
    for `maskpolicy verify`. Raises DataError for a folder without results, ConfigError if the run
    is packed already or `out` does not end in .zip, and StoreError if `out` cannot be written.
    """
    if out.suffix != ZIP:
        raise ConfigError(f"--out {out}: `pack` writes a zip file: end the name in {ZIP}")
    if run.is_file() and run.suffix == ZIP:
        raise ConfigError(f"{run}: is packed already: name the folder that `run` wrote")
    name = read_run(run).name
    temporary = part_of(out)
    with locked(run), writing_to(out):
        files = _files(run)
        out.parent.mkdir(parents=True, exist_ok=True)
        remove_parts(out.parent, out.name)
        try:
            with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as file:
                for path in files:
                    inside = path.relative_to(run).as_posix()
                    with path.open("rb") as source, file.open(_entry(name, inside), "w") as target:
                        shutil.copyfileobj(source, target)
                sealed = manifest.describe(run, files, {manifest.RUN: name})
                file.writestr(_entry(name, manifest.NAME), manifest.encode(sealed))
            temporary.replace(out)
        finally:
            temporary.unlink(missing_ok=True)
    return out


def _entry(name: str, inside: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(f"{name}/{inside}", _DATE)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = (stat.S_IFREG | 0o644) << 16
    return entry


def _files(run: Path) -> list[Path]:
    """Return the files that a run leaves in its folder, sorted by name."""
    patterns = [pattern for pattern in CONTENTS if pattern != _LEFT_OUT]
    return sorted(
        {
            path
            for pattern in patterns
            for path in run.glob(f"{pattern}**/*" if pattern.endswith("/") else pattern)
            if path.is_file() and not path.is_symlink() and not path.name.endswith(PART)
        }
    )


@dataclass(frozen=True)
class OpenedRuns:
    """The folders of some runs; those of packed runs exist only while the runs are open."""

    folders: tuple[Path, ...]
    packed: Mapping[Path, str]  # folder of an unpacked file -> the file as the user named it

    @property
    def kept(self) -> list[Path]:
        """The folders of runs that are not packed; their run.json may name a store."""
        return [folder for folder in self.folders if not self.is_packed(folder)]

    def called(self, folder: Path) -> str:
        """Return the folder of a run, or the packed file that it comes from."""
        files = (name for place, name in self.packed.items() if folder.is_relative_to(place))
        return next(files, str(folder))

    def is_packed(self, folder: Path) -> bool:
        """Return whether a folder comes from a packed run."""
        return any(folder.is_relative_to(place) for place in self.packed)

    def only(self) -> Path:
        """Return the folder of the only run; raises ConfigError if there are several."""
        if len(self.folders) != 1:
            names = ", ".join(dict.fromkeys(self.packed.values()))
            raise ConfigError(f"{names}: holds {len(self.folders)} runs: unpack it, and name one")
        return self.folders[0]

    def told(self, text: str) -> str:
        """Return a message without advice that only the owner of a run's folder can follow."""
        return _ADVICE.sub(": the zip has to be packed again", text) if self.packed else text

    @contextmanager
    def naming(self, store: Callable[[], Store | None] = lambda: None) -> Iterator[None]:
        """Let errors name packed files instead of the folders to which they were unpacked.

        An error that names the store, which `store` returns, adds that packed runs have none of
        their own.
        """
        try:
            yield
        except MaskpolicyError as error:
            text = named = str(error)
            for folder, name in self.packed.items():
                if str(folder) in named:
                    named = self.told(named.replace(str(folder), name))
            artifacts = store() if self.packed else None
            place = f"store {artifacts.place}" if artifacts is not None else None
            if place is not None and place in text:
                files = ", ".join(dict.fromkeys(self.packed.values()))
                named = (
                    f"{named} ({files}: a packed run has no store of its own)"
                    if self.kept  # whose artifact it may be
                    else f"{files}: a packed run has no store, and {place} lacks what "
                    "is needed here: name the store of that run with --store"
                )
            if named == text:
                raise
            raise type(error)(named) from error


@contextmanager
def opened(places: Sequence[str | Path]) -> Iterator[OpenedRuns]:
    """Open runs: folders, zip files of `pack`, or hf:// names.

    Zip files are unpacked to temporary folders, which are removed at the end of the block. Raises
    DataError for any other file, and ConfigError for a name that the Hub does not have.
    """
    with ExitStack() as stack:
        homes: list[Path] = []
        packed: dict[Path, str] = {}
        runs = OpenedRuns((), packed)
        stack.enter_context(runs.naming())
        for place in map(str, places):
            path = Path(place)
            if place.startswith(HUB):
                path = fetched(place)
                packed[path] = place
            files = _packed(path)
            for file in files:
                home = Path(stack.enter_context(tempfile.TemporaryDirectory())).resolve()
                is_new = all(other.name != file.stem for other in packed)
                # the name of the file tells apart runs of one name
                target = home / (file.stem if is_new else f"{file.stem}-{len(packed)}")
                packed[target] = str(file).replace(str(path), place, 1)
                homes += _unpacked(file, target)
            homes += [] if files else [path]
        yield OpenedRuns(tuple(homes), packed)


def fetched(place: str) -> Path:
    """Return the local folder of hf://datasets/OWNER/NAME[@REVISION][/FOLDER].

    Without a network, it is the newest copy in the cache. Raises ConfigError.
    """
    from huggingface_hub import snapshot_download

    parts = _ON_HUB.fullmatch(place)
    if parts is None or ".." in place.split("/"):
        raise ConfigError(f"{place}: write hf://datasets/OWNER/NAME, perhaps with @REVISION")
    name, revision, inside = parts.groups(default="")
    pattern = f"{inside}*" if inside else None
    try:
        with hub.access():
            folder = snapshot_download(
                name, repo_type="dataset", revision=revision or None, allow_patterns=pattern
            )
    except hub.failures() as error:
        raise ConfigError(f"{place}: cannot be fetched: {hub.reason(error)}") from error
    return Path(folder) / inside


def _packed(path: Path) -> list[Path]:
    """Return the zip files at a place; none if it is the folder of a run or model."""
    if path.suffix == ZIP and not path.is_dir():
        return [path]
    if (path / "results").is_dir() or (path / "config.json").is_file():
        return []
    return sorted(path.glob(f"*{ZIP}"))


def _unpacked(file: Path, target: Path) -> list[Path]:
    """Unpack a zip file to a folder, and return the folders of its runs; raises DataError."""
    if not file.is_file():
        raise DataError(f"{file}: no such file: name a zip file that `pack` wrote")
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
                    raise DataError(f"{file}: do not use it: {entry.filename!r} leads outside")
            packed.extractall(target)  # which writes links as files, and no more than file_size
    except (OSError, EOFError, RuntimeError, ValueError, zipfile.BadZipFile, *_BROKEN) as error:
        if isinstance(error, OSError) and error.errno in FULL:
            raise
        raise DataError(f"{file}: cannot be read as a zip file: {error}") from error
    runs = sorted(each.parent for each in target.glob("*/results") if each.is_dir())
    if not runs:
        raise DataError(f"{file}: has no folder with results: make it with `pack`")
    return runs


def push(
    path: Path,
    name: str,
    kind: Literal["model", "dataset"],
    branches: Sequence[str] = (),
    *,
    private: bool = False,
) -> str:
    """Upload a file or the files of a folder to a repository of the Hub, and return its address.

    Each folder in `branches` goes to a branch of its name. Creates the repository, `private` or
    not, if it does not exist, and replaces files of the same names if it does. `hf auth login` or
    $HF_TOKEN provides the token. Raises ConfigError if the Hub cannot be reached or rejects it.
    """
    from huggingface_hub import HfApi, constants, is_offline_mode

    if is_offline_mode():
        raise ConfigError(f"--push {name}: HF_HUB_OFFLINE is set: unset it")
    if not hub.is_reachable(constants.ENDPOINT):
        raise ConfigError(
            f"--push {name}: {constants.ENDPOINT} cannot be reached: check the network, and "
            "run the command again"
        )
    api = HfApi()
    to: dict[str, Any] = dict(repo_id=name, repo_type=kind, commit_message="Made with maskpolicy")
    try:
        address = api.create_repo(name, repo_type=kind, private=private, exist_ok=True)
        if path.is_file():
            api.upload_file(path_or_fileobj=path, path_in_repo=path.name, **to)
        else:
            others = [f"{branch}/*" for branch in branches]
            api.upload_folder(folder_path=path, ignore_patterns=others, **to)
        for branch in branches:
            api.create_branch(name, branch=branch, repo_type=kind, exist_ok=True)
            api.upload_folder(folder_path=path / branch, revision=branch, **to)
    except hub.failures() as error:
        raise ConfigError(
            f"--push {name}: {hub.reason(error)} (`hf auth login` or HF_TOKEN gives the token)"
        ) from error
    return str(address)
