"""Resolve Hub names to commits; read the cache at once if the Hub cannot be reached."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from http.client import HTTPException
from importlib import import_module
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import shorten
from typing import Any, Literal
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from maskpolicy.core.errors import ConfigError, DataError

_COMMIT = re.compile("[0-9a-f]{40}")
_TIMEOUT = 5.0  # seconds in which the Hub must answer anything
_LONGEST = 200  # characters of a reason
_ADVICE: dict[str, tuple[type[ConfigError | DataError], str, str]] = {
    "model": (ConfigError, "model", "give a folder, or a revision that is in the cache"),
    "dataset": (DataError, "dataset", "name files, or the full commit of a cached copy"),
}


def commit(
    kind: Literal["model", "dataset"], name: str, revision: str | None, where: str = ""
) -> str:
    """Return the commit of a revision, from the Hub or, without a network, from the cache.

    A commit is returned unchanged. Raises ConfigError (model) or DataError (dataset) if the commit
    cannot be found; the message names the key `where`.
    """
    if revision and _COMMIT.fullmatch(revision):
        return revision
    try:
        return _resolved(kind, name, revision)
    except LookupError as error:
        fault, what, advice = _ADVICE[kind]
        place = f"{where}:" if where else what
        raise fault(f"{place} {name}: its commit cannot be resolved: {error} ({advice})") from error


def forget_commits() -> None:
    """Ask the Hub again for the commits of branches and tags, which may have moved."""
    _resolved.cache_clear()


@lru_cache(maxsize=32)
def _resolved(kind: Literal["model", "dataset"], name: str, revision: str | None) -> str:
    """Return the commit of a branch or tag; raises LookupError with the reason for none."""
    from huggingface_hub import HfApi

    unreachable: tuple[type[Exception], ...] = (ConnectionError, *_http_errors("TransportError"))
    try:
        with access():
            sha = HfApi().repo_info(name, revision=revision, repo_type=kind, timeout=20).sha
    except unreachable:
        _, noted = _places(kind, name, revision)  # by the last download
        commit = noted.read_text().strip() if noted.is_file() else ""
        sha = commit if _COMMIT.fullmatch(commit) else None
        why = "the Hub cannot be reached, and its cache here holds no copy"
    except failures() as error:
        sha, why = None, reason(error)
    else:
        why = "the Hub names none"
    if sha is None:
        raise LookupError(why)
    return sha


def model_config(name: str, revision: str | None) -> dict[str, Any]:
    """Return the config.json of a model's folder or Hub name; {} if it cannot be read."""
    from huggingface_hub import hf_hub_download

    try:
        path = Path(name, "config.json")
        if not Path(name).is_dir():
            with access():
                path = Path(hf_hub_download(name, "config.json", revision=revision))
        config = json.loads(path.read_text(encoding="utf-8"))
    except failures():
        return {}  # loading the model raises an error that says why
    return config if isinstance(config, dict) else {}


@contextmanager
def access() -> Iterator[None]:
    """Let the Hub's libraries read only their caches if the Hub does not answer.

    Otherwise they would retry for more than a minute and print their own messages.
    """
    from huggingface_hub import constants, is_offline_mode

    if is_offline_mode() or is_reachable(constants.ENDPOINT):
        yield
        return
    # HF_HUB_OFFLINE sets this switch when the libraries are imported; there is no other one
    switches = [vars(constants)]
    if "datasets.config" in sys.modules:
        switches.append(vars(sys.modules["datasets.config"]))
    before = [switch["HF_HUB_OFFLINE"] for switch in switches]
    try:
        for switch in switches:
            switch["HF_HUB_OFFLINE"] = True
        yield
    finally:
        for switch, value in zip(switches, before, strict=True):
            switch["HF_HUB_OFFLINE"] = value


def is_reachable(endpoint: str) -> bool:
    """Return whether a server answers within _TIMEOUT seconds, whatever the answer is."""
    import ssl

    try:
        with urlopen(Request(endpoint, method="HEAD"), timeout=_TIMEOUT):
            return True
    except (HTTPError, HTTPException):
        return True
    except OSError as error:
        return isinstance(getattr(error, "reason", None), ssl.SSLError)  # it has answered


@contextmanager
def dataset(
    name: str, subset: str | None, split: str, revision: str | None, stream: bool = False
) -> Iterator[Any]:
    """Load one split of a Hub dataset, or of a local folder with the same layout, for the block.

    A folder is read again each time: the library's cache tells its files by size and time alone.
    Raises DataError for a folder that names files outside of it, which are in no key, and the
    errors of the Hub's libraries; see `explained`.
    """
    import datasets

    options = {"split": split, "revision": revision, "streaming": stream}
    if not Path(name).is_dir():
        with access():
            loaded = _load(name, subset, **options)
            if datasets.config.HF_HUB_OFFLINE and revision and _COMMIT.fullmatch(revision):
                _check(loaded, revision)
        yield loaded
        return
    place = Path(datasets.config.HF_DATASETS_CACHE)
    place.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="maskpolicy-", dir=place) as cache:
        builder = datasets.load_dataset_builder(name, subset, cache_dir=cache)
        folder = Path(name).resolve()  # as the library does; links inside are in keys
        for path in chain.from_iterable((builder.config.data_files or {}).values()):
            if not Path(os.path.normpath(path)).is_relative_to(folder):
                raise DataError(
                    f"{name}: its README.md names {path}, outside of the folder: move it inside"
                )
        yield _load(name, subset, cache_dir=cache, **options)


def _load(name: str, subset: str | None, **options: Any) -> Any:
    """Load a dataset, without bars if TQDM_DISABLE was set, perhaps after tqdm was imported."""
    import datasets

    hides = "TQDM_DISABLE" in os.environ and not datasets.are_progress_bars_disabled()
    if hides:
        datasets.disable_progress_bars()
    try:
        return datasets.load_dataset(name, subset, **options)
    finally:
        if hides:
            datasets.enable_progress_bars()


@contextmanager
def explained(where: str, advice: str) -> Iterator[None]:
    """Raise a DataError of one line for errors of the Hub's libraries about a dataset.

    Without `advice`, it is a local folder.
    """
    import datasets

    try:
        yield
    except (*failures(), datasets.exceptions.DatasetsError) as error:
        told = f"from the Hub: {reason(error)} (without a network, {advice})"
        told = told if advice else f"as a dataset of files: {reason(error)}"
        raise DataError(f"{where}: cannot be loaded {told}") from error


def failures() -> tuple[type[Exception], ...]:
    """Return the classes of errors that the Hub's libraries raise."""
    return OSError, ValueError, RuntimeError, *_http_errors("HTTPError", "InvalidURL")


def _http_errors(*names: str) -> Iterator[type[Exception]]:
    """Yield classes of errors of the HTTP libraries: the Hub's client uses httpx, later httpx2."""
    for library in ("httpx", "httpx2"):
        with suppress(ImportError):
            found = vars(import_module(library))
            yield from (found[name] for name in names)


def reason(error: Exception) -> str:
    """Return the message of an error of the Hub's libraries as one short line."""
    return shorten(str(error), _LONGEST, placeholder=" ..") or type(error).__name__


def note(
    kind: Literal["model", "dataset"], name: str, revision: str | None, commit: str | None
) -> None:
    """Write the commit of a revision to the cache, if the cache holds that commit.

    The libraries write it if they download by revision, but we download by commit.
    """
    folder, noted = _places(kind, name, revision)
    if (
        commit is None
        or not (folder / "snapshots" / commit).is_dir()
        or (revision and _COMMIT.fullmatch(revision))
    ):
        return
    with suppress(OSError):  # a read-only cache can still be used
        noted.parent.mkdir(parents=True, exist_ok=True)
        noted.write_text(commit)


def _places(kind: str, name: str, revision: str | None) -> tuple[Path, Path]:
    """Return the cache's folder of a repository, and the file with a revision's commit."""
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    folder = Path(constants.HF_HUB_CACHE, repo_folder_name(repo_id=name, repo_type=kind))
    return folder, folder / "refs" / (revision or constants.DEFAULT_REVISION)


def _check(loaded: Any, revision: str) -> None:
    """Raise ValueError if a data set is of another commit.

    Without a network, `datasets` loads the newest commit in its cache.
    """
    files = [Path(file["filename"]) for file in getattr(loaded, "cache_files", ())]
    if any(revision not in file.parts for file in files):
        raise ValueError(f"the cache holds another commit than {revision}")
