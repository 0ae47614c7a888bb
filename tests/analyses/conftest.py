"""Analyses of the run that a module's fixture `home` made: run/, store/ and the plugins of both."""

from __future__ import annotations

import json

import pytest

from maskpolicy.pipeline.store.artifacts import Store


@pytest.fixture
def store(tmp_path) -> Store:
    """A new store."""
    return Store(tmp_path / "store")


@pytest.fixture
def analyse(call, home):
    """Run one analysis; returns its JSON."""
    plugins = [word for path in sorted(home.glob("*.py")) for word in ("--plugin", path)]

    def analyse(name: str, *keys: str) -> dict:
        words = ("analyze", name, home / "run", *keys, "--store", home / "store", "--json")
        code, out, err = call(*words, *plugins)
        assert code == 0, err
        return json.loads(out)

    return analyse
