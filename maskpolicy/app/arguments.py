"""Arguments and options that several commands share; commands as text for model cards."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer
from typer import Argument, Option

from maskpolicy.app.printed import console, log_to
from maskpolicy.core.errors import ConfigError, DataError
from maskpolicy.core.files import from_here, relative_paths
from maskpolicy.experiment import yaml_file
from maskpolicy.pipeline.store import DEFAULT

if TYPE_CHECKING:
    from rich.console import Console

    from maskpolicy.app.progress import Detail
    from maskpolicy.pipeline.graph.events import Outcome
    from maskpolicy.pipeline.store.artifacts import Store

Keys: TypeAlias = Annotated[
    list[str] | None,
    Argument(metavar="[KEY=VALUE]...", help="Keys to set, e.g. intermediate.steps=2000."),
]
File: TypeAlias = Annotated[
    Path, Argument(metavar="FILE", help="An experiment file, or a name of `list experiments`.")
]
Plugins: TypeAlias = Annotated[
    list[Path] | None,
    Option("--plugin", metavar="FILE", help="A file with policies or tasks; repeatable."),
]
Only: TypeAlias = Annotated[
    list[str] | None,
    Option(metavar="ROW/TASK", help="Only these cells, a ROW or a /TASK; repeatable."),
]
Workers: TypeAlias = Annotated[int, Option(min=1, help="Processes that a stage may start.")]
Threads: TypeAlias = Annotated[
    int | None,
    Option(
        min=1,
        help="Threads of a process. Default: 1 for a small model built from scratch, else all.",
    ),
]
AsJson: TypeAlias = Annotated[bool, Option("--json", help="Print JSON.")]
StorePlace: TypeAlias = Annotated[
    str,
    Option("--store", envvar="MASKPOLICY_STORE", metavar="DIR_OR_URL", help="The store of stages."),
]
Cache: TypeAlias = Annotated[
    Path | None,
    Option(envvar="MASKPOLICY_CACHE", metavar="DIR", help="Local copies of what a bucket holds."),
]
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")  # OWNER/NAME


@dataclass(frozen=True)
class ExperimentOptions:
    """An experiment, its store, and the cells that a command computes."""

    file: File
    keys: Keys = None
    store: StorePlace = DEFAULT
    cache: Cache = None
    plugin: Plugins = None
    only: Only = None


@dataclass(frozen=True)
class StoreOptions:
    """A store of stages."""

    store: StorePlace = DEFAULT
    cache: Cache = None

    def open(self) -> Store:
        """Return the store; raises StoreError if the place is not a store."""
        from maskpolicy.pipeline.store.opening import open_store

        return open_store(self.store, self.cache)


@dataclass(frozen=True)
class RunStoreOptions:
    """The store of finished runs."""

    store: Annotated[
        str | None,
        Option(
            envvar="MASKPOLICY_STORE", metavar="DIR_OR_URL", help="Default: the store of the run."
        ),
    ] = None
    cache: Cache = None

    def open(self, runs: Sequence[Path]) -> Store:
        """Return the store of --store, or else that of the runs in these folders."""
        from maskpolicy.leaderboard.results import run_folder
        from maskpolicy.pipeline.store.opening import open_store

        return open_store(run_folder.trusted_store(self.store, runs), self.cache)

    def open_writable(self, runs: Sequence[Path]) -> Store:
        """Return that store; if it is read-only, new artifacts go to another folder."""
        from maskpolicy.pipeline.store.opening import writable

        return writable(self.open(runs))


@dataclass(frozen=True)
class DetailOptions:
    """How much a command prints before its results."""

    quiet: Annotated[
        bool, Option("--quiet", "-q", help="No progress: only failures and results.")
    ] = False
    verbose: Annotated[
        bool, Option("--verbose", "-v", help="Also print what starts, and what the store has.")
    ] = False

    def notes(self) -> tuple[Console, Detail]:
        """Return the console for progress and log, and the detail; raises ConfigError."""
        if self.quiet and self.verbose:
            raise ConfigError("-q and -v: name one of them")
        detail: Detail = "quiet" if self.quiet else "verbose" if self.verbose else "normal"
        screen = console(err=True)
        log_to(screen, detail=detail)
        return screen, detail


@dataclass(frozen=True)
class PushOptions:
    """Whether to upload what a command has written to the Hub."""

    push: Annotated[
        str | None,
        Option(metavar="OWNER/NAME", help="Upload it to the Hub, too."),
    ] = None
    private: Annotated[
        bool,
        Option("--private", help="--push: create a private repository."),
    ] = False

    def check(self) -> None:
        """Raise ConfigError for an invalid name, before any work."""
        if self.push is None and self.private:
            raise ConfigError("--private: is for --push OWNER/NAME: give both")
        if self.push is not None and not _REPOSITORY.fullmatch(self.push):
            raise ConfigError(
                f"--push {self.push}: write OWNER/NAME, with your name on the Hub as OWNER"
            )

    def upload(
        self, path: Path, kind: Literal["model", "dataset"], branches: Sequence[str] = ()
    ) -> None:
        """Upload a file or folder to the Hub if --push is given, and print the address.

        Each folder in `branches` goes to a branch of its name.
        """
        from maskpolicy.app import packing

        if self.push:
            address = packing.push(path, self.push, kind, branches, private=self.private)
            console().print(f"pushed to {address}", soft_wrap=True)


def end(outcomes: Iterable[Outcome], summary: str = "") -> None:
    """End a command if any of its stages failed.

    Raises user errors (ConfigError, DataError), for exit code 2: the same command would fail again.
    After other failures it prints one line and exits with code 1. A `summary` replaces the first
    cause, for commands that have already printed each failure.
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


def policy_keys(name: str, words: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a policy's block with fields from `policy.KEY=value` words, and the other keys."""
    rest = yaml_file.assignments(words)
    own = rest.pop("policy", {})
    if not isinstance(own, dict):
        raise ConfigError(f"policy={own}: name the policy itself; policy.KEY=value sets its fields")
    for key in ("name", "label"):
        if key in own:
            raise ConfigError(f"policy.{key}: cannot be set here: name the policy itself")
    return {"name": name, **own}, rest


def row_words(row: str) -> list[str]:
    """Return the words of a row, "POLICY KEY=VALUE ..", quoted as in a shell.

    Raises ConfigError for an empty row, or one with an open quote.
    """
    try:
        words = shlex.split(row)
    except ValueError as error:
        raise ConfigError(f"{row!r}: {error}: close each quote") from None
    if not words:
        raise ConfigError("a row is empty: write a policy's name, and keys after it")
    return words


def as_typed(*words: str | Path) -> str:
    """Return a command for a model card, to be run in the folder of its files.

    Cards may be published: absolute paths become relative to the working directory, or just names.
    """
    return shlex.join(["maskpolicy", *(public(str(word)) for word in words)])


def repeated(option: str, values: Iterable[str | Path] | None) -> list[str | Path]:
    """Return the words of a command; repeat the option before each value."""
    return [word for value in values or () for word in (option, value)]


def public(word: str) -> str:
    """Return a word of a command, or KEY=PATH, without absolute paths; see `as_typed`."""
    key, sign, value = word.partition("=") if "=" in word.partition("/")[0] else ("", "", word)
    path = Path(value)
    if path.is_absolute():
        near = from_here(value)
        value = path.name if Path(near).is_absolute() else near
    else:
        value = relative_paths(value, Path.cwd())
    return f"{key}{sign}{value}"
