"""maskpolicy show and gallery: what policies mask in a text."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from maskpolicy.app.arguments import AsJson, Plugins, RunStoreOptions, policy_keys, row_words
from maskpolicy.app.printed import console, log_to
from maskpolicy.core import markdown, schema
from maskpolicy.core.errors import ConfigError, DataError, unknown
from maskpolicy.core.files import write_file
from maskpolicy.experiment.definition import ENCODER
from maskpolicy.plugins import discovery, hooks, registry
from maskpolicy.plugins.discovery import find_plugin, plugin_of_run
from maskpolicy.plugins.registry import DENOISING_KEYS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from maskpolicy.app.preview import MaskedText, Masking, Preview
    from maskpolicy.experiment.definition import PolicyBlock
    from maskpolicy.pipeline.store.artifacts import Store

log = logging.getLogger(__name__)
ENGLISH = "en"
DEFAULT = "mini"  # the model whose tokenizer is used
MOST = 20  # texts of a file
TEXT = (
    "Himan Kendal was known as a weaver. His first loom was a Quarkstone of 1854. He died in "
    "Trevatek on 6 March 1893."
)


def show(
    *,
    policies: Annotated[
        list[str],
        Argument(
            metavar="POLICY|KEY=VALUE",
            help="Policies (with --run, its rows), and keys for all of them, such as "
            'policy.ratio=0.3; "POLICY KEY=VALUE", quoted, is a policy with its own keys.',
        ),
    ],
    text: Annotated[str | None, Option(metavar="TEXT", help="The text to mask.")] = None,
    file: Annotated[
        Path | None,
        Option(metavar="FILE", help=f"A file of texts; the first {MOST} are masked."),
    ] = None,
    plugin: Plugins = None,
    model: Annotated[
        str | None, Option(metavar="NAME_OR_DIR", help="Model of the tokenizer.")
    ] = None,
    run: Annotated[
        str | None,
        Option(metavar="RUN", help="The run of these rows; shows what their policies learned."),
    ] = None,
    seed: Annotated[int, Option(min=0, help="Seed of the masks.")] = 0,
    seeds: Annotated[int, Option(min=1, help="Number of seeds, from --seed on.")] = 1,
    progress: Annotated[
        float, Option(min=0, metavar="SHARE", help="Share of the training done, below 1.")
    ] = 0.0,
    language: Annotated[
        str | None, Option(metavar="CODE", help="The text's language: en, de, ja, ..")
    ] = None,
    unmask: Annotated[
        int | None,
        Option(min=1, metavar="STEPS", help="Fill the masks by --model, an encoder, in steps."),
    ] = None,
    html: Annotated[Path | None, Option(metavar="FILE", help="Write a page as well.")] = None,
    store: RunStoreOptions,
    as_json: AsJson = False,
) -> None:
    """Show what policies mask in a text, and the resulting source and target."""
    from maskpolicy.app import packing, preview
    from maskpolicy.experiment.model_and_corpus import check_language

    log_to(console(err=True))
    check_language(ENGLISH if language is None else language, "--language")
    if progress >= 1:
        raise ConfigError(f"--progress: must be below 1, not {progress:g}")
    texts = _texts(text, file)
    first, *others = policies
    keys = [word for word in others if "=" in word.partition(" ")[0]]
    rows = dict.fromkeys([first, *(word for word in others if word not in keys)])
    discovery.load_files(plugin or (), fresh=True)
    with packing.opened([run] if run else []) as runs:
        artifacts = store.open_writable(runs.kept)  # a temporary one is removed with this variable
        with runs.naming(lambda: artifacts):
            folder = runs.only() if run else None
            about = keys, folder, model, language, artifacts
            maskings = {row: _masking(row, *about) for row in rows}
    if unmask is not None:
        if model is None or preview.kind_of(model) != ENCODER:
            raise ConfigError("--unmask: needs the weights of an encoder: --model NAME_OR_DIR")
        maskings = {row: each.filled_by(model, unmask) for row, each in maskings.items()}
    previews = [
        preview.Preview(row, number, masking(each, number, progress))
        for each in texts
        for row, masking in maskings.items()
        for number in range(seed, seed + seeds)
    ]
    if html is not None:
        write_file(html, preview.page(previews).encode(), "--html")
    if as_json:
        _print_json(previews)
    else:
        _print(previews, console())
    if html is not None:
        typer.echo(f"written to {html}", err=as_json)


def _print_json(previews: Sequence[Preview]) -> None:
    """Print a list of objects, or one object that leaves out policy, seed and text."""
    objects = [each.to_json() for each in previews]
    if len(objects) == 1:
        objects[0] = {k: v for k, v in objects[0].items() if k not in ("policy", "seed", "text")}
    typer.echo(json.dumps(objects if len(objects) > 1 else objects[0], ensure_ascii=False))


def _print(previews: Sequence[Preview], screen: Console) -> None:
    """Print each text with its masked parts, its source and its target."""
    from rich.text import Text

    has_seeds = len({each.seed for each in previews}) > 1
    for number, preview in enumerate(previews):
        if len(previews) > 1:
            name = f"{preview.row}, seed {preview.seed}" if has_seeds else preview.row
            screen.print(*([""] if number else []), name, sep="\n", style="bold", soft_wrap=True)
        text = Text(preview.masked.text)
        for start, end, _ in preview.masked.spans:
            text.stylize("bold black on yellow", start, end)
        lines: dict[str, str | Text | None] = {
            "text    ": text,
            "masked  ": " | ".join(part for _, _, part in preview.masked.spans) or "nothing",
            "source  ": preview.masked.source,
            "target  ": preview.masked.target or "–",
            "unmasked ": preview.masked.unmasked,
        }
        for heading, line in lines.items():
            if line is not None:
                screen.print(heading, line, sep="", soft_wrap=True)


def _texts(text: str | None, file: Path | None) -> list[str]:
    """Return the text, or the first texts of the file; raises ConfigError for both or neither."""
    from maskpolicy.data.datafiles import fields, readers
    from maskpolicy.data.datafiles.rows import Layout

    if (text is None) == (file is None):
        raise ConfigError("show: give the text to mask by --text TEXT, or texts by --file FILE")
    if file is None:
        return [str(text)]
    texts = []
    for row in islice(readers.rows(file, Layout(keys=["text"])), MOST):
        try:
            texts.append(fields.text(row.value or {}, "text"))
        except DataError as error:
            raise DataError(f"{row.place}: {row.error or error}") from None
    if not texts:
        raise DataError(f"{file}: has no text")
    return texts


def _masking(
    row: str,
    keys: Sequence[str],
    run: Path | None,
    model: str | None,
    language: str | None,
    artifacts: Store,
) -> Masking:
    """Return the masking of one row."""
    from maskpolicy.app import preview
    from maskpolicy.experiment import policy_blocks
    from maskpolicy.leaderboard.results import cell
    from maskpolicy.models.loading import load_tokenizer

    policy, *own = [row] if run else row_words(row)
    of_run = preview.from_run(run, policy, artifacts) if run else None
    if run and of_run:
        plugin_of_run("policy", of_run.policy["name"], cell.plugin_files(run))
        preview.warn_of_edits(of_run, artifacts)
    model_name = model or DEFAULT
    kind = "" if of_run else preview.kind_of(model_name)
    block = policy_blocks.policy_block(_block(policy, [*keys, *own], of_run), "policy", {}, kind)
    block = replace(block, label=of_run.label) if of_run else block
    if block.has_stage and hooks.REANNOTATE.of(block.policy) is not None:
        log.info(
            "%s masks by what the model in training predicts: shown %s", policy, preview.UNLEARNED
        )
    if of_run is None:
        if hooks.reads_statistics(block.policy):
            log.info("%s: counts are those of the embedded world: --run RUN has its own", policy)
        return preview.Masking.of(block, model_name, artifacts, language or ENGLISH)
    tokenizer = (
        load_tokenizer(str(of_run.tokenizer))
        if model is None
        else preview.tokenizer_of(model, artifacts)
    )
    room = None if model else of_run.reading.room  # it is that of the run's model
    language = language or of_run.reading.language
    reading = replace(of_run.reading, language=language, room=room)
    statistics = preview.statistics_of(block, model_name, of_run, artifacts)
    return preview.Masking(block, tokenizer, reading, statistics, of_run.fitted)


def _block(name: str, words: Sequence[str], of_run: Any) -> dict[str, Any]:
    """Return the block of a policy, or of a row of a run, with the keys of this command."""
    from maskpolicy.app import preview
    from maskpolicy.experiment import policy_blocks

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


def gallery(
    *,
    rows: Annotated[
        list[str] | None,
        Argument(metavar="[ROW ...]", help='Also: "POLICY policy.FIELD=VALUE ..", quoted.'),
    ] = None,
    text: Annotated[str, Option(metavar="TEXT", help="The text to mask.")] = TEXT,
    seed: Annotated[int, Option(min=0, help="Seed of the masks.")] = 2,
    model: Annotated[str, Option(metavar="NAME_OR_DIR", help="Model of the tokenizer.")] = DEFAULT,
    alone: Annotated[bool, Option("--alone", help="Only the rows that are given.")] = False,
    picture: Annotated[
        Path | None, Option(metavar="FILE", help="Draw the rows as well: .svg or .png.")
    ] = None,
    plugin: Plugins = None,
    store: RunStoreOptions,
) -> None:
    """Print one text masked by each policy, as a page in Markdown."""
    from maskpolicy.app import preview
    from maskpolicy.experiment import policy_blocks

    log_to(console(err=True))
    if picture is not None and picture.suffix not in (".svg", ".png"):
        raise ConfigError(f"--picture: {picture}: end the name in .svg or .png")
    discovery.load_files(plugin or (), fresh=True)
    blocks: dict[str, PolicyBlock] = {}  # of all rows, so that a mistake is found before any work
    others, kind = [], preview.kind_of(model)
    for row in (*(() if alone else _policies(plugin or ())), *(rows or ())):
        name, *words = row_words(row)
        if lacking := "" if words else _lacking(name):
            others.append(f"`{name}` {lacking}")
        else:
            fields = _block(name, words, None)
            blocks[row] = policy_blocks.policy_block(fields, "policy", {}, kind)
    artifacts = store.open_writable([])
    masked = {
        row: preview.Masking.of(block, model, artifacts, ENGLISH)(text, seed)
        for row, block in blocks.items()
    }
    if picture is not None:
        _draw(masked, picture)
    about = f"Each row is `maskpolicy show POLICY --seed {seed}`, with the tokenizer of {model}"
    where = "the statistics of the embedded world where a policy reads some, and this text"
    typer.echo(
        "# Every policy on one passage\n\n"
        f"Written by `maskpolicy gallery`. {about}, {where}:\n\n> {' '.join(text.split())}\n"
    )
    cells = [[f"`{row}`", _code(each.source), _target(each)] for row, each in masked.items()]
    typer.echo(markdown.table(["policy", "source", "target"], cells))
    asking = [f"`{row}`" for row, b in blocks.items() if hooks.REANNOTATE.of(b.policy)]
    if asking:
        typer.echo(f"\n{', '.join(asking)}: {preview.UNLEARNED}.")
    if others:
        typer.echo(f"\nNot here: {'; '.join(others)}.")


def _policies(files: Sequence[Path]) -> list[str]:
    """Return the names of maskpolicy's own policies, and of those that `files` define."""
    discovery.load_builtin("policy")
    paths = {str(path.resolve()) for path in files}
    entries = [registry.entry("policy", name) for name in registry.names("policy")]
    own = [entry.name for entry in entries if registry.is_builtin(entry.plugin)]
    return own + [entry.name for entry in entries if entry.file in paths]


def _lacking(name: str) -> str:
    """Return why a policy cannot be shown by its name alone, or ""."""
    plugin = find_plugin("policy", name).plugin
    if hooks.FIT.of(plugin) is not None:
        source = "labels" if hooks.LEARNS_FROM.of(plugin) == "labels" else "a model"
        return f"learns from {source}: `show --run`"
    needed = [key for key, field in schema.fields_of(plugin).items() if field.is_required]
    return f"needs {', '.join(f'`{key}`' for key in needed)}" if needed else ""


def _target(masked: MaskedText) -> str:
    if masked.target == masked.text:
        return "the full text"
    return _code(masked.target) if masked.target else "nothing"


def _code(text: str) -> str:
    """Return text as code in a cell of a table in Markdown."""
    fence = "``" if "`" in text else "`"
    return f"{fence}{' '.join(text.split())}{fence}"


def _draw(masked: Mapping[str, MaskedText], file: Path) -> None:
    """Draw each row's text with frames around what it masks."""
    from maskpolicy.analyses.plots import Marked, draw

    plots = [
        Marked(row, each.text, [(start, end, 1.0) for start, end, _ in each.spans], place)
        for place, (row, each) in enumerate(masked.items())
    ]
    write_file(file, draw(plots)[file.suffix[1:]], "--picture")
