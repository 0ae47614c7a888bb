"""Errors in the words of Python: keyword arguments in place of a command's options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from maskpolicy.errors import MaskpolicyError

_NAMES = {"plugin": "plugins"} | {
    name: name
    for name in (
        *("baseline", "cache", "corpus", "jobs", "mixed", "model", "only", "out", "policy"),
        *("seed", "store", "threads", "workers"),
    )
}
_VALUE = r"[a-z0-9]+://[^\s,;)]*[^\s,;:).]|[A-Z0-9/.~\'][^\s,;:)]*"
_OPTION = re.compile(rf"--({'|'.join(_NAMES)})\b(?: ({_VALUE}))?")


@contextmanager
def in_python() -> Iterator[None]:
    """Name keyword arguments in the errors that are raised within; also a decorator."""
    try:
        yield
    except MaskpolicyError as error:
        text = translated(str(error))
        if text == str(error):
            raise
        raise type(error)(text) from error


def translated(message: str) -> str:
    """Return a message with the keyword arguments that it means in place of options."""

    def keyword(found: re.Match[str]) -> str:
        name, value = _NAMES[found[1]], found[2]
        return name if value is None else f"{name}={value}"

    return _OPTION.sub(keyword, message)
