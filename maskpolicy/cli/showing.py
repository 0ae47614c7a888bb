"""maskpolicy show: mask a text with a policy."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from maskpolicy.cli.arguments import AsJson, Cache, Plugins, RunStore, console, log_to
from maskpolicy.errors import ConfigError, DataError, unknown
from maskpolicy.runs.command_words import policy_keys, row_words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.text import Text

    from maskpolicy.runs.preview import MaskedText
    from maskpolicy.runs.preview_page import Preview
    from maskpolicy.store.artifacts import Store
    from maskpolicy.types import Json

    Masking: TypeAlias = Callable[[str, int, float], MaskedText]  # (text, seed, progress) -> masks

log = logging.getLogger(__name__)
DEFAULT = "mini"  # the model whose tokenizer is used
MOST = 20  # texts of a file


def show(
    policies: Annotated[
        list[str],
        typer.Argument(
            metavar="POLICY|KEY=VALUE",
            help="Policies (with --run, rows of it), and keys for all of them, such as "
            'policy.ratio=0.3; "POLICY KEY=VALUE", quoted, is a policy with keys of its own.',
        ),
    ],
    text: Annotated[str | None, typer.Option(metavar="TEXT", help="The text to mask.")] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help=f"A file of texts, of which the first {MOST} are masked."
        ),
    ] = None,
    plugin: Plugins = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME_OR_DIR", help="Model of the tokenizer.")
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="A run with these rows and what their policies learnt."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the masks.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds, from --seed on.")] = 1,
    progress: Annotated[
        float, typer.Option(min=0, metavar="SHARE", help="Share of the training done, below 1.")
    ] = 0.0,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page as well.")] = None,
    store: RunStore = None,
    cache: Cache = None,
    as_json: AsJson = False,
) -> None:
    """Show what policies mask in a text, and the resulting source and target."""
    from maskpolicy.files import write_file
    from maskpolicy.plugins import discovery
    from maskpolicy.runs import preview_page

    log_to(console(err=True))
    if progress >= 1:
        raise ConfigError(f"--progress: must be below 1, not {progress:g}")
    texts = _texts(text, file)
    discovery.load_files(plugin or (), fresh=True)
    maskings = _maskings(policies, run, model, store, cache)
    found = [
        preview_page.Preview(row, number, masking(each, number, progress))
        for each in texts
        for row, masking in maskings.items()
        for number in range(seed, seed + seeds)
    ]
    if html is not None:
        write_file(html, preview_page.render(found).encode(), "--html")
    if as_json:
        typer.echo(json.dumps(_json(found), ensure_ascii=False))
    else:
        _print(found)
    if html is not None:
        typer.echo(f"written to {html}", err=as_json)


def _texts(text: str | None, file: Path | None) -> list[str]:
    """Return the text, or the first texts of the file; one of both must be given."""
    from maskpolicy.datafiles import fields, readers
    from maskpolicy.datafiles.rows import Layout

    if (text is None) == (file is None):
        raise ConfigError("show: give the text to mask by --text TEXT, or texts by --file FILE")
    if file is None:
        return [str(text)]
    found = []
    for row in islice(readers.rows(file, Layout(keys=["text"])), MOST):
        try:
            found.append(fields.text(row.value or {}, "text"))
        except DataError as error:
            raise DataError(f"{row.place}: {row.error or error}") from None
    if not found:
        raise DataError(f"{file}: has no text")
    return found


def _maskings(
    words: Sequence[str], run: str | None, model: str | None, store: str | None, cache: Path | None
) -> dict[str, Masking]:
    """Return the function of each row, from the words of the command: rows, and keys for all."""
    from maskpolicy.results import run_record
    from maskpolicy.runs import packing
    from maskpolicy.store import overlay
    from maskpolicy.store.opening import open_store

    first, *others = words
    keys = [word for word in others if "=" in word.partition(" ")[0]]
    rows = dict.fromkeys([first, *(word for word in others if word not in keys)])
    with packing.opened([run] if run else []) as runs:
        place = run_record.trusted_store(store, runs.kept)
        artifacts = overlay.writable(open_store(place, cache))
        with runs.naming(artifacts):
            folder = runs.only() if run else None
            return {row: _masking(row, keys, folder, model, artifacts) for row in rows}


def _masking(
    row: str, keys: Sequence[str], run: Path | None, model: str | None, artifacts: Store
) -> Masking:
    """Return the function that masks as one row does."""
    from maskpolicy.config import policy_blocks
    from maskpolicy.models.tokenizers import load_tokenizer
    from maskpolicy.plugins.discovery import plugin_of_run
    from maskpolicy.results import cell
    from maskpolicy.runs import preview, preview_inputs

    policy, *own = [row] if run else row_words(row)
    of_run = preview.from_run(run, policy, artifacts) if run else None
    if run and of_run:
        plugin_of_run("policy", of_run.policy["name"], cell.plugin_files(run))
        preview.warn_of_edits(of_run, artifacts)
    given = given_block(policy, [*keys, *own], of_run)
    block = policy_blocks.policy_block(given, "policy", {})
    block = replace(block, label=of_run.label) if of_run else block
    if of_run and model is None:
        tokenizer = load_tokenizer(str(of_run.tokenizer))
    else:
        tokenizer = preview_inputs.tokenizer_of(model or DEFAULT, artifacts)
    if block.has_stage and preview.asks_the_model(block):
        log.info(
            "%s masks by what the model in training predicts: shown %s", policy, preview.UNLEARNT
        )
    read = preview_inputs.statistics_of(block, model or DEFAULT, of_run, artifacts)
    fitted = of_run.fitted if of_run else None

    def mask(text: str, seed: int, progress: float) -> MaskedText:
        return preview.show(text, block, tokenizer, fitted, seed, progress, read)

    return mask


def _json(found: Sequence[Preview]) -> Json:
    """Return a list of what was masked; of one preview alone, an object without policy and seed."""
    if len(found) > 1:
        return [each.to_json() for each in found]
    return {key: found[0].to_json()[key] for key in ("spans", "source", "target")}


def _print(found: Sequence[Preview]) -> None:
    screen = console()
    has_seeds = len({each.seed for each in found}) > 1
    for number, each in enumerate(found):
        masked = each.masked
        if len(found) > 1:
            name = f"{each.row}, seed {each.seed}" if has_seeds else each.row
            screen.print(*([""] if number else []), name, sep="\n", style="bold", soft_wrap=True)
        spans = " | ".join(part for _, _, part in masked.spans) or "nothing"
        parts = (_coloured(masked), spans, masked.source, masked.target or "–")
        for heading, part in zip(("text", "masked", "source", "target"), parts, strict=True):
            screen.print(f"{heading:<8}", part, sep="", soft_wrap=True)


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
