"""Compare the plugin files and data files that a stage uses with the digests in its key."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from maskpolicy.errors import ConfigError, DataError
from maskpolicy.files import sha256
from maskpolicy.keys import plain
from maskpolicy.plugins import discovery, hooks, isolation, registry
from maskpolicy.plugins.discovery import code_digests, find_plugin
from maskpolicy.plugins.registry import Registered
from maskpolicy.plugins.scoring import find_metric

_WARNED: set[tuple[Path, str]] = set()  # a file and its digest in a key
log = logging.getLogger(__name__)


@contextmanager
def guarded(
    params: object,
    discard: Callable[[], None] = lambda: None,
    data: Mapping[Path, str] = MappingProxyType({}),
    digest: Callable[[Path], str] = sha256,
) -> Iterator[None]:
    """Compute a stage with these parameters; compare its files before and after.

    They are its plugin's (see `compare`), and `data`: the data files that it reads, with their
    digests in the key. `digest` returns the sha256 of a data file. Raises ConfigError also if the
    plugin was refused a file and caught that error, and DataError for a data file, also for one
    that was changed and put back. `discard` removes the stage's checkpoints: they may rest on bytes
    that are not in its key.
    """
    before = {path: _times(path) for path in data}

    def compare_all() -> None:
        compare(params)
        compare_data(data, digest)

    def compare_again() -> None:
        try:
            compare_all()
            for path, known in before.items():
                if _times(path) != known:
                    raise _changed_data(path)
        except (ConfigError, DataError):
            discard()
            raise

    compare_all()
    try:
        with isolation.checked():
            yield
    except DataError:
        compare_again()  # a row may be malformed because its file was changed
        raise
    compare_again()


def compare_data(files: Mapping[Path, str], digest: Callable[[Path], str]) -> None:
    """Raise DataError if a data file has another digest than the one in the key."""
    for path, known in files.items():
        if digest(path) != known:
            raise _changed_data(path)


def _changed_data(path: Path) -> DataError:
    return DataError(
        f"{path}: was changed while a command that reads it is under way: run the command again"
    )


def _times(path: Path) -> list[int] | None:
    """Return sizes and times of a file, and of the link that it may be; None without a file.

    Unlike a digest, they also show a change that was undone: each write sets the ctime to now.
    """
    try:
        found = (path.stat(), path.lstat())
    except OSError:
        return None
    return [value for each in found for value in (each.st_size, each.st_mtime_ns, each.st_ctime_ns)]


def compare(params: object) -> None:
    """Compare the files of the plugins that a stage's parameters name with the digests in them.

    Raises ConfigError if a file has changed and the stage may have read the new bytes. A module
    that was compiled from the bytes in the key cannot have affected the result: its change is
    logged once.
    """
    scored_by = [(getattr(params, "metric", None), getattr(params, "metric_version", 1))]
    for metric, version in [*scored_by, *getattr(params, "besides", ())]:
        if metric in registry.names("metric"):
            entry = find_plugin("metric", str(metric))
            if version not in (1, find_metric(str(metric)).version):  # imported again since
                raise ConfigError(isolation.changed(Path(entry.file)))
            compare_files(entry, code_digests(entry))
    code: Mapping[str, str] = getattr(params, "code", {})
    if code:
        policy, task = getattr(params, "policy", None), getattr(params, "task", None)
        entry = find_plugin("task", task.name) if task else find_plugin("policy", str(policy))
        compare_files(entry, code)
    if getattr(params, "depends", None) is not None:
        _compare_depends(params)
    members: Mapping[str, Mapping[str, str]] = getattr(params, "member_code", None) or {}
    for name, digests in members.items():
        compare_files(find_plugin("policy", name), digests)


def _compare_depends(params: Any) -> None:
    """Raise ConfigError if a policy's `depends` returns no longer what is in the key.

    For example, a file of the spaCy pipeline that it names was changed.
    """
    policy = discovery.instance("policy", params.policy, params.fields)
    if plain(hooks.DEPENDS.of(policy)(), "depends") != plain(params.depends, "depends"):
        raise ConfigError(
            f"policy {params.policy}: what it annotates with (a spaCy pipeline, or whatever its "
            "`depends` names) was changed while a command uses it: run the command again"
        )


def compare_files(entry: Registered, code: Mapping[str, str]) -> None:
    """Compare a plugin's files with `code`, their digests as `code_digests` returned them."""
    home = isolation.home_with(Path(entry.file))
    for name, digest in code.items():
        path = Path(os.path.normpath(discovery.folder_of(entry) / name))
        now = discovery.digest_of(entry, path)
        runs = now if home is None else home.runs(path, now)
        if runs != digest:
            raise ConfigError(isolation.changed(path))
        if now != digest and (path, digest) not in _WARNED:
            _WARNED.add((path, digest))
            log.warning(
                "plugin file %s: was changed while this command uses it: its results are those of "
                "the file before the change",
                path,
            )
