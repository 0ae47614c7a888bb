"""maskpolicy analyze: what stands behind the figures of finished runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from maskpolicy.cli.listing import print_plugins
from maskpolicy.cli.words import AsJson, Plugins, RunStore, console, log_to, store_of
from maskpolicy.errors import ConfigError, DataError

if TYPE_CHECKING:
    from maskpolicy.findings import Findings
    from maskpolicy.results import Run

Flag = typer.Option


def analyze(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="See --list.")] = None,
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN... [KEY=VALUE]...", help="Folders that `run` wrote."),
    ] = None,
    out: Annotated[
        Path | None,
        Flag("--out", metavar="DIR", help="Where files go; of one RUN: RUN/analyses/NAME."),
    ] = None,
    listed: Annotated[bool, Flag("--list", help="List the analyses.")] = False,
    as_json: AsJson = False,
    store: RunStore = None,
    plugin: Plugins = None,
) -> None:
    """Analyse finished runs: a table, JSON, Markdown and plots; KEY=VALUE sets its fields."""
    if listed:
        print_plugins("analysis", plugin or (), as_json=as_json)
        return
    if name is None:
        raise ConfigError("analyze: name an analysis and one or more runs; --list shows which")
    from maskpolicy import derived, findings, plugins
    from maskpolicy.store import Store

    log_to(console(err=True))
    plugins.load_files(plugin or ())
    analysis, folders = _asked(name, runs or [])
    read = [_read(folder, analysis) for folder in folders]
    found, _ = derived.analyse(name, analysis, read, Store(store_of(store, folders)))
    if not found.rows:
        raise DataError(f"analyze {name}: nothing to show: {_first(found.notes)}")
    _print(found, name, as_json=as_json)
    if out is None and len(folders) == 1 and not _is_model(folders[0]):
        out = folders[0] / findings.FOLDER / name  # where the leaderboard's page looks for it
    if out is None:
        what = "a model" if len(folders) == 1 else "several runs"
        typer.echo(f"{what}: --out DIR writes JSON, Markdown and plots", err=True)
        return
    for path in findings.save(found, name, out):
        typer.echo(f"written to {path}", err=as_json)


def _asked(name: str, words: Sequence[str]) -> tuple[Any, list[Path]]:
    """Return the analysis with the fields that KEY=VALUE words set, and the folders to read."""
    from maskpolicy import config, yaml_file

    keys = [word for word in words if "=" in word and not Path(word).exists()]
    analysis = config.instance("analysis", name, yaml_file.assignments(keys), name)
    folders = [Path(word) for word in words if word not in keys]
    if not folders:
        raise ConfigError(f"analyze {name}: name one or more folders that `maskpolicy run` wrote")
    return analysis, folders


def _first(notes: Sequence[str]) -> str:
    """Return the first of some notes, and how many others there are."""
    if not notes:
        return "the runs hold nothing that it looks at"
    others = len(set(notes)) - 1
    return f"{notes[0]} (and {others} more)" if others else notes[0]


def _print(found: Findings, name: str, *, as_json: bool) -> None:
    from maskpolicy import findings

    if as_json:
        typer.echo(json.dumps(findings.to_json(found, name), ensure_ascii=False, indent=1))
        return
    screen = console()
    screen.print(findings.to_table(found))
    for note in found.notes:
        screen.print(f"* {note}", soft_wrap=True)


def _is_model(folder: Path) -> bool:
    return (folder / "config.json").is_file() and not (folder / "results").is_dir()


def _read(folder: Path, analysis: Any) -> Run:
    """Return the results of a folder; that of a model has none, for analyses that take such."""
    from maskpolicy import results
    from maskpolicy.experiment import NONE

    if _is_model(folder) and getattr(analysis, "takes_models", False):
        return results.Run(folder, (), NONE)
    return results.read(folder)
