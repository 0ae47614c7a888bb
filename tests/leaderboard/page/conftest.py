"""The browser of the tests of pages."""

from __future__ import annotations

import os
from collections.abc import Iterator

import browser as chromium
import pytest


@pytest.fixture(scope="session")
def browser(tmp_path_factory) -> Iterator[chromium.Browser]:
    """A Chromium for all tests of a process."""
    program = os.environ.get("MASKPOLICY_BROWSER") or chromium.find()
    if not program:
        pytest.skip("no Chromium is installed: apt-get install chromium")
    made = chromium.Browser(program, tmp_path_factory.mktemp("profile"))
    yield made
    made.close()
