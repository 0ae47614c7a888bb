"""maskpolicy list, world, examples and doctor: what there is and what it holds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from maskpolicy.cli.words import STORE, Keys, Plugins, StorePath, console
from maskpolicy.errors import ConfigError, StoreError, unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from maskpolicy.registry import Entry
    from maskpolicy.types import Json

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


KINDS = {"policies": "policy", "tasks": "task"}
SAMPLE = 1000  # documents that the share of askable spans is measured on


def list_(
    what: Annotated[str, typer.Argument(metavar="policies|tasks|models")],
    as_json: AsJson = False,
    plugin: Plugins = None,
) -> None:
    """List the policies, tasks or models that an experiment can name."""
    if what not in (*KINDS, "models"):
        raise ConfigError(unknown("list", what, (*KINDS, "models")))
    if what in KINDS:
        print_plugins(KINDS[what], plugin or (), as_json=as_json)
    else:
        _print(_models(), as_json=as_json)


def print_plugins(kind: str, files: Sequence[Path], *, as_json: bool) -> None:
    """Print every plugin of a kind; a broken one is named on stderr and left out."""
    _print(_plugins(kind, files), as_json=as_json)


def _print(found: Sequence[Json], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False, indent=1))
        return
    from rich.table import Table

    names = [name for name in found[0] if name not in ("fields", "where")]
    table = Table(*names, *(["fields"] if "fields" in found[0] else []), box=None)
    for entry in found:
        fields = ", ".join(
            f"{name}={json.dumps(field['default'])}" if "default" in field else name
            for name, field in entry.get("fields", {}).items()
        )
        cells = [_shown(entry[name]) for name in names]
        table.add_row(*cells, *([fields] if "fields" in entry else []))
    console().print(table)


def world(
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder to write into.")],
    keys: Keys = None,
    as_json: AsJson = False,
) -> None:
    """Write the embedded world: corpora, and the tasks in their official formats."""
    from maskpolicy import results, yaml_file
    from maskpolicy import world as embedded
    from maskpolicy.world.settings import KINDS

    every = {"kinds": list(KINDS)}  # so that all tasks are written
    made = embedded.make(every | yaml_file.assignments(keys or ()))
    results.claim(out)
    try:
        embedded.write(made, out)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise StoreError(f"{out}: cannot be written: {reason}; choose another --out") from error
    figures = embedded.figures(out)
    figures["salient-span"] = {"intermediate": _askable(out / "intermediate.jsonl")}
    if as_json:
        typer.echo(json.dumps(figures, indent=1))
        return
    screen = console()
    for part, rows in figures.items():
        for name, numbers in rows.items():
            shown = ", ".join(f"{key.replace('_', ' ')} {_number(n)}" for key, n in numbers.items())
            screen.print(f"{part} {name}: {shown}", soft_wrap=True)
    screen.print(f"written to {out}", soft_wrap=True)


def examples(
    task: str,
    data: Annotated[str, typer.Option(metavar="DIR", help="Official files, or: hub.")],
    keys: Keys = None,
    split: Annotated[str, typer.Option(metavar="train|dev|test")] = "test",
    limit: Annotated[int | None, typer.Option(min=0, help="Most examples to print.")] = None,
    plugin: Plugins = None,
) -> None:
    """Print a split of a task as the experiments use it, one JSON object in each line."""
    from maskpolicy import config, plugins, yaml_file
    from maskpolicy import examples as splits

    plugins.load_files(plugin or ())
    given = {"name": task, **yaml_file.assignments(keys or ()), "data": config.HUB}
    block = config.task_block(given, "examples", Path.cwd())  # its mistakes come before --data's
    block = replace(block, data=config.data_source(data, "--data", Path.cwd(), [config.HUB]))
    for line in splits.lines(block, split, Path(block.data), limit):
        typer.echo(line)


def doctor(
    store: StorePath = STORE,
    prune: Annotated[bool, typer.Option("--prune", help="Free what no command needs.")] = False,
    older: Annotated[
        float | None,
        typer.Option(min=0, metavar="DAYS", help="Free what no run has used for so long, too."),
    ] = None,
) -> None:
    """Print versions, hardware, chosen precision and attention, pipelines and the store's size."""
    if older is not None and not prune:
        raise ConfigError("--older: says what --prune frees: give both")
    from spacy.util import get_installed_models

    from maskpolicy import hardware, manifest
    from maskpolicy.budgets import Training
    from maskpolicy.store import Store

    screen = console()
    around = manifest.surroundings()
    chosen = hardware.resolve(Training())
    artifacts = Store(store)
    rows = [
        ("versions", ", ".join(f"{name} {number}" for name, number in around["versions"].items())),
        ("commit", around["commit"] or "no checkout"),
        ("hardware", hardware.describe()),
        ("precision", chosen.precision),
        ("attention", chosen.attention),
        ("spaCy", ", ".join(get_installed_models()) or "no trained pipeline: the built-in rules"),
    ]
    if prune:
        freed = artifacts.prune(older)
        rows.append(("freed", f"{_size(sum(freed.values()))} of {artifacts.root}"))
    sizes = artifacts.size()
    parts = ", ".join(f"{name} {_size(size)}" for name, size in sizes.items() if size)
    rows.append(("store", f"{artifacts.root}: {_size(sum(sizes.values()))}"))
    rows += [("", parts)] if parts else []
    for name, value in rows:
        screen.print(f"{name:<10} {value}", soft_wrap=True)


def _askable(corpus: Path) -> Json:
    """Return what share of salient-span's draws is ever asked for; counts distinct mentions."""
    from maskpolicy.pipelines import entities

    with corpus.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line, _ in zip(lines, range(SAMPLE), strict=False)]
    mentions = asked = 0
    for row, found in zip(rows, entities(row["text"] for row in rows), strict=True):
        wanted = {row["text"][start:end] for start, end, _ in row["asked"]}
        drawn = {row["text"][start:end] for start, end, _ in found}
        mentions += len(drawn)
        asked += len(drawn & wanted)
    share = asked / mentions if mentions else 0.0
    return {"documents": len(rows), "mentions": mentions, "asked_share": share}


def _models() -> list[Json]:
    from maskpolicy.kinds import KINDS as models

    presets = [
        {"name": name, "kind": kind, "summary": preset.summary}
        for kind, about in models.items()
        for name, preset in about.presets.items()
    ]
    others = [
        {"name": name, "kind": kind, "summary": summary.format(about.family)}
        for kind, about in models.items()
        for name, summary in (
            ("DIR", "a Transformers folder with a {} model and its tokenizer"),
            ("OWNER/NAME", "a {} model on the Hub"),
        )
    ]
    return presets + others


def _plugins(kind: str, files: Sequence[Path]) -> list[Json]:
    from maskpolicy import plugins, registry
    from maskpolicy.config import NONE

    plugins.load_files(files)
    plugins.load_builtin(kind)
    for broken in plugins.load_entry_points():
        typer.echo(f"warning: {broken}", err=True)
    found = []
    for name in registry.names(kind):
        try:
            found.append(_described(registry.entry(kind, name)))
        except ConfigError as error:
            typer.echo(f"warning: {kind} {name!r}: {error}", err=True)
    if kind == "policy":
        summary = "No intermediate stage: the row that every other is compared with."
        found.insert(0, {"name": NONE, "summary": summary, "how": {}, "fields": {}, "where": ""})
    return found


def _described(entry: Entry) -> Json:
    from maskpolicy import keys, schema, sources

    fields = {
        name: {"type": schema.words(field.annotation)}
        | ({} if field.is_required else {"default": keys.plain(field.default, name)})
        for name, field in schema.fields_of(entry.plugin).items()
    }
    about: dict[str, Json] = {"name": entry.name, "summary": entry.summary}
    if entry.kind == "policy":
        about["how"] = entry.facts
    elif entry.kind == "task":
        facts = sources.facts(entry)
        about |= {"kind": facts.kind, "group": facts.group, "metric": facts.metric}
        about["files"] = dict(facts.files)
        about["hub"] = facts.hub.id if facts.hub else None
    return {**about, "fields": fields, "where": entry.where}


def _shown(value: Json) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={item}" for key, item in value.items())
    return "–" if value is None else str(value)


def _number(value: float) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
