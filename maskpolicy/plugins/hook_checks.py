"""Check the class of a plugin against the hooks of its kind."""

from __future__ import annotations

import inspect
import logging
from difflib import get_close_matches
from typing import Any

from maskpolicy import schema
from maskpolicy.errors import ConfigError, unknown
from maskpolicy.plugins.hooks import (
    COUNT,
    HOOKS,
    OF_STATISTICS,
    ONLY_SELECT,
    STATISTICS,
    Hook,
    field_names,
    reads_statistics,
)

SIMILAR = 0.8  # difflib's ratio from which a name is taken for a misspelt hook
log = logging.getLogger(__name__)


def check(kind: str, plugin: type, what: str) -> None:
    """Raise ConfigError where a class does not fit the hooks of its kind; `what` begins the line.

    A hook must have the form and the parameters of the table. A public attribute whose name is
    close to that of a missing hook is reported as a misspelling; other attributes are ignored. So
    are those with the names of hooks of statistics if the class reads none.
    """
    known, own = {hook.name: hook for hook in HOOKS[kind]}, field_names(plugin)
    if kind == "policy" and not reads_statistics(plugin):
        known = {name: hook for name, hook in known.items() if hook not in OF_STATISTICS}
    there = {name for name in dir(plugin) if not name.startswith("_")} | own
    for hook in known.values():
        if hook.old_name in there:
            log.warning("%s: `%s` is now called `%s`", what, hook.old_name, hook.name)
            there = there - {hook.old_name} | {hook.name}
    for name in sorted(there - own - known.keys()):
        near = get_close_matches(name, known, n=1, cutoff=SIMILAR)
        if near and near[0] not in there:
            raise ConfigError(
                f"{what} defines `{name}`, which maskpolicy does not use: did you mean "
                f"`{near[0]}`? Call it `_{name}` if it is a helper of yours"
            )
    for hook in known.values():
        if hook.name in there:
            _check_form(hook, plugin, hook.name in own, what)
            if hook.needs and hook.needs not in there:
                raise ConfigError(f"{what} has `{hook.name}` but no `{hook.needs}`: add it")
        elif hook.required and hook.instead not in there:
            raise ConfigError(f"{what} has no {hook.form} `{hook.name}`: add {hook.signature}")
    if COUNT.name in known and COUNT.name not in there:
        raise ConfigError(
            f"{what} takes `{STATISTICS}` but has no `{COUNT.name}`: add {COUNT.signature}"
        )
    if kind == "policy":
        for name in ONLY_SELECT.of(plugin) if ONLY_SELECT.name not in own else ():
            if name not in own:
                raise ConfigError(f"{what}: {ONLY_SELECT.name}: {unknown('field', name, own)}")


def _check_form(hook: Hook[Any], plugin: type, is_field: bool, what: str) -> None:
    """Raise ConfigError unless a method can be called as it will be, or a variable has its type."""
    found = inspect.getattr_static(plugin, hook.name, None)
    if hook.form != "method":
        if inspect.isroutine(found):
            raise ConfigError(f"{what}: `{hook.name}` must be a {hook.form}, not a method")
        if hook.form == "class variable" and not is_field:
            schema.check(hook.of(plugin), hook.annotation, f"{what}: {hook.name}")
        return
    if is_field or not callable(hook.of(plugin)):
        raise ConfigError(f"{what}: `{hook.name}` must be a method, {hook.signature}")
    selves = () if isinstance(found, staticmethod | classmethod) else ("self",)
    try:
        signature = inspect.signature(hook.of(plugin))
    except (TypeError, ValueError):  # of compiled code, which does not state it
        return
    try:
        extra = set(hook.may_take) & signature.parameters.keys()
        signature.bind(*selves, *hook.takes, **dict.fromkeys(extra))
    except TypeError as error:
        known = {*selves, *hook.takes, *hook.may_take}
        for name in sorted(signature.parameters.keys() - known):
            if near := get_close_matches(name, known, n=1):
                raise ConfigError(
                    f"{what}: `{hook.name}` has a parameter {name!r}: did you mean {near[0]!r}?"
                ) from None
        wrong = f"cannot be called with ({', '.join((*selves, *hook.takes))}): {error}"
        raise ConfigError(f"{what}: `{hook.name}` {wrong}: write {hook.signature}") from None
