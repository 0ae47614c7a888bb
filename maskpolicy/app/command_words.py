"""The words of a command: those of a policy's block, and a command as a model card shows it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from maskpolicy.core.errors import ConfigError
from maskpolicy.experiment import yaml_file


def policy_keys(name: str, words: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a policy's block with the fields set by `policy.KEY=value` words, and other keys."""
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

    Raises ConfigError if it has none, or if a quote is not closed.
    """
    try:
        words = shlex.split(row)
    except ValueError as error:
        raise ConfigError(f"{row!r}: {error}: close each quote") from None
    if not words:
        raise ConfigError("a row is empty: write a policy's name, and keys after it")
    return words


def as_typed(*words: str | Path) -> str:
    """Return a command as shown in a model card, to be run in the folder of its files.

    Cards may be published: absolute paths become relative to the working directory, or are
    shortened to their name.
    """
    return shlex.join(["maskpolicy", *(public(str(word)) for word in words)])


def repeated(option: str, values: Iterable[str | Path] | None) -> list[str | Path]:
    """Return the words of a command for a repeatable option."""
    return [word for value in values or () for word in (option, value)]


def public(word: str) -> str:
    """Return a word of a command, or KEY=PATH, without absolute paths; see `as_typed`."""
    key, sign, value = word.partition("=") if "=" in word.partition("/")[0] else ("", "", word)
    path = Path(value)
    if path.is_absolute():
        near = from_here(value)
        value = path.name if Path(near).is_absolute() else near
    return f"{key}{sign}{value}"


def from_here(path: str) -> str:
    """Return a path relative to the working directory if it lies in it, else as it is."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path
