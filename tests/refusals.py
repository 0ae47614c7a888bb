"""Errors of one line that a user can act on."""

from __future__ import annotations

from collections.abc import Callable
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
