"""The tokenizer of a model, and statistics of a corpus, for text outside an experiment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from maskpolicy.config.experiment import Experiment, PolicyBlock
from maskpolicy.errors import StoreError
from maskpolicy.graph.nodes import Stage
from maskpolicy.plugins.statistics import Statistics
from maskpolicy.runs.preview import PolicyOfRun, statistics_of_run
from maskpolicy.store.artifacts import Store


def tokenizer_of(name: str, artifacts: Store) -> Any:
    """Return a model's tokenizer; that of a preset is trained once and kept in the store."""
    from maskpolicy import stages
    from maskpolicy.config.experiment import NONE
    from maskpolicy.models.tokenizers import load_tokenizer

    experiment = _of_world(name, [NONE])
    if not experiment.model.is_scratch:
        return load_tokenizer(experiment.model.name)
    stage = stages.tokenizer(experiment, artifacts.hash_file)
    [folder] = _computed([stage], artifacts)
    return load_tokenizer(str(folder))


def statistics_of(
    block: PolicyBlock, model: str, of_run: PolicyOfRun | None, artifacts: Store
) -> list[Statistics | None]:
    """Return the statistics that each policy of a block that selects reads.

    They are those of the run, or else of the embedded world's corpus in the model's tokens, which
    are counted once and kept in the store.
    """
    from maskpolicy import stages
    from maskpolicy.config.experiment import resolved_policy
    from maskpolicy.config.policy_blocks import leaf_blocks
    from maskpolicy.plugins import hooks
    from maskpolicy.plugins.discovery import find_plugin
    from maskpolicy.plugins.statistics import Statistics

    if not block.has_stage:
        return []
    leaves = [find_plugin("policy", leaf.name) for leaf, _ in leaf_blocks(block, "policy")]
    if not any(hooks.masks_by_statistics(leaf.plugin) for leaf in leaves):
        return [None] * len(leaves)
    if of_run:
        return statistics_of_run(of_run, len(leaves), artifacts)
    experiment = _of_world(model, [resolved_policy(block)], baseline=block.label)
    made = stages.statistics(experiment, 0, artifacts.hash_file)
    folders = iter(_computed([stage for stage in made if stage is not None], artifacts))
    return [Statistics.open(next(folders)) if stage else None for stage in made]


def _of_world(model: str, policies: list[Any], **more: Any) -> Experiment:
    """Return an experiment on the embedded world without tasks."""
    from maskpolicy.config.experiment import WORLD
    from maskpolicy.config.parse import make_experiment

    keys = {"model": model, "corpus": WORLD, "policies": policies, "tasks": [], **more}
    return make_experiment(keys, "show", "", (), needs=())


def _computed(stages: Sequence[Stage], artifacts: Store) -> list[Path]:
    """Return the folders of stages' artifacts; computes those that are not in the store.

    Raises the error of a stage that fails.
    """
    from maskpolicy.graph.execution import execute

    for outcome in execute(stages, artifacts, targets=stages).values():
        if outcome.exception is not None:
            raise outcome.exception
    folders = []
    for stage in stages:
        artifact = artifacts.get(stage.key)
        if artifact is None:
            raise StoreError(f"{stage.name}: its artifact is gone again: give the command again")
        folders.append(artifact.path)
    return folders
