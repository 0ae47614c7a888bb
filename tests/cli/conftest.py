"""An experiment that the tests of a module share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from maskpolicy.cli import app


@pytest.fixture(scope="module")
def run_tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Run an experiment, given as YAML; returns a folder with tiny.yaml, its store and out/."""

    def run_tiny(text: str) -> Path:
        folder = tmp_path_factory.mktemp("tiny")
        (folder / "tiny.yaml").write_text(text)
        words = ["run", folder / "tiny.yaml", "--store", folder / "store", "--out", folder / "out"]
        assert not app(list(map(str, words)), standalone_mode=False)
        return folder

    return run_tiny
