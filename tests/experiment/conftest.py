"""A small experiment file for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from maskpolicy.experiment.definition import Experiment
from maskpolicy.experiment.parse import load_experiment

PLUGIN = """
from dataclasses import dataclass
from typing import Any

from maskpolicy import Rate, policy


@policy("{name}", target="full")
@dataclass(frozen=True)
class Mine:
    {fields}

    def annotate(self, passages, fitted=None):
        return {{}}

    def select(self, passage, rng):
        return passage.words[:1]
"""
FILE = "model: mini\ncorpus: world\npolicies: [none, random]\ntasks: [triviaqa]\n"


def plugin(name: str, *fields: str) -> str:
    """Return the file of a policy with these lines in its class."""
    return PLUGIN.format(name=name, fields="\n    ".join(fields))


@pytest.fixture
def load(tmp_path) -> Callable[..., Experiment]:
    """Return a function from overrides to the experiment of a file with texts beside it."""

    def load(*overrides: str) -> Experiment:
        (tmp_path / "mine.yaml").write_text(FILE)
        for name in ("a.txt", "wiki.txt"):
            (tmp_path / name).write_text("One text.\n")
        (tmp_path / "a.jsonl").write_text('{"text": "Ada wrote notes.", "marks": [[0, 3]]}\n')
        return load_experiment(tmp_path / "mine.yaml", overrides)

    return load
