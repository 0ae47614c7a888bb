"""Analyses of the run that a module's fixture `home` made: run/, store/ and the plugins of both."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def analyse(done, home):
    """Run one analysis; returns its JSON."""
    plugins = [word for path in sorted(home.glob("*.py")) for word in ("--plugin", path)]

    def analyse(name: str, *keys: str) -> dict:
        words = ("analyze", name, home / "run", *keys, "--store", home / "store", "--json")
        out, _ = done(*words, *plugins)
        return json.loads(out)

    return analyse
