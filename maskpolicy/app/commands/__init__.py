"""The command line: a module for each group of commands; here errors become one line."""

from __future__ import annotations

import inspect
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass
from functools import wraps
from typing import Annotated, Any, NoReturn

import typer
from typer import Option
from typer.core import TyperGroup

from maskpolicy.app.commands import (
    exporting,
    inspecting,
    keeping,
    listing,
    planning,
    results,
    running,
    showing,
)
from maskpolicy.core.errors import INTERRUPTED, INTERRUPTION, ConfigError, MaskpolicyError
from maskpolicy.core.files import temporary_fault, with_home
from maskpolicy.core.version import VERSION
from maskpolicy.experiment import verbatim
from maskpolicy.experiment.budgets import Training

PROGRAM = "maskpolicy"
USER_ERROR = 2
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)  # handled like control-C
_LONGEST = 500  # characters of an error's line


class Commands(TyperGroup):
    """The commands; reports an error as one line on stderr and an exit code."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run one command; with `--debug`, at any position, raise errors instead."""
        words = list(sys.argv[1:] if args is None else args)
        debug = "--debug" in words
        words = [_with_home(word) for word in words if word != "--debug"] or ["--help"]
        try:
            _check_alone()
            with _orderly_end() as arrived:
                name = prog_name or PROGRAM
                code = super().main(words, name, complete_var, False, windows_expand_args, **extra)
                sys.stdout.flush()  # while an error can still be reported
            if code == INTERRUPTED:
                typer.echo(INTERRUPTION, err=True)
                code = 128 + arrived[0] if arrived else code
        except Exception as error:
            if debug:
                raise
            typer.echo(f"error: {_line(error)}", err=True)
            code = USER_ERROR
        if standalone_mode:
            _exit(code if isinstance(code, int) else 0)
        return code

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command named by `args`; the error for an experiment's name suggests `run`."""
        if args and args[0] not in self.commands:
            names = [each.name for each in verbatim.shipped()]
            if args[0].endswith((".yaml", ".yml")) or args[0] in names:
                ctx.fail(f"{args[0]!r} is an experiment: write `maskpolicy run {args[0]}`")
        return super().resolve_command(ctx, args)


def _with_home(word: str) -> str:
    """Return --OPTION=~/PATH with the user's folder, because shells leave this ~ as it is."""
    option, sign, value = word.partition("=")
    if not option.startswith("--") or not value.startswith("~/"):
        return word
    return f"{option}{sign}{with_home(value)}"


def _check_alone() -> None:
    """Raise ConfigError if torchrun or accelerate launch has started several processes."""
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise ConfigError(
            "a launcher has started several processes (WORLD_SIZE): start the command without it, "
            "and set resources: {intermediate: {gpus: ..}}"
        )


def _exit(code: int) -> NoReturn:
    """End the process, even if its output has been closed."""
    try:
        sys.stdout.flush()
    except OSError:  # reported already; Python would flush again, and end with another code
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


class _Ended(KeyboardInterrupt):
    """A signal other than control-C has arrived.

    Python's compiler ignores SystemExit, and ends with SIGINT after a plain KeyboardInterrupt.
    """


@contextmanager
def _orderly_end() -> Iterator[list[int]]:
    """Let signals of schedulers and terminals interrupt, to release locks; yield their numbers."""
    arrived: list[int] = []

    def end(number: int, frame: object) -> None:
        arrived.append(number)
        raise _Ended

    is_main = threading.current_thread() is threading.main_thread()
    replaced = [n for n in _SIGNALS if is_main and signal.getsignal(n) == signal.SIG_DFL]
    for number in replaced:
        signal.signal(number, end)
    try:
        yield arrived
    finally:
        for number in replaced:
            signal.signal(number, signal.SIG_DFL)


def _line(error: Exception) -> str:
    """Return one line for an error; unexpected errors suggest --debug."""
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    text = _printable(" ".join(message.split())) or type(error).__name__
    if isinstance(error, MaskpolicyError):
        return text
    if hasattr(error, "format_message"):  # an error of the argument parser
        context = getattr(error, "ctx", None)
        if context is None:
            return f"{text} (see {PROGRAM} --help)"
        takes_keys = any(each.name == "keys" for each in context.command.params)
        if takes_keys and hasattr(error, "option_name"):
            text = _about_option(text, error)
        return f"{text} (see {context.command_path} --help)"
    if isinstance(error, OSError) and error.strerror:
        told = temporary_fault(error) or f"{error.filename or 'system'}: {error.strerror}"
        return _printable(told)
    return f"{type(error).__name__}: {text} (a bug in maskpolicy: --debug shows where)"


def _about_option(text: str, error: Any) -> str:
    """Return the line about an unknown option of a command that takes keys."""
    key = error.option_name.strip("-").replace("-", "_")
    if key in Training.__dataclass_fields__:
        return f"No such option: {error.option_name}; write the key intermediate.{key}=VALUE"
    return text if error.possibilities else f"{text}; keys are written without dashes, KEY=VALUE"


def _printable(text: str) -> str:
    """Return a line without control characters, shortened in its middle if it is long."""
    neutral = "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
    if len(neutral) <= _LONGEST:
        return neutral
    return f"{neutral[: _LONGEST * 2 // 3]} .. {neutral[-_LONGEST // 3 + 4 :]}"


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"maskpolicy {VERSION}")
        raise typer.Exit


def _grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command in which each dataclass parameter became an option for each field."""
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[Any, list[str]]] = {}
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        kind = parameter.annotation
        if is_dataclass(kind):
            options = inspect.signature(kind, eval_str=True).parameters  # type: ignore[arg-type]
            groups[name] = (kind, list(options))
            parameters += options.values()
        else:
            parameters.append(parameter)

    @wraps(command)
    def called(**values: Any) -> None:
        for name, (kind, options) in groups.items():
            values[name] = kind(**{option: values.pop(option) for option in options})
        command(**values)

    flat = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    called.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in flat}
    return called


app = typer.Typer(
    cls=Commands,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Compare masking policies of intermediate pre-training, end to end.",
)


@app.callback()
def options(
    debug: Annotated[bool, Option("--debug", help="Show the traceback of errors.")] = False,
    version: Annotated[
        bool, Option("--version", callback=_print_version, is_eager=True, help="The version.")
    ] = False,
) -> None:
    """Compare masking policies of intermediate pre-training, end to end."""


for command in (
    running.run,
    planning.plan,
    planning.check,
    planning.status,
    results.leaderboard,
    results.board,
    listing.list_,
    showing.show,
    showing.gallery,
    inspecting.examples,
    exporting.pretrain,
    inspecting.world,
    results.analyze,
    exporting.export,
    exporting.submission,
    exporting.pack,
    exporting.verify,
    exporting.site,
    inspecting.doctor,
):
    app.command(command.__name__.rstrip("_"))(_grouped(command))
app.add_typer(keeping.app, name="store")
