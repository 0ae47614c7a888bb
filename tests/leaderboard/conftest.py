"""A small experiment for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from maskpolicy.experiment.definition import Experiment
from maskpolicy.experiment.parse import load_experiment


@pytest.fixture
def load(tmp_path) -> Callable[..., Experiment]:
    """Return a function from overrides to the experiment of a file in the test's folder."""
    path = tmp_path / "mine.yaml"
    path.write_text(
        "model: mini\ncorpus: world\npolicies: [none, random]\ntasks: [triviaqa, zsre]\n"
    )
    return lambda *overrides: load_experiment(path, overrides)
