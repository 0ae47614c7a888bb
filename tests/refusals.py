"""Errors of one line that a user can act on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maskpolicy.core.errors import ConfigError

Kinds = type[Exception] | tuple[type[Exception], ...]


def refused(
    call: Callable[..., object],
    *arguments: object,
    error: Kinds = ConfigError,
    match: str | None = None,
    **keys: Any,
) -> str:
    """Return the one line of the error that a call raises, in which `match` is found."""
    with pytest.raises(error, match=match) as caught:
        call(*arguments, **keys)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert len(message) < 700  # enough for the names of all policies
    return message


def messages(file: str, name: str = "messages.txt") -> list[tuple[str, str]]:
    """Return the cases of a table beside a test file: what is given, and what is said.

    Each line is a case, "GIVEN => SAID". A given text after ".." follows that of the last line
    that begins with "#".
    """
    before, cases = "", []
    for line in Path(file).with_name(name).read_text("utf-8").splitlines():
        if line.startswith("# "):
            before = line[2:]
        else:
            given, _, said = line.rpartition(" => ")
            given = given.replace("..", before, 1) if given[:2] == ".." else given
            cases.append((given, said))
    return cases
