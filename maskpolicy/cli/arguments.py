"""Arguments and options that several verbs share, and the consoles they print to."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from maskpolicy.errors import ConfigError, DataError

if TYPE_CHECKING:
    from rich.console import Console

    from maskpolicy.graph.outcomes import Outcome

_WIDE = 200  # columns where no terminal says how many there are

Keys: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Keys to set, e.g. intermediate.steps=2000."),
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
    typer.Option(metavar="ROW/TASK", help="Only these cells; ROW or /TASK: all of it; repeatable."),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]
StorePath: TypeAlias = Annotated[
    Path,
    typer.Option("--store", envvar="MASKPOLICY_STORE", metavar="DIR", help="Where stages lie."),
]
RunStore: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--store", envvar="MASKPOLICY_STORE", metavar="DIR", help="Default: where the run's lie."
    ),
]
STORE = Path(".maskpolicy/store")


def console(*, err: bool = False) -> Console:
    """Return a console on stdout or stderr that takes text as it is; wide without a terminal."""
    from rich.console import Console

    made = Console(stderr=err, highlight=False, markup=False, emoji=False)
    if not made.is_terminal:
        made.width = _WIDE
    return made


def log_to(target: Console) -> None:
    """Show what the library logs, each line once; other libraries' progress bars stay away."""
    os.environ.setdefault("TQDM_DISABLE", "1")
    from rich.logging import RichHandler

    logger = logging.getLogger("maskpolicy")
    for old in [each for each in logger.handlers if isinstance(each, RichHandler)]:
        logger.removeHandler(old)  # of an earlier command of this process
    logger.addHandler(RichHandler(console=target, show_time=False, show_path=False, markup=False))
    logger.setLevel(logging.INFO)
    logger.propagate = False


def as_typed(*words: str | Path) -> str:
    """Return a command as a card shows it, to be pasted where its files lie.

    A card may be published: of an absolute path, what is below the working directory stays, or else
    the name alone.
    """
    return shlex.join(["maskpolicy", *(public(str(word)) for word in words)])


def repeated(option: str, values: Iterable[str | Path] | None) -> list[str | Path]:
    """Return an option that was given several times as the words of a command."""
    return [word for value in values or () for word in (option, value)]


def public(word: str) -> str:
    """Return a word of a command, or KEY=PATH, with no path of this machine; see `as_typed`."""
    key, sign, value = word.partition("=") if "=" in word.partition("/")[0] else ("", "", word)
    path = Path(value)
    if path.is_absolute():
        here = Path.cwd()
        value = str(path.relative_to(here)) if path.is_relative_to(here) else path.name
    return f"{key}{sign}{value}"


def store_of(given: Path | None, runs: Iterable[Path]) -> Path:
    """Return the store of finished runs: what was given, else what the first of them names.

    A run that somebody else made must not decide which folders are read: a store that it names is
    taken only within its own folder, within the working directory, or where it is the default
    store. Raises ConfigError for any other one.
    """
    from maskpolicy.results import run_record

    if given is not None:
        return given
    for run in runs:
        named = run_record.store_of(run)
        if named is None:
            continue
        homes = (run.resolve(), Path.cwd().resolve(), STORE.resolve())
        if any(named.is_relative_to(home) for home in homes):
            return named
        raise ConfigError(
            f"{run / run_record.NAME}: names the store {named}, outside of the run and the working "
            f"directory: if you trust it, give --store {shlex.quote(str(named))}"
        )
    return STORE


def policy_keys(name: str, words: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the block that `policy.KEY=value` words make of a policy, and all other keys."""
    from maskpolicy.config import yaml_file

    rest = yaml_file.assignments(words)
    own = rest.pop("policy", {})
    if not isinstance(own, dict):
        raise ConfigError(f"policy={own}: name the policy itself; policy.KEY=value sets its fields")
    for key in ("name", "label"):
        if key in own:
            raise ConfigError(f"policy.{key}: is not to be set here: name the policy itself")
    return {"name": name, **own}, rest


def end(outcomes: Iterable[Outcome], summary: str = "") -> None:
    """End a command whose stages failed; do nothing where none did.

    What is of the user's making is raised, for exit code 2: the same command would fail again.
    Any other failure is one line and exit code 1. A command that has told each failure already
    gives a `summary` to be said in place of the first cause.
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
