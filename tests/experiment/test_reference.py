"""The reference of all keys, and the comments at fields that it is made of."""

from pathlib import Path
from typing import Any

import pytest

from maskpolicy.experiment import reference
from maskpolicy.experiment.definition import resolved
from maskpolicy.experiment.parse import load_experiment
from maskpolicy.experiment.reference import Key
from maskpolicy.plugins import discovery, registry
from maskpolicy.plugins.registry import Registered

ROOT = Path(__file__).parents[2]
BLOCKS = ("file", "model", "corpus", reference.TRAININGS, "policies", "tasks", "world")


# results have these settings only where they are not at their defaults
LEFT_OUT = (
    "world.situations=0.1",
    "world.entity_errors.wrong=0.1",
    "world.endings=0.5",
    "world.heldout=[school]",
    "world.wow_values=true",
    "world.shared_subjects=false",
)


def entries(kind: str) -> list[Registered]:
    """Return the built-in plugins of a kind: other tests leave some of their own."""
    discovery.load_builtin(kind)
    found = [registry.entry(kind, name) for name in registry.names(kind)]
    return [entry for entry in found if registry.is_builtin(entry.plugin)]


@pytest.fixture(scope="module")
def keys() -> list[Key]:
    """Every key, with those of the built-in policies and tasks."""
    return reference.listed(entries("policy"), entries("task"))


def test_the_page_is_what_would_be_written_now(keys):
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert page == reference.page(keys), "maskpolicy list keys --markdown > docs/settings.md"


def test_the_table_of_policies_is_what_would_be_written_now(keys):
    page = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")
    table = reference.policy_table(keys, entries("policy"))
    assert table in page, "take the table from `maskpolicy list policies --markdown`"


def test_every_key_says_what_it_does(keys):
    assert not [key.name for key in keys if not key.meaning]


def paths(block: Any, within: str = "") -> set[str]:
    """Return the keys of a block, those of blocks in it with a dot."""
    if not isinstance(block, dict):
        return {within.removesuffix(".")}
    return {path for name, value in block.items() for path in paths(value, f"{within}{name}.")}


def test_every_key_of_a_resolved_experiment_is_listed(keys):
    config = resolved(load_experiment(ROOT / "experiments" / "learned.yaml", LEFT_OUT))
    known = {block: {key.name for key in keys if key.block == block} for block in BLOCKS}
    # not in results: sweeps, which rows stand for, and what changes no result
    assert {*config, "grid", "zip", "tune", "resources", "slurm", "checkpoint_words"} == known[
        "file"
    ]
    assert paths(config["model"]) == known["model"]
    # prose has no endings, and long answers have no value
    assert {*paths(config["world"]), "text", "wow_answers"} == known["world"]
    left_out = {"mix", "language", "tokens", "pack"}  # at their defaults
    assert {*paths(config["corpus"]), *left_out} == known["corpus"]
    for stage in reference.TRAININGS.split(", "):
        assert paths(config[stage]) == known[reference.TRAININGS]
    for block in ("policies", "tasks"):
        for item in config[block]:
            assert paths(item) <= known[block]
