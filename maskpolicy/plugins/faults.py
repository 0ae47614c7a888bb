"""What is said of a plugin that fails: its name, what raised, and the line of its file."""

from __future__ import annotations

import inspect
import traceback
from typing import Any

from maskpolicy.errors import PluginError, StageError, cause
from maskpolicy.plugins import registry


def told(error: BaseException, file: str) -> str:
    """Return the cause of an error with the last line of `file` that it came through, if any."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file]
    return f"{cause(error)} ({file}:{lines[-1]})" if lines else cause(error)


def of(plugin: Any, error: BaseException) -> str:
    """Return what `told` does, of the file in which the class of `plugin` stands."""
    try:
        file = inspect.getsourcefile(type(plugin)) or ""
    except (OSError, TypeError):  # typed into an interpreter
        file = ""
    return told(error, file)


def failed(kind: str, plugin: Any, doing: str, error: BaseException) -> StageError:
    """Return the error to raise where `plugin` failed `doing` something: whose it is, and why."""
    message = f"{name(kind, plugin)}: {doing} failed: {of(plugin, error)}"
    return (StageError if registry.is_builtin(type(plugin)) else PluginError)(message)


def name(kind: str, plugin: Any) -> str:
    """Return e.g. "policy mine" of an instance: as registered, else by its class."""
    return f"{kind} {registry.called(kind, plugin) or type(plugin).__name__}"
