"""The settings that one cell depends on, as its result holds them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from maskpolicy import keys
from maskpolicy.config import learned_policies
from maskpolicy.config.budgets import TRAININGS, settled
from maskpolicy.config.experiment import (
    WORLD,
    Experiment,
    PolicyBlock,
    TaskBlock,
    resolved,
    resolved_policy,
    resolved_task,
)
from maskpolicy.config.policy_blocks import compares_corpora
from maskpolicy.plugins.registry import ROW_TRAININGS
from maskpolicy.types import Json


def cell_config(experiment: Experiment, policy: PolicyBlock, task: TaskBlock, seed: int) -> Json:
    """Return exactly the settings that one cell depends on.

    A `none` cell thus has no settings of the intermediate stage, and is equal in runs that differ
    only in that stage.
    """
    specs: dict[str, Any] = {"general": experiment.general}
    specs |= {name: experiment.budget(name, policy) for name in ROW_TRAININGS}
    specs = {name: settled(spec, name) for name, spec in specs.items()}
    corpus = experiment.corpus_of(policy)
    whole = resolved(replace(experiment, corpus=corpus, **specs))
    for name in TRAININGS:
        del whole[name]["checkpoint_every"]  # does not affect results
    config = {
        "policy": _unlabelled(resolved_policy(policy)),
        "task": _unlabelled(resolved_task(task)),
        "model": whole["model"],
        "finetune": whole["finetune"],
    }
    if policy.trainings:
        config["trainings"] = policy.trainings
    if policy.tune:
        config["tune"] = policy.tune
    if experiment.model.is_scratch:
        config["general"] = whole["general"]
        config["general_seeds"] = experiment.general_seeds
        config["general_seed"] = experiment.general_of(experiment.run_of(seed))
    if WORLD in (task.data, corpus.name) or experiment.model.is_scratch:
        config["world"] = whole["world"]
    if policy.has_stage:
        names = ["corpus", "intermediate", "intermediate_seeds"]
        if compares_corpora(policy) and experiment.contrast_corpus is not None:
            names.append("contrast_corpus")
        if learned_policies.is_learned(policy):
            names.append("fit")
            tasks = learned_policies.trained_on(experiment, policy)
            config["train_on"] = [_unlabelled(resolved_task(one)) for one in tasks]
        config |= {name: whole[name] for name in names}
        config["intermediate_seed"] = experiment.run_of(seed)
    return json.loads(keys.canonical(config))  # the same types and order as read from a file


def candidate_config(policy: PolicyBlock, config: Json) -> Json:
    """Return a candidate's settings, with what the row itself states: budgets, and what to tune."""
    stated = {"trainings": policy.trainings, "tune": policy.tune}
    rest = {key: value for key, value in config.items() if key != "trainings"}
    stated = {key: value for key, value in stated.items() if value}
    return json.loads(keys.canonical({**rest, **stated}))


def _unlabelled(block: Mapping[str, Json]) -> dict[str, Json]:
    return {key: value for key, value in block.items() if key != "label"}
