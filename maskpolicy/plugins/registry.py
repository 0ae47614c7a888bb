"""The registered names of policies, tasks, metrics and analyses, and the plugins they name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from maskpolicy.errors import ConfigError, unknown
from maskpolicy.metrics import METRICS
from maskpolicy.plugins import hook_checks, hooks
from maskpolicy.types import Denoising

T = TypeVar("T")
DENOISING_KEYS = tuple(field.name for field in fields(Denoising))
ROW_TRAININGS = ("fit", "intermediate", "finetune")
"""The trainings that rows of one experiment may differ in."""
CORPUS = "corpus"
ROW_KEYS = (*ROW_TRAININGS, CORPUS, "grid", "zip", "tune")  # of a row's block, whatever its policy
RESERVED = {
    "policy": {"name", "label", *DENOISING_KEYS, *ROW_KEYS},
    "task": {"name", "label", "data", "revision", "on_error", "context", "limit", "metrics"},
    "metric": set(),
    "analysis": {"name"},
}
TAKEN = {"policy": "none", "analysis": "all"}  # words of maskpolicy in place of a plugin's name


@dataclass(frozen=True)
class Registered:
    """One registered name: the plugin's class or function, its facts and its definition's place."""

    kind: str
    name: str
    plugin: Any
    facts: dict[str, Any]
    file: str
    line: int

    @property
    def where(self) -> str:
        """File and line of the definition, for messages."""
        return f"{self.file}:{self.line}"

    @property
    def summary(self) -> str:
        """The first line of the plugin's docstring."""
        return (inspect.getdoc(self.plugin) or "").partition("\n")[0]


_ENTRIES: dict[tuple[str, str], Registered] = {}
_CLASHES: dict[tuple[str, str], str] = {}


def register(kind: str, name: str, /, **facts: Any) -> Callable[[T], T]:
    """Return a decorator that registers a plugin of some kind under `name`.

    It raises ConfigError, with file and line, for a name in use, a field with a reserved name, and
    a class that does not fit the hooks of its kind.
    """

    def decorate(plugin: T) -> T:
        entry = _entry(kind, name, plugin, facts, inspect.currentframe())
        _check_name(entry)
        _check_fields(entry)
        if kind in hooks.HOOKS:
            hook_checks.check(kind, entry.plugin, f"{entry.where}: {kind} {name!r}")
        known = _ENTRIES.get((kind, name))
        if known and not _is_same(known, entry):
            both = f"{kind} {name!r} is defined twice: {known.where} and {entry.where}"
            _CLASHES[kind, name] = f"{both}; rename one of them"
            raise ConfigError(_CLASHES[kind, name])
        _ENTRIES[kind, name] = entry
        return plugin

    return decorate


def policy(name: str, **denoising: Any) -> Callable[[T], T]:
    """Register a masking policy; `denoising` are its defaults for fields of `Denoising`."""
    strange = sorted(set(denoising) - set(DENOISING_KEYS))
    if strange:
        raise ConfigError(f"policy {name!r}: {unknown('setting', strange[0], DENOISING_KEYS)}")
    return register("policy", name, **denoising)


def task(name: str, **facts: Any) -> Callable[[T], T]:
    """Register a downstream task with its facts (see `maskpolicy.formats.sources.TaskFacts`)."""
    return register("task", name, **facts)


def analysis(
    name: str, *, heading: str = "", of_masks: bool = False, place: int = 0, version: int = 1
) -> Callable[[T], T]:
    """Register an analysis of finished runs.

    A run's page shows it under `heading` (default: its name), among the analyses of masks if it
    shows what was masked, else among those of scores. Those with a lower `place` come first, and
    get room for their plots first; the built-in ones have 10, 20, ... A new `version` says that the
    same results give other findings.
    """
    facts = {"heading": heading, "of_masks": of_masks, "place": place, "version": version}
    return register("analysis", name, **facts)


def entry(kind: str, name: str) -> Registered:
    """Return the plugin registered as `name`; raises ConfigError with the choices if none is."""
    try:
        return _ENTRIES[kind, name]
    except KeyError:
        raise ConfigError(unknown(kind, name, names(kind))) from None


def clash(kind: str, name: str) -> str | None:
    """Return the message about a second plugin of this name, or None if there is no second."""
    return _CLASHES.get((kind, name))


def names(kind: str) -> list[str]:
    """Return all registered names of one kind, sorted."""
    return sorted(name for of, name in _ENTRIES if of == kind)


def entries() -> tuple[Registered, ...]:
    """Return every registered plugin, in the order of registration."""
    return tuple(_ENTRIES.values())


def forget(files: Iterable[Path]) -> None:
    """Remove the plugins that these files define, so that the files can be imported again."""
    gone = {str(path) for path in files}
    for key in [key for key, known in _ENTRIES.items() if known.file in gone]:
        del _ENTRIES[key]
        _CLASHES.pop(key, None)
        if key[0] == "metric":
            METRICS.pop(key[1], None)


def is_builtin(plugin: Any) -> bool:
    """Return whether a plugin's class, or its function, comes with maskpolicy."""
    return str(plugin.__module__).startswith("maskpolicy.")


def _entry(
    kind: str, name: str, plugin: Any, facts: dict[str, Any], decorator: FrameType | None
) -> Registered:
    """Return a plugin's entry; its line is that of the decorator, whose frame is given."""
    caller = decorator.f_back if decorator else None
    try:
        file = inspect.getsourcefile(plugin) or "<unknown>"
        if caller is not None and caller.f_code.co_filename == file:
            line = caller.f_lineno
        else:  # decorated elsewhere; this parses the file, so it is slower
            line = inspect.getsourcelines(plugin)[1]
    except (OSError, TypeError):  # typed into an interpreter
        file, line = f"<{plugin.__module__}>", 0
    return Registered(kind, name, plugin, facts, file, line)


def _is_same(known: Registered, new: Registered) -> bool:
    """Return whether two entries are of one definition, whose file was imported twice."""
    names = [each.plugin.__qualname__ for each in (known, new)]
    return known.plugin is new.plugin or (known.where == new.where and names[0] == names[1])


def _check_name(new: Registered) -> None:
    if not isinstance(new.name, str) or not new.name.strip():
        raise ConfigError(f'{new.where}: @{new.kind} needs a name first, as in @{new.kind}("mine")')
    wanted = "a function" if new.kind == "metric" else "a class"
    if inspect.isclass(new.plugin) != (wanted == "a class"):
        raise ConfigError(f"{new.where}: {new.kind} {new.name!r} must be {wanted}")
    if new.name == TAKEN.get(new.kind):
        raise ConfigError(
            f"{new.where}: {new.kind} {new.name!r} is a name of maskpolicy's own: rename it"
        )


def _check_fields(new: Registered) -> None:
    own = set(getattr(new.plugin, "__dataclass_fields__", ()))
    clash = sorted(own & RESERVED[new.kind])
    if clash:
        raise ConfigError(
            f"{new.where}: {new.kind} {new.name!r} has a field {clash[0]!r}, "
            "a reserved name: rename it"
        )
