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
    Plugins,
    PolicyKeys,
    RunStore,
    console,
    log_to,
)
from maskpolicy.errors import ConfigError, unknown
from maskpolicy.runs.command_words import policy_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.text import Text

    from maskpolicy.runs.preview import MaskedText

log = logging.getLogger(__name__)
DEFAULT = "mini"  # the model whose tokenizer is used


def show(
    policy: Annotated[str, typer.Argument(metavar="POLICY", help="A policy; with --run, a row.")],
    text: Annotated[str, typer.Option(metavar="TEXT", help="The text to mask.")],
    keys: PolicyKeys = None,
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
    from maskpolicy.config import policy_blocks
    from maskpolicy.models import bart as models
    from maskpolicy.plugins import discovery
    from maskpolicy.plugins.discovery import plugin_of_run
    from maskpolicy.results import cell, run_record
    from maskpolicy.runs import preview, preview_inputs
    from maskpolicy.store.opening import open_store

    log_to(console(err=True))
    if progress >= 1:
        raise ConfigError(f"--progress: must be below 1, not {progress:g}")
    runs = [run] if run else []
    discovery.load_files(plugin or (), fresh=True)
    artifacts = open_store(run_record.trusted_store(store, runs), cache)
    of_run = preview.from_run(run, policy, artifacts) if run else None
    if run and of_run:
        plugin_of_run("policy", of_run.policy["name"], cell.plugin_files(run))
        preview.tell_edited(of_run, artifacts)
    block = policy_blocks.policy_block(given_block(policy, keys or (), of_run), "policy", {})
    block = replace(block, label=of_run.label) if of_run else block
    if of_run and model is None:
        tokenizer = models.load_tokenizer(str(of_run.tokenizer))
    else:
        tokenizer = preview_inputs.tokenizer_of(model or DEFAULT, artifacts)
    if block.has_stage and preview.asks_the_model(block):
        log.info(
            "%s masks by what the model in training predicts: shown %s", policy, preview.UNLEARNT
        )
    read = preview_inputs.statistics_of(block, model or DEFAULT, of_run, artifacts)
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
    from maskpolicy.config import policy_blocks
    from maskpolicy.plugins.registry import DENOISING_KEYS
    from maskpolicy.runs import preview

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


def _coloured(masked: MaskedText) -> Text:
    from rich.text import Text

    text = Text(masked.text)
    for start, end, _ in masked.spans:
        text.stylize("bold black on yellow", start, end)
    return text
