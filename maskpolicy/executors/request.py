"""A request to workers: an experiment, as a command line names it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from maskpolicy.errors import ConfigError
from maskpolicy.keys import digest
from maskpolicy.plugins.sourcecode import code_digest
from maskpolicy.store.opening import is_url
from maskpolicy.store.place import DEFAULT
from maskpolicy.version import VERSION

if TYPE_CHECKING:
    from maskpolicy.graph.nodes import Stage

_SHOWN = 16  # hexadecimal digits of a plan's digest


@dataclass(frozen=True)
class Request:
    """An experiment to compute, which each worker reads and plans by itself.

    It holds only strings and numbers, so that it can be sent to another machine.
    """

    file: str  # or the name of an experiment that comes with maskpolicy
    keys: tuple[str, ...] = ()  # KEY=VALUE
    plugins: tuple[str, ...] = ()  # files
    store: str = DEFAULT  # a folder or a URL
    cache: str | None = None  # a folder for local copies of what a bucket holds
    only: tuple[str, ...] = ()  # cells, as --only names them; empty: all
    workers: int = 1  # processes that a stage may start
    threads: int | None = None  # of a process that computes a stage; None: see `capacity`
    logs: str | None = None  # a folder for the files of trackers
    kinds: tuple[str, ...] | None = None  # of stages that the worker may compute; None: all
    plan: str | None = None  # the digest that the worker's plan must have


def absolute(request: Request) -> Request:
    """Return the request with absolute paths; the name of a shipped experiment stays."""

    def path(name: str) -> str:
        return str(Path(name).absolute())

    return replace(
        request,
        file=path(request.file) if Path(request.file).is_file() else request.file,
        plugins=tuple(map(path, request.plugins)),
        store=request.store if is_url(request.store) else path(request.store),
        cache=request.cache and path(request.cache),
        logs=request.logs and path(request.logs),
    )


def plan_digest(order: Iterable[Stage]) -> str:
    """Return VERSION:DIGEST, with a digest of a plan's keys and of the files of its plugins.

    Keys hold digests of policies and tasks, but not of metrics, which such a file may also define.
    """
    stages = list(order)
    files = {Path(file) for stage in stages for file in stage.local.plugins}
    plugins = sorted(code_digest(file) for file in files if file.is_file())
    keys = sorted(stage.key for stage in stages)
    return f"{VERSION}:{digest([keys, plugins])[:_SHOWN]}"


def check_plan(order: Iterable[Stage], expected: str | None) -> None:
    """Raise ConfigError if the digest of a worker's plan is not `expected` (None: any)."""
    if expected is None:
        return
    version, sign, _ = expected.partition(":")
    if not sign:
        raise ConfigError(
            f"--plan {expected}: is not the digest of a plan: take it from `maskpolicy plan FILE "
            "--digest`"
        )
    if version != VERSION:
        raise ConfigError(
            f"this worker has maskpolicy {VERSION}, and the run that it was started for has "
            f"{version}: install the same version for both"
        )
    found = plan_digest(order)
    if found != expected:
        raise ConfigError(
            f"this worker plans other stages ({found}) than the run that it was started for "
            f"({expected}): give both the same experiment, keys, plugins and data files, and on "
            "other hardware the same precision, attention and micro_tokens"
        )
