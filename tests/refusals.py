"""Errors of one line that a user can act on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from maskpolicy.core.errors import ConfigError


def refused(call: Callable[..., object], *arguments: object) -> str:
    """Return the one line of the ConfigError that a call raises."""
    with pytest.raises(ConfigError) as caught:
        call(*arguments)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert len(message) < 700  # enough for the names of all policies
    return message
