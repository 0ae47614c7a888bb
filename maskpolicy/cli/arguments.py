"""Arguments, options and consoles that several commands share."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from maskpolicy.errors import ConfigError, DataError
from maskpolicy.store.place import DEFAULT

if TYPE_CHECKING:
    from rich.console import Console

    from maskpolicy.executors.request import Request
    from maskpolicy.graph.outcomes import Outcome
    from maskpolicy.runs.display import Detail

_WIDE = 200  # columns, if the output is not a terminal

Keys: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Keys to set, e.g. intermediate.steps=2000."),
]
TaskKeys: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Fields of the task, e.g. task.prefix=x."),
]
WorldKeys: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Settings of the world, e.g. people=60."),
]
File: TypeAlias = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="An experiment file, or a name of `list experiments`."),
]
Plugins: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option("--plugin", metavar="FILE", help="A file with policies or tasks; repeatable."),
]
Only: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(metavar="ROW/TASK", help="Only these cells, a ROW or a /TASK; repeatable."),
]
Jobs: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=1,
        envvar="MASKPOLICY_JOBS",
        help="Stages at a time, a process for each. Default: what suits the machine.",
    ),
]
Workers: TypeAlias = Annotated[int, typer.Option(min=1, help="Processes that a stage may start.")]
Threads: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Threads of a process. Default: 1 for a small model built from scratch, else all.",
    ),
]
Quiet: TypeAlias = Annotated[
    bool, typer.Option("--quiet", "-q", help="No progress: only failures and results.")
]
Verbose: TypeAlias = Annotated[
    bool, typer.Option("--verbose", "-v", help="Also what starts, and what the store has.")
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]
StorePlace: TypeAlias = Annotated[
    str,
    typer.Option(
        "--store", envvar="MASKPOLICY_STORE", metavar="DIR_OR_URL", help="The store of stages."
    ),
]
RunStore: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar="MASKPOLICY_STORE",
        metavar="DIR_OR_URL",
        help="Default: the store of the run.",
    ),
]
Cache: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        envvar="MASKPOLICY_CACHE", metavar="DIR", help="Local copies of what a bucket holds."
    ),
]
STORE = DEFAULT


def console(*, err: bool = False) -> Console:
    """Return a console without markup on stdout or stderr; _WIDE columns without a terminal."""
    from maskpolicy.cli.screen import Screen

    screen = Screen(stderr=err, highlight=False, markup=False, emoji=False)
    if not screen.is_terminal:
        screen.width = _WIDE
    return screen


def detail_of(quiet: bool, verbose: bool) -> Detail:
    """Return how much a command prints while it works; raises ConfigError."""
    if quiet and verbose:
        raise ConfigError("-q and -v: name one of them")
    return "quiet" if quiet else "verbose" if verbose else "normal"


def log_to(target: Console, line: str = "%(message)s", detail: Detail = "normal") -> None:
    """Print the library's log on a console, and disable progress bars of other libraries.

    `line` is the format of a line, as `logging.Formatter` takes it. With the detail "quiet", only
    warnings and errors are printed.
    """
    os.environ.setdefault("TQDM_DISABLE", "1")
    from rich.logging import RichHandler

    logger = logging.getLogger("maskpolicy")
    for old in [each for each in logger.handlers if isinstance(each, RichHandler)]:
        logger.removeHandler(old)  # of an earlier command of this process
    handler = RichHandler(console=target, show_time=False, show_path=False, markup=False)
    handler.setFormatter(logging.Formatter(line))
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING if detail == "quiet" else logging.INFO)
    logger.propagate = False


def size_text(count: int) -> str:
    """Return a number of bytes as text, with its unit."""
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def end(outcomes: Iterable[Outcome], summary: str = "") -> None:
    """End a command if any of its stages failed.

    User errors (ConfigError, DataError) are raised, for exit code 2: the same command would fail
    again. Other failures print one line and exit with code 1. `summary` replaces the first cause,
    for commands that have already reported each failure.
    """
    failed = [outcome for outcome in outcomes if outcome.exception is not None]
    if not failed:
        return
    first = failed[0]
    if all(isinstance(outcome.exception, ConfigError | DataError) for outcome in failed):
        if summary:
            raise ConfigError(summary) from first.exception
        raise first.exception or ConfigError(str(first.error))
    more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
    line = summary or f"failed: {first.stage.name}: {first.error}{more}"
    typer.echo(f"{line}; the same command tries again", err=True)
    raise typer.Exit(1)


def request_of(
    file: Path,
    keys: list[str] | None,
    store: str,
    cache: Path | None,
    plugin: list[Path] | None,
    only: list[str] | None,
) -> Request:
    """Return what workers are asked to compute, from the arguments of a command."""
    from maskpolicy.executors.request import Request

    return Request(
        file=str(file),
        keys=tuple(keys or ()),
        plugins=tuple(map(str, plugin or ())),
        store=store,
        cache=str(cache) if cache else None,
        only=tuple(only or ()),
    )
