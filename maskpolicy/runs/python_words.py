"""Errors in the words of Python: keyword arguments in place of a command's options."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from functools import wraps
from typing import ParamSpec, TypeVar

from maskpolicy.errors import ConfigError, MaskpolicyError, unknown

Params = ParamSpec("Params")
Returned = TypeVar("Returned")
_NAMES = {"plugin": "plugins"} | {
    name: name
    for name in (
        *("baseline", "cache", "corpus", "jobs", "mixed", "model", "only", "out", "policy"),
        *("seed", "store", "text", "threads", "workers"),
    )
}
_VALUE = r"[a-z0-9]+://[^\s,;)]*[^\s,;:).]|[A-Z0-9/.~\'][^\s,;:)]*"
_OPTION = re.compile(rf"--({'|'.join(_NAMES)})\b(?: ({_VALUE}))?")


def in_python(function: Callable[Params, Returned]) -> Callable[Params, Returned]:
    """Name keyword arguments in the errors of a function, and in those about its arguments.

    Arguments that it does not take raise ConfigError.
    """
    signature = inspect.signature(function)

    @wraps(function)
    def called(*args: Params.args, **kwargs: Params.kwargs) -> Returned:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ConfigError(_refused(function.__name__, signature, kwargs, error)) from None
        try:
            return function(*args, **kwargs)
        except MaskpolicyError as error:
            text = translated(str(error))
            if text == str(error):
                raise
            raise type(error)(text) from error

    return called


def _refused(
    name: str, signature: inspect.Signature, given: Mapping[str, object], error: TypeError
) -> str:
    """Return a line about arguments that a function does not take."""
    parameters = signature.parameters.values()
    varied = [
        each.name for each in parameters if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    known = [each for each in signature.parameters if each not in ("self", *varied)]
    other = next((each for each in given if each not in known), None)
    if other is None or "settings" in varied:
        return f"{name}: {error}: its arguments are {', '.join(known)}"
    if "overrides" not in varied:
        return f"{name}: {unknown('argument', other, known)}"
    return (
        f"{name}: {unknown('argument', other, known)}; a key of the experiment is a text such as "
        "'intermediate.steps=400', or stands in its file or dict"
    )


def translated(message: str) -> str:
    """Return a message with the keyword arguments that it means in place of options."""

    def keyword(found: re.Match[str]) -> str:
        name, value = _NAMES[found[1]], found[2]
        return name if value is None else f"{name}={value}"

    return _OPTION.sub(keyword, message)
