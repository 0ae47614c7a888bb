"""Errors that a user can act on: one sentence each, printed without a traceback."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from importlib.util import find_spec

INTERRUPTED = 130  # the exit code of a command that control-C ends
INTERRUPTION = "interrupted: the same command continues where it stopped"
_MANY = 12  # choices that a message lists beside a suggestion
_FEW = 3  # the most suggestions
_SHORTEST = 3  # characters of a name that choices may contain


class MaskpolicyError(Exception):
    """Base of all errors that the command line prints as one line, with exit code 2."""

    def __str__(self) -> str:
        """Return the sentence without the traceback that a DataLoader adds to a worker's error."""
        text = super().__str__()
        if "\nOriginal Traceback" not in text:
            return text
        return text.rpartition(f".{type(self).__name__}: ")[2].strip()


class ConfigError(MaskpolicyError):
    """An experiment file, an override or a plugin's field cannot be used as written."""

    def __str__(self) -> str:
        """Return the sentence in one line, also if it quotes several."""
        return " ".join(super().__str__().splitlines())


class DataError(MaskpolicyError):
    """A corpus, task file or row cannot be used; the message names the file and the row."""


class StoreError(MaskpolicyError):
    """The store cannot be read or written (full disk, permissions, foreign files)."""


class StageError(MaskpolicyError):
    """A stage failed; stages that depend on it are skipped, and all others are computed."""


class PluginError(ConfigError, StageError):
    """The code of a user's plugin failed; stages that depend on it are skipped."""


def cause(error: BaseException) -> str:
    """Return the first line of an error, after its type if it is not a MaskpolicyError."""
    line, name = next(iter(str(error).strip().splitlines()), ""), type(error).__name__
    if not line:
        return name
    return line if isinstance(error, MaskpolicyError) else f"{name}: {line}"


def cause_at(error: BaseException, file: str) -> str:
    """Return the cause of an error, with the last line of `file` in its traceback, if any."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file]
    return f"{cause(error)} ({file}:{lines[-1]})" if lines else cause(error)


def need(package: str, extra: str, reason: str) -> None:
    """Raise ConfigError, which names the extra to install, if a package is not installed."""
    if find_spec(package) is None:
        raise ConfigError(f"{reason}: pip install 'maskpolicy[{extra}]'")


def unknown(
    what: str, name: str, choices: Iterable[str], meant: Sequence[str] = (), listed: str = ""
) -> str:
    """Return "unknown WHAT 'NAME': did you mean ...? choose from ..." for an error message.

    It suggests `meant`, or else the most similar choices. With a suggestion, it names the command
    `listed`, if there is one, instead of many choices.
    """
    names = sorted(set(choices))
    near = [each for each in meant if each in names] or _similar(name, names)
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    if near and listed and len(names) > _MANY:
        return f"unknown {what} {name!r}: {hint}`{listed}` shows the others"
    choice = f"choose from {', '.join(names)}" if names else "there are none to choose from"
    return f"unknown {what} {name!r}: {hint}{choice}"


def listed(names: Sequence[str], separator: str = ", ", most: int = 6) -> str:
    """Return the first of names or lines, each whole, and the number of the others."""
    more = [f"and {len(names) - most} more"] if len(names) > most else []
    return separator.join([*names[:most], *more])


def _similar(name: str, names: Sequence[str]) -> list[str]:
    """Return the most similar of names, or else up to three that contain `name`.

    Ignores case, and the signs between words.
    """
    plain = {each: re.sub(r"[\s_-]+", "-", each.casefold()) for each in names}
    asked = re.sub(r"[\s_-]+", "-", name.casefold())
    close = get_close_matches(asked, plain.values(), n=1, cutoff=0.6)
    if close:
        return [each for each in names if plain[each] == close[0]][:1]
    held = [each for each in names if asked in plain[each]]
    return held if len(asked) >= _SHORTEST and len(held) <= _FEW else []
