"""The columns of a corpus, and those that policies name in their settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from maskpolicy import schema
from maskpolicy.config.corpus_mix import MIX, mixed_texts
from maskpolicy.config.experiment import WORLD, CorpusBlock, PolicyBlock
from maskpolicy.config.policy_blocks import leaf_blocks
from maskpolicy.errors import ConfigError
from maskpolicy.plugins import discovery, hooks
from maskpolicy.schema import at

OF_WORLD = CorpusBlock(name="world")  # all corpora of the world have the same columns


def check_columns(
    block: PolicyBlock, corpus: CorpusBlock, world: Mapping[str, Any], where: str
) -> None:
    """Raise ConfigError if a policy of the row at `where` reads a column that its corpus lacks.

    Also if its hook `corpus_columns` is not a list of names.
    """
    for leaf, place in leaf_blocks(block, where) if block.has_stage else ():
        policy = discovery.instance("policy", leaf.name, leaf.fields)
        names = hooks.CORPUS_COLUMNS.of(policy)
        hook = f"policy {leaf.name}: {hooks.CORPUS_COLUMNS.name}"
        for name in schema.check(names, tuple[str, ...], hook):
            lacking = _lacking(name, corpus, world)
            if lacking:
                raise ConfigError(f"{_place_of(name, leaf, place)}: {lacking}")


def _lacking(name: str, corpus: CorpusBlock, world: Mapping[str, Any]) -> str:
    """Return what is wrong with the name of a column, and what to do, or ""."""
    known = _columns(corpus, world)
    if name not in known:
        there = _listed(known)
        if corpus.name == WORLD:
            return f"the world has no column {name!r}: choose from {there}{_errors(name)}"
        return (
            f"the corpus has no column {name!r} (it has {there}): name it in corpus.columns, if "
            "its rows have it"
        )
    for text in mixed_texts(corpus):
        own = _columns(text.corpus or OF_WORLD, world)
        if name not in own:
            return (
                f"corpus.{MIX}.{text.name} has no column {name!r} (it has {_listed(own)}), so that "
                "the mixed corpus has none: add it there, or leave the text out"
            )
    return ""


def _errors(name: str) -> str:
    from maskpolicy.world.settings import WITH_ERRORS

    return f" (world.entity_errors adds {name})" if name == WITH_ERRORS else ""


def _columns(corpus: CorpusBlock, world: Mapping[str, Any]) -> Sequence[str]:
    from maskpolicy.world.settings import make

    return make(world).columns if corpus.name == WORLD else corpus.columns


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _place_of(name: str, block: PolicyBlock, where: str) -> str:
    """Return the place of the field that names a column."""
    for key, value in block.fields.items():
        if value == name or (isinstance(value, list) and name in value):
            return at(where, key)
    return where
