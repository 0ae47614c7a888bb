"""Analyses of the run that a module's fixture `home` made: run/, store/ and the plugins of both."""

import json
from pathlib import Path

import folders
import pytest

from maskpolicy.analyses import plots
from maskpolicy.analyses.plots import drawing


@pytest.fixture(scope="module")
def home(request, tmp_path_factory) -> Path:
    """A folder in which the module's EXPERIMENT was run, beside its PLUGINS: run/ and store/."""
    folder = tmp_path_factory.mktemp("home")
    for name, text in getattr(request.module, "PLUGINS", {}).items():
        (folder / name).write_text(text)
    return folders.run_experiment(folder, request.module.EXPERIMENT)


@pytest.fixture
def laid_out(monkeypatch) -> None:
    """Lay out figures once and write them to no file: to draw pictures takes four times as long."""

    def lay_out(panels, **settings) -> dict[str, bytes]:
        drawing.figure(panels, **settings).draw_without_rendering()
        return {}

    monkeypatch.setattr(plots, "draw", lay_out)


@pytest.fixture
def analyse(done, home, laid_out):
    """Run one analysis; returns its JSON."""
    plugins = [word for path in sorted(home.glob("*.py")) for word in ("--plugin", path)]

    def analyse(name: str, *keys: str) -> dict:
        words = ("analyze", name, home / "run", *keys, "--store", home / "store", "--json")
        out, _ = done(*words, *plugins)
        return json.loads(out)

    return analyse
