"""maskpolicy gallery: one text masked by every policy, as a page in Markdown and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from maskpolicy.cli.arguments import Cache, Plugins, RunStore, console, log_to
from maskpolicy.errors import ConfigError
from maskpolicy.runs.command_words import row_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from maskpolicy.config.experiment import PolicyBlock
    from maskpolicy.runs.preview import MaskedText

TEXT = (
    "Himan Kendal was known as a weaver. His first loom was a Quarkstone of 1854. He died in "
    "Trevatek on 6 March 1893."
)


def gallery(
    rows: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ROW ...]", help='Also: "POLICY policy.FIELD=VALUE ..", quoted.'),
    ] = None,
    text: Annotated[str, typer.Option(metavar="TEXT", help="The text to mask.")] = TEXT,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the masks.")] = 2,
    model: Annotated[
        str, typer.Option(metavar="NAME_OR_DIR", help="Model of the tokenizer.")
    ] = "mini",
    alone: Annotated[bool, typer.Option("--alone", help="Only the rows that are given.")] = False,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the rows as well: .svg or .png.")
    ] = None,
    plugin: Plugins = None,
    store: RunStore = None,
    cache: Cache = None,
) -> None:
    """Print one text masked by each policy, as a page in Markdown."""
    from maskpolicy.cli import showing
    from maskpolicy.config import policy_blocks
    from maskpolicy.plugins import discovery
    from maskpolicy.results import run_record
    from maskpolicy.runs import preview, preview_inputs
    from maskpolicy.store import overlay
    from maskpolicy.store.opening import open_store

    log_to(console(err=True))
    if picture is not None and picture.suffix not in (".svg", ".png"):
        raise ConfigError(f"--picture: {picture}: end the name in .svg or .png")
    discovery.load_files(plugin or (), fresh=True)
    blocks: dict[str, PolicyBlock] = {}  # of all rows, so that a mistake is found before any work
    others, asking = [], []
    for row in (*(() if alone else _policies(plugin or ())), *(rows or ())):
        name, *words = row_words(row)
        if lacking := "" if words else _lacking(name):
            others.append(f"`{name}` {lacking}")
            continue
        given = showing.given_block(name, words, None)
        blocks[row] = policy_blocks.policy_block(given, "policy", {})
    artifacts = overlay.writable(open_store(run_record.trusted_store(store, []), cache))
    tokenizer = preview_inputs.tokenizer_of(model, artifacts)
    masked: dict[str, MaskedText] = {}
    for row, block in blocks.items():
        read = preview_inputs.statistics_of(block, model, None, artifacts)
        masked[row] = preview.show(text, block, tokenizer, None, seed, statistics=read)
        if preview.asks_the_model(block):
            asking.append(f"`{row}`")
    if picture is not None:
        _draw(masked, picture)
    typer.echo("# Every policy on one passage\n")
    about = f"Each row is `maskpolicy show POLICY --seed {seed}`, with the tokenizer of {model}"
    where = "the statistics of the embedded world where a policy reads some, and this text"
    typer.echo(f"Written by `maskpolicy gallery`. {about}, {where}:\n\n> {text}\n")
    _print(masked, others, asking)


def _print(masked: Mapping[str, MaskedText], others: Sequence[str], asking: Sequence[str]) -> None:
    """Print a table of what each row masks, and what is to be said of some of the policies."""
    from maskpolicy import markdown
    from maskpolicy.runs import preview

    cells = [[f"`{row}`", *_cells(found)] for row, found in masked.items()]
    typer.echo(markdown.table(["policy", "source", "target"], cells))
    if asking:
        typer.echo(f"\n{', '.join(asking)}: {preview.UNLEARNT}.")
    if others:
        typer.echo(f"\nNot here: {'; '.join(others)}.")


def _draw(masked: Mapping[str, MaskedText], file: Path) -> None:
    """Draw each row's text with frames around what it masks."""
    from maskpolicy.files import write_file
    from maskpolicy.plots import Marked, draw

    plots = [
        Marked(row, found.text, [(start, end, 1.0) for start, end, _ in found.spans], place)
        for place, (row, found) in enumerate(masked.items())
    ]
    write_file(file, draw(plots)[file.suffix[1:]], "--picture")


def _policies(files: Sequence[Path]) -> list[str]:
    """Return the names of maskpolicy's own policies, and of those that `files` define."""
    from maskpolicy.plugins import discovery, registry

    discovery.load_builtin("policy")
    names, given = registry.names("policy"), {str(path.resolve()) for path in files}
    entries = [registry.entry("policy", name) for name in names]
    own = [each.name for each in entries if registry.is_builtin(each.plugin)]
    return own + [each.name for each in entries if each.file in given]


def _lacking(name: str) -> str:
    """Return why a policy cannot be shown by its name alone, or ""."""
    from maskpolicy import schema
    from maskpolicy.plugins import hooks
    from maskpolicy.plugins.discovery import find_plugin

    plugin = find_plugin("policy", name).plugin
    if hooks.FIT.of(plugin) is not None:
        source = "labels" if hooks.LEARNS_FROM.of(plugin) == "labels" else "a model"
        return f"learns from {source}: `show --run`"
    needed = [key for key, field in schema.fields_of(plugin).items() if field.is_required]
    return f"needs {', '.join(f'`{key}`' for key in needed)}" if needed else ""


def _cells(masked: MaskedText) -> list[Any]:
    target = "the full text" if masked.target == masked.text else f"`{masked.target}`"
    return [f"`{masked.source}`", target if masked.target else "nothing"]
