"""An experiment that the tests of a module share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from maskpolicy.app.commands import app


@pytest.fixture(scope="module")
def run_tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Run an experiment, given as YAML; returns a folder with tiny.yaml, its store and out/."""

    def run_tiny(text: str, files: Mapping[str, str] | None = None) -> Path:
        folder = tmp_path_factory.mktemp("tiny")
        for name, content in {"tiny.yaml": text, **(files or {})}.items():
            (folder / name).write_text(content)
        words = ["run", folder / "tiny.yaml", "--store", folder / "store", "--out", folder / "out"]
        assert not app(list(map(str, words)), standalone_mode=False)
        return folder

    return run_tiny
