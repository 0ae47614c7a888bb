"""Compare the plugin files and data files that a stage uses with the digests in its key."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from maskpolicy.core.errors import ConfigError, DataError
from maskpolicy.core.files import file_times, sha256
from maskpolicy.core.keys import plain
from maskpolicy.core.schema import fields_of
from maskpolicy.plugins import discovery, hooks, isolation, registry
from maskpolicy.plugins.discovery import code_digests, find_metric, find_plugin
from maskpolicy.plugins.registry import Registered

_WARNED: set[tuple[Path, str]] = set()  # a file and its digest in a key
log = logging.getLogger(__name__)


@contextmanager
def guarded(
    params: object,
    discard: Callable[[], None],
    data: Mapping[Path, str],
    digest: Callable[[Path], str] = sha256,
) -> Iterator[None]:
    """Compute a stage with these parameters; before and after, compare its files with its key.

    Its files are those of its plugins (see `compare`) and `data`, the data files that it reads with
    their digests in the key. `digest` returns the sha256 of a data file. Raises ConfigError for a
    plugin's file, and DataError for a data file, also if it was changed and restored. `discard`
    removes the stage's checkpoints, which may depend on bytes that are not in its key.
    """
    times = {path: _times(path) for path in data}

    def compare_all() -> None:
        compare(params)
        for path, in_key in data.items():
            if digest(path) != in_key or _times(path) != times[path]:
                raise DataError(
                    f"{path}: was changed while a command that reads it is under way: run the "
                    "command again"
                )

    compare_all()
    malformed: DataError | None = None  # of a row, perhaps because its file was changed
    try:
        yield
    except DataError as error:
        malformed = error
    try:
        compare_all()
    except (ConfigError, DataError):
        discard()
        raise
    if malformed is not None:
        raise malformed


def _times(path: Path) -> tuple[int, ...] | None:
    """Return the times of a file; None without a file."""
    try:
        return file_times([path])
    except OSError:
        return None


def compare(params: object) -> None:
    """Compare the files of the plugins that a stage's parameters name with the digests in them.

    Raises ConfigError if a file has changed and the stage may have read the new bytes. The change
    of a module that was compiled from the bytes in the key cannot affect the result; it is logged
    once.
    """
    scored_by = [(getattr(params, "metric", None), getattr(params, "metric_version", 1))]
    for metric, version in [*scored_by, *getattr(params, "besides", ())]:
        if metric in registry.names("metric"):
            entry = find_plugin("metric", str(metric))
            if version not in (1, find_metric(str(metric)).version):  # imported again since
                raise ConfigError(isolation.changed(Path(entry.file)))
            compare_files(entry, code_digests(entry))
    policy, task = getattr(params, "policy", None), getattr(params, "task", None)
    if code := getattr(params, "code", None):
        entry = find_plugin("task", task.name) if task else find_plugin("policy", str(policy))
        compare_files(entry, code)
    depends = getattr(params, "depends", None)
    if depends is not None:
        made = discovery.instance("policy", str(policy), getattr(params, "fields", {}))
        draws = hooks.CHOOSE_MEMBER.of(made) is not None  # its members are in `depends` too
        if not draws and plain(registry.depends(made), "depends") != plain(depends, "depends"):
            raise ConfigError(
                f"policy {policy}: what its `depends` names (such as a spaCy pipeline) "
                "was changed while a command uses it: run the command again"
            )
    members: Mapping[str, Mapping[str, str]] = getattr(params, "member_code", None) or {}
    for name, digests in members.items():
        compare_files(find_plugin("policy", name), digests)


def compare_files(entry: Registered, code: Mapping[str, str]) -> None:
    """Compare a plugin's files with `code`, their digests as `code_digests` returned them."""
    for name, digest in code.items():
        path = Path(os.path.normpath(discovery.folder_of(entry) / name))
        now, in_use = discovery.digest_of(entry, path)
        if in_use != digest:
            raise ConfigError(isolation.changed(path))
        if now != digest and (path, digest) not in _WARNED:
            _WARNED.add((path, digest))
            log.warning(
                "plugin file %s: was changed while this command uses it: its results are those of "
                "the file before the change",
                path,
            )


def builtin_code(
    params: object, digest: Callable[[Path], str] = isolation.code_digest
) -> dict[str, str]:
    """Return digests of the code of the built-in policies and task of a stage's parameters.

    Members that a policy draws count. They are in no key: the version of a policy, a task or a
    stage stands for its code. `digest` returns that of a file.
    """
    policy, task = getattr(params, "policy", None), getattr(params, "task", None)
    every = [find_plugin("task", task.name)] if task else []
    if policy:
        blocks = _drawn({**getattr(params, "fields", {}), "name": str(policy)})
        every += [find_plugin("policy", name) for name in blocks]
    return {
        f"{entry.kind} {entry.name}": digest(Path(entry.file))
        for entry in every
        if registry.is_builtin(entry.plugin)
    }


def _drawn(block: Mapping[str, Any]) -> Iterator[str]:
    """Yield the name of a policy, and those of the members that it draws, and theirs."""
    plugin: Any = find_plugin("policy", block["name"]).plugin
    yield block["name"]
    if hooks.CHOOSE_MEMBER.of(plugin) is not None:
        own = {name: block[name] for name in fields_of(plugin) if name in block}
        made = discovery.instance("policy", block["name"], own)
        for member in hooks.MEMBERS.of(made):
            yield from _drawn({"name": member} if isinstance(member, str) else member)
