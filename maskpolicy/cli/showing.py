"""maskpolicy show: mask a text with a policy."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from maskpolicy.cli.arguments import (
    AsJson,
    Cache,
    Keys,
    Plugins,
    RunStore,
    console,
    log_to,
    policy_keys,
    store_of,
)
from maskpolicy.errors import ConfigError, unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.text import Text

    from maskpolicy.cli.preview import MaskedText, PolicyOfRun
    from maskpolicy.config.experiment import Experiment, PolicyBlock
    from maskpolicy.graph.nodes import Stage
    from maskpolicy.plugins.statistics import Statistics
    from maskpolicy.store.artifacts import Store

log = logging.getLogger(__name__)
DEFAULT = "mini"  # the model whose tokenizer is used


def show(
    policy: Annotated[str, typer.Argument(metavar="POLICY", help="A policy; with --run, a row.")],
    text: Annotated[str, typer.Option(metavar="TEXT", help="The text to mask.")],
    keys: Keys = None,
    plugin: Plugins = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME_OR_DIR", help="Model of the tokenizer.")
    ] = None,
    run: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A run with the row and its fitted policy.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the masks.")] = 0,
    progress: Annotated[
        float, typer.Option(min=0, metavar="SHARE", help="Share of the training done, below 1.")
    ] = 0.0,
    store: RunStore = None,
    cache: Cache = None,
    as_json: AsJson = False,
) -> None:
    """Show what a policy masks in a text, and the resulting source and target."""
    from maskpolicy.cli import preview
    from maskpolicy.config import policy_blocks
    from maskpolicy.models import bart as models
    from maskpolicy.plugins import discovery
    from maskpolicy.plugins.discovery import plugin_of_run
    from maskpolicy.results import cell
    from maskpolicy.store.opening import open_store

    log_to(console(err=True))
    if progress >= 1:
        raise ConfigError(f"--progress: must be below 1, not {progress:g}")
    runs = [run] if run else []
    discovery.load_files(plugin or (), fresh=True)
    artifacts = open_store(store_of(store, runs), cache)
    of_run = preview.from_run(run, policy, artifacts) if run else None
    if run and of_run:
        plugin_of_run("policy", of_run.policy["name"], cell.plugin_files(run))
    block = policy_blocks.policy_block(given_block(policy, keys or (), of_run), "policy", {})
    block = replace(block, label=of_run.label) if of_run else block
    if of_run and model is None:
        tokenizer = models.load_tokenizer(str(of_run.tokenizer))
    else:
        tokenizer = tokenizer_of(model or DEFAULT, artifacts)
    if block.has_stage and preview.asks_the_model(block):
        log.info(
            "%s masks by what the model in training predicts: shown %s", policy, preview.UNLEARNT
        )
    read = statistics_of(block, model or DEFAULT, of_run, artifacts)
    fitted = of_run.fitted if of_run else None
    masked = preview.show(text, block, tokenizer, fitted, seed, progress, read)
    if as_json:
        found = {"spans": masked.spans, "source": masked.source, "target": masked.target}
        typer.echo(json.dumps(found, ensure_ascii=False))
        return
    screen = console()
    hidden = " | ".join(part for _, _, part in masked.spans) or "nothing"
    parts = (_coloured(masked), hidden, masked.source, masked.target or "–")
    for name, part in zip(("text", "hidden", "source", "target"), parts, strict=True):
        screen.print(f"{name:<8}", part, sep="", soft_wrap=True)


def given_block(name: str, words: Sequence[str], of_run: Any) -> dict[str, Any]:
    """Return the policy's block: that of the run, updated by the keys of this command."""
    from maskpolicy.cli import preview
    from maskpolicy.config import policy_blocks
    from maskpolicy.plugins.registry import DENOISING_KEYS

    own, rest = policy_keys(name, words)
    strange = sorted(set(rest) - set(DENOISING_KEYS))
    if strange:
        policy_blocks.refuse_fields(of_run.policy["name"] if of_run else name, strange)
        choices = [*DENOISING_KEYS, "policy.FIELD"]
        raise ConfigError(unknown("key", strange[0], choices))
    if of_run is None:
        return {**rest, **own}
    preview.refuse_paths(of_run.policy, set(own))
    return {**of_run.policy, **rest, **own, "name": of_run.policy["name"]}


def tokenizer_of(name: str, artifacts: Store) -> Any:
    """Return a model's tokenizer; that of a preset is trained once and kept in the store."""
    from maskpolicy import stages
    from maskpolicy.config.experiment import NONE
    from maskpolicy.models import bart as models

    experiment = _of_world(name, [NONE])
    if not experiment.model.is_scratch:
        return models.load_tokenizer(experiment.model.name)
    stage = stages.tokenizer(experiment, artifacts.hash_file)
    _compute([stage], artifacts)
    return models.load_tokenizer(str(artifacts.path(stage.key)))


def statistics_of(
    block: PolicyBlock, model: str, of_run: PolicyOfRun | None, artifacts: Store
) -> list[Statistics | None]:
    """Return the statistics that each policy of a block that selects reads.

    They are those of the run, or else of the embedded world's corpus in the model's tokens, which
    are counted once and kept in the store.
    """
    from maskpolicy import stages
    from maskpolicy.cli import preview
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
        return preview.statistics_of_run(of_run, len(leaves), artifacts)
    experiment = _of_world(model, [resolved_policy(block)], baseline=block.label)
    made = stages.statistics(experiment, 0, artifacts.hash_file)
    _compute([stage for stage in made if stage is not None], artifacts)
    return [Statistics.open(artifacts.path(stage.key)) if stage else None for stage in made]


def _of_world(model: str, policies: list[Any], **more: Any) -> Experiment:
    """Return an experiment on the embedded world without tasks."""
    from maskpolicy.config.experiment import WORLD
    from maskpolicy.config.parse import make_experiment

    keys = {"model": model, "corpus": WORLD, "policies": policies, "tasks": [], **more}
    return make_experiment(keys, "show", "", (), needs=())


def _compute(stages: Sequence[Stage], artifacts: Store) -> None:
    """Compute stages that are not in the store; raises the error of one that fails."""
    from maskpolicy.graph.execution import execute

    for outcome in execute(list(stages), artifacts).values():
        if outcome.exception is not None:
            raise outcome.exception


def _coloured(masked: MaskedText) -> Text:
    from rich.text import Text

    text = Text(masked.text)
    for start, end, _ in masked.spans:
        text.stylize("bold black on yellow", start, end)
    return text
