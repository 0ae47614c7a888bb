"""A folder of results and the browser of the tests of pages."""

import os
from collections.abc import Iterator
from pathlib import Path

import browser as chromium
import folders
import pytest

POLICIES = {"none": 0.2, "random": 0.3, "salient-span": 0.6}


@pytest.fixture
def folder(tmp_path) -> Path:
    """Results of three policies."""
    return folders.write(tmp_path / "a run", POLICIES)


@pytest.fixture(scope="session")
def browser(tmp_path_factory) -> Iterator[chromium.Browser]:
    """A Chromium for all tests of a process."""
    program = os.environ.get("MASKPOLICY_BROWSER") or chromium.find()
    if not program:
        pytest.skip("no Chromium is installed: apt-get install chromium")
    made = chromium.Browser(program, tmp_path_factory.mktemp("profile"))
    yield made
    made.close()
