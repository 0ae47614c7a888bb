"""The policy of the general stage, which pre-trains models built from scratch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from maskpolicy.config.budgets import GENERAL_ONLY, Training
from maskpolicy.config.experiment import NONE, SCRATCH, ModelBlock, PolicyBlock
from maskpolicy.config.policy_blocks import compares_corpora, leaf_blocks, policy_block
from maskpolicy.config.row_names import named
from maskpolicy.errors import ConfigError
from maskpolicy.plugins import hooks
from maskpolicy.plugins.discovery import find_plugin
from maskpolicy.schema import Stated, at

GENERAL_POLICY = "original"


@dataclass(frozen=True)
class GeneralKeys:
    """The keys of the block `general` besides those of its budget."""

    # masks the general text, with the objective in its block; `mixture` draws from several
    policy: Annotated[Any, Stated("a name or a block of keys")] = GENERAL_POLICY


@dataclass(frozen=True)
class GeneralBlock(GeneralKeys, Training):
    """The whole block `general`."""


def check_scratch(model: ModelBlock, where: str) -> None:
    """Raise ConfigError if a key of the general stage is set for a model that has none."""
    if not model.is_scratch:
        raise ConfigError(
            f"{where}: only a model built from scratch ({', '.join(SCRATCH[model.kind])}) has a "
            "general stage: leave it out"
        )


def general_policy(
    general: Mapping[str, Any], model: ModelBlock, steps: int, where: str
) -> PolicyBlock | None:
    """Return the policy that the block `general` at `where` names; None for the default one.

    `steps` is the length of the stage. Raises ConfigError for a policy that the stage cannot train
    with.
    """
    if GENERAL_ONLY not in general:
        return None
    place = at(where, GENERAL_ONLY)
    check_scratch(model, place)
    if not steps:
        raise ConfigError(f"{place}: the stage has no steps: raise general.steps, or leave it out")
    given = named(general[GENERAL_ONLY], place)
    if given["name"] == NONE:
        raise ConfigError(f"{place}: {NONE} masks nothing: set general.steps: 0")
    if "label" in given:
        raise ConfigError(f"{at(place, 'label')}: the general stage is not a row: leave it out")
    block = policy_block(given, place, {}, model.kind)
    _check(block, place)
    usual = policy_block({"name": GENERAL_POLICY}, place, {}, model.kind)
    return None if block == usual else replace(block, label="general stage")


def _check(block: PolicyBlock, where: str) -> None:
    for leaf, place in leaf_blocks(block, where):
        plugin = find_plugin("policy", leaf.name).plugin
        if compares_corpora(leaf):
            why = "compares a corpus with the text that this stage trains on"
        elif hooks.FIT.of(plugin) is not None:
            why = "is learned with the general model, which this stage trains"
        elif hooks.REANNOTATE.of(plugin) is not None:
            why = "asks the model in training, which the general stage does not support"
        else:
            continue
        raise ConfigError(f"{place}: {leaf.name} {why}: name another policy, such as random")
