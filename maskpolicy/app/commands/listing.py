"""maskpolicy list: plugins, models, keys of experiments, hooks, and maskpolicy's experiments."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from maskpolicy.app.arguments import AsJson, Plugins
from maskpolicy.app.printed import console, print_json, table
from maskpolicy.core import keys, schema
from maskpolicy.core.errors import ConfigError, unknown
from maskpolicy.core.metrics import METRICS
from maskpolicy.core.types import Json
from maskpolicy.experiment import verbatim
from maskpolicy.experiment.definition import NONE
from maskpolicy.plugins import discovery, hooks, registry
from maskpolicy.plugins.registry import Registered

KINDS = {"policies": "policy", "tasks": "task", "analyses": "analysis"}
WHAT = (*KINDS, "metrics", "models", "keys", "hooks", "experiments")


def list_(
    *,
    what: Annotated[str, Argument(metavar="|".join(WHAT))],
    as_json: AsJson = False,
    markdown: Annotated[
        bool, Option("--markdown", help="Print policies, keys or hooks in Markdown.")
    ] = False,
    plugin: Plugins = None,
) -> None:
    """List plugins, models, keys of experiments, hooks of plugins, or maskpolicy's experiments."""
    if what not in WHAT:
        raise ConfigError(unknown("list", what, WHAT))
    if markdown and what not in ("policies", "keys", "hooks"):
        raise ConfigError("--markdown: is for policies, keys and hooks; --json is for any list")
    if what == "hooks" and markdown:
        typer.echo("\n\n".join(f"{kind}:\n\n{hooks.table(kind)}" for kind in hooks.HOOKS))
    elif what == "hooks":
        _print(hooks.listed(), as_json=as_json)
    elif what == "keys" or markdown:
        _print_keys(plugin or (), what, as_json=as_json, markdown=markdown)
    elif what == "models":
        models = _models()
        _print(models if as_json else _in_columns(models), as_json=as_json)
    elif what == "experiments":
        entries = [
            {"name": each.name, "summary": each.summary, "where": str(each.path)}
            for each in verbatim.shipped()
        ]
        _print(entries, as_json=as_json)
    elif what == "metrics":
        _print(_metrics(plugin or ()), as_json=as_json)
    else:
        print_plugins(KINDS[what], plugin or (), as_json=as_json)


def print_plugins(kind: str, files: Sequence[Path], *, as_json: bool) -> None:
    """Print all plugins of a kind, and a warning on stderr for each broken one."""
    entries = [about for _, about in _plugins([kind], files)]
    if kind == "policy":
        summary = "No intermediate stage: the row with which others are compared."
        entries.insert(0, {"name": NONE, "summary": summary, "how": {}, "fields": {}, "where": ""})
    _print(entries, as_json=as_json)


def _print(entries: Sequence[Json], *, as_json: bool) -> None:
    """Print entries with the same keys; in a table, `fields` and their defaults come last."""
    if as_json:
        print_json(entries)
        return
    names = [name for name in entries[0] if name not in ("fields", "where")]
    shown = table(*names, *(["fields"] if "fields" in entries[0] else []))
    for entry in entries:
        fields = ", ".join(
            f"{name}={json.dumps(field['default'])}" if "default" in field else name
            for name, field in entry.get("fields", {}).items()
        )
        cells = [_cell(entry[name]) for name in names]
        shown.add_row(*cells, *([fields] if "fields" in entry else []))
    console().print(shown)


def _cell(value: Json) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={item}" for key, item in value.items())
    return "–" if value is None else str(value)


def _print_keys(files: Sequence[Path], what: str, *, as_json: bool, markdown: bool) -> None:
    from maskpolicy.experiment import reference

    kinds = ["policy", "task"]  # only these have keys in an experiment file
    entries = [entry for entry, _ in _plugins(kinds, files)]
    policies, tasks = ([each for each in entries if each.kind == kind] for kind in kinds)
    keys = reference.listed(policies, tasks)
    if markdown:
        page = reference.page(keys) if what == "keys" else reference.policy_table(keys, policies)
        typer.echo(page, nl=False)
        return
    if as_json:
        print_json([key.to_json() for key in keys])
        return
    shown = table("block", "key", "type", "default", "")
    for key in keys:
        block = f"{key.block}: {key.of}" if key.of else key.block
        cases = [f"{reference.written(value)} ({case})" for case, value in key.defaults.items()]
        defaults = "\n".join([reference.default(key), *cases])
        shown.add_row(block, key.name, key.type, defaults, key.meaning)
    console().print(shown)


def _models() -> list[dict[str, Json]]:
    """Return the presets, and the families of models in folders and on the Hub."""
    from maskpolicy.models.families import FAMILIES
    from maskpolicy.models.model_kinds import MODEL_KINDS
    from maskpolicy.models.scratch import PRESETS

    families = {family.name: family.to_json() for family in FAMILIES}
    presets = [
        {
            **families[kind.family],
            **{"name": preset_name, "example": None, "note": "", "summary": preset.summary},
        }
        for name, kind in MODEL_KINDS.items()
        for preset_name, preset in PRESETS[name].items()
    ]
    others = [
        {**row.to_json(), "summary": f"a folder, or a Hub name such as {row.example}"}
        for row in FAMILIES
    ]
    return presets + others


def _in_columns(models: Sequence[dict[str, Json]]) -> list[Json]:
    """Return the columns of a table of models; the note begins with the summary."""
    shown = ("name", "kind", "masks", "start", "exclusion")
    return [
        {key: row[key] or "–" for key in shown}
        | {"note": "; ".join(filter(None, [row["summary"], row["note"]]))}
        for row in models
    ]


def _metrics(files: Sequence[Path]) -> list[Json]:
    _load(["metric"], files)
    own = {entry.name: entry for entry in registry.entries() if entry.kind == "metric"}
    return [
        {"name": name, "title": about.title, "where": own[name].where if name in own else ""}
        for name, about in METRICS.items()
    ]


def _plugins(kinds: Sequence[str], files: Sequence[Path]) -> list[tuple[Registered, Json]]:
    """Return all plugins of some kinds with their descriptions; warns about broken ones."""
    _load(kinds, files)
    entries = []
    for kind in kinds:
        for name in registry.names(kind):
            try:
                entry = registry.entry(kind, name)
                entries.append((entry, _described(entry)))
            except ConfigError as error:
                typer.echo(f"warning: {kind} {name!r}: {error}", err=True)
    return entries


def _load(kinds: Sequence[str], files: Sequence[Path]) -> None:
    """Import all plugins of some kinds and the user's files; warns about packages that fail."""
    discovery.load_files(files, fresh=True)
    for kind in kinds:
        discovery.load_builtin(kind)
    for broken in discovery.load_entry_points():
        typer.echo(f"warning: {broken}", err=True)


def _described(entry: Registered) -> Json:
    from maskpolicy.data.taskfiles import sources

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
        about |= {"files": dict(facts.files), "hub": facts.hub.id if facts.hub else None}
    return {**about, "fields": fields, "where": entry.where}
