"""Errors in the code of plugins: whose code failed, where, and why."""

from __future__ import annotations

import inspect
from typing import Any

from maskpolicy.core.errors import ConfigError, PluginError, StageError, cause_at
from maskpolicy.plugins import hooks, registry
from maskpolicy.plugins.hooks import Hook
from maskpolicy.plugins.statistics import Statistics


def cause_in(plugin: Any, error: BaseException) -> str:
    """Return the cause of an error with the last line of the file that defines `plugin`'s class."""
    try:
        file = inspect.getsourcefile(type(plugin)) or ""
    except (OSError, TypeError):  # typed into an interpreter
        file = ""
    return cause_at(error, file)


def plugin_error(kind: str, plugin: Any, doing: str, error: BaseException) -> StageError:
    """Return the error to raise where an instance of a plugin failed `doing` something.

    It is a PluginError for a user's plugin, whose fault the error is.
    """
    return plugin_fault(kind, plugin, f"{doing} failed: {cause_in(plugin, error)}")


def plugin_fault(kind: str, plugin: Any, what: str) -> StageError:
    """Return the error for what a plugin did wrong; see `plugin_error`."""
    fault = StageError if registry.is_builtin(type(plugin)) else PluginError
    return fault(f"{plugin_name(kind, plugin)}: {what}")


def plugin_name(kind: str, plugin: Any) -> str:
    """Return e.g. "policy mine" for an instance: all names of its class, else the class's own."""
    entries = [entry for entry in registry.entries() if entry.kind == kind]
    names = sorted(entry.name for entry in entries if entry.plugin is type(plugin))
    return f"{kind} {' or '.join(names) or type(plugin).__name__}"


def statistics_for(hook: Hook[Any], plugin: Any, statistics: Statistics | None) -> dict[str, Any]:
    """Return the arguments of a policy's method that are statistics; {} if it takes none.

    Raises ConfigError if it takes them and there are none.
    """
    if hooks.STATISTICS not in hook.extra(plugin):
        return {}
    if statistics is None:
        raise ConfigError(
            f"{plugin_name('policy', plugin)}: needs the statistics of a corpus: name a finished "
            "run with --run (or `statistics=` in Python)"
        )
    return {hooks.STATISTICS: statistics}
