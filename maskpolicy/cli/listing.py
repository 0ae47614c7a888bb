"""maskpolicy list: plugins, models, keys of experiments, hooks, and shipped experiments."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from maskpolicy.cli.arguments import AsJson, Plugins, console
from maskpolicy.errors import ConfigError, unknown

if TYPE_CHECKING:
    from maskpolicy.config.reference import Key
    from maskpolicy.plugins.registry import Registered
    from maskpolicy.types import Json

KINDS = {"policies": "policy", "tasks": "task", "analyses": "analysis"}
WHAT = (*KINDS, "metrics", "models", "keys", "hooks", "experiments")


def list_(
    what: Annotated[str, typer.Argument(metavar="|".join(WHAT))],
    as_json: AsJson = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print keys or hooks as Markdown tables.")
    ] = False,
    plugin: Plugins = None,
) -> None:
    """List plugins, models, keys of experiments, hooks of plugins, or shipped experiments."""
    if what not in WHAT:
        raise ConfigError(unknown("list", what, WHAT))
    if markdown and what not in ("keys", "hooks"):
        raise ConfigError("--markdown: is for `list keys` and `list hooks`; --json is for any list")
    if what == "hooks":
        _print_hooks(as_json=as_json, markdown=markdown)
    elif what == "keys":
        _print_keys(plugin or (), as_json=as_json, markdown=markdown)
    elif what == "models":
        _print_models(as_json=as_json)
    elif what == "experiments":
        _print(_experiments(), as_json=as_json)
    elif what == "metrics":
        _print(_metrics(plugin or ()), as_json=as_json)
    else:
        print_plugins(KINDS[what], plugin or (), as_json=as_json)


def print_plugins(kind: str, files: Sequence[Path], *, as_json: bool) -> None:
    """Print every plugin of a kind; broken ones are named on stderr and left out."""
    found = [about for _, about in _plugins([kind], files)]
    if kind == "policy":
        from maskpolicy.config.experiment import NONE

        summary = "No intermediate stage: the row with which others are compared."
        found.insert(0, {"name": NONE, "summary": summary, "how": {}, "fields": {}, "where": ""})
    _print(found, as_json=as_json)


def _print_keys(files: Sequence[Path], *, as_json: bool, markdown: bool) -> None:
    from maskpolicy.config import reference

    kinds = ["policy", "task"]  # only these have keys in an experiment file
    entries = [entry for entry, _ in _plugins(kinds, files)]
    own = {kind: [each for each in entries if each.kind == kind] for kind in kinds}
    found = reference.listed(own["policy"], own["task"])
    if markdown:
        typer.echo(reference.page(found), nl=False)
    elif as_json:
        typer.echo(json.dumps([key.to_json() for key in found], ensure_ascii=False, indent=1))
    else:
        _show_keys(found)


def _print_hooks(*, as_json: bool, markdown: bool) -> None:
    from maskpolicy.plugins import hooks

    if markdown:
        typer.echo("\n\n".join(f"{kind}:\n\n{hooks.table(kind)}" for kind in hooks.HOOKS))
    else:
        _print(hooks.listed(), as_json=as_json)


def _show_keys(found: Sequence[Key]) -> None:
    from rich.table import Table

    from maskpolicy.config import reference

    table = Table("block", "key", "type", "default", "", box=None)
    for key in found:
        block = f"{key.block}: {key.of}" if key.of else key.block
        cases = [f"{reference.written(value)} ({case})" for case, value in key.defaults.items()]
        table.add_row(
            block, key.name, key.type, "\n".join([reference.default(key), *cases]), key.meaning
        )
    console().print(table)


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


def _print_models(*, as_json: bool) -> None:
    """Print the presets, and the families of models in folders and on the Hub."""
    from maskpolicy.models.families import FAMILIES
    from maskpolicy.models.model_kinds import MODEL_KINDS

    rows = {family.name: family for family in FAMILIES}
    of_families = {"example": None, "note": ""}
    own = [
        {**rows[kind.family].to_json(), "name": name, **of_families, "summary": preset.summary}
        for kind in MODEL_KINDS.values()
        for name, preset in kind.presets.items()
    ]
    others = [
        {**row.to_json(), "summary": f"a folder, or a Hub name such as {row.example}"}
        for row in FAMILIES
    ]
    if as_json:
        _print(own + others, as_json=True)
        return
    shown = ("name", "kind", "masks", "start", "exclusion", "note")
    table = [{key: row[key] or "–" for key in shown} for row in own + others]
    for row, about in zip(table, own + others, strict=True):
        row["note"] = "; ".join(filter(None, [about["summary"], about["note"]]))
    _print(table, as_json=False)


def _metrics(files: Sequence[Path]) -> list[Json]:
    from maskpolicy.metrics import METRICS
    from maskpolicy.plugins import registry

    _load(["metric"], files)
    own = {entry.name: entry for entry in registry.entries() if entry.kind == "metric"}
    return [
        {"name": name, "title": about.title, "where": own[name].where if name in own else ""}
        for name, about in METRICS.items()
    ]


def _experiments() -> list[Json]:
    from maskpolicy.config import shipped

    return [
        {"name": each.name, "summary": each.summary, "where": str(each.path)}
        for each in shipped.listed()
    ]


def _plugins(kinds: Sequence[str], files: Sequence[Path]) -> list[tuple[Registered, Json]]:
    """Return every plugin of some kinds with its description; warns about broken ones."""
    from maskpolicy.plugins import registry

    _load(kinds, files)
    found = []
    for kind, name in [(each, name) for each in kinds for name in registry.names(each)]:
        try:
            entry = registry.entry(kind, name)
            found.append((entry, _described(entry)))
        except ConfigError as error:
            typer.echo(f"warning: {kind} {name!r}: {error}", err=True)
    return found


def _load(kinds: Sequence[str], files: Sequence[Path]) -> None:
    """Import all plugins of some kinds and the user's files; warns about packages that fail."""
    from maskpolicy.plugins import discovery

    discovery.load_files(files, fresh=True)
    for kind in kinds:
        discovery.load_builtin(kind)
    for broken in discovery.load_entry_points():
        typer.echo(f"warning: {broken}", err=True)


def _described(entry: Registered) -> Json:
    from maskpolicy import keys, schema
    from maskpolicy.formats import sources

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
