"""maskpolicy analyze: run analyses of finished runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from maskpolicy.cli.arguments import (
    AsJson,
    Cache,
    Plugins,
    Quiet,
    RunStore,
    Verbose,
    console,
    detail_of,
    log_to,
)
from maskpolicy.cli.listing import print_plugins
from maskpolicy.errors import ConfigError, DataError, MaskpolicyError

if TYPE_CHECKING:
    from maskpolicy.findings import Findings
    from maskpolicy.results.cell import Run
    from maskpolicy.runs.display import Detail
    from maskpolicy.runs.packing import OpenedRuns
    from maskpolicy.store.artifacts import Store

ALL = "all"
Flag = typer.Option


def analyze(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A name of --list, or all.")
    ] = None,
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN... [KEY=VALUE]...",
            help="Folders that `run` wrote, zips of `pack`, or hf://datasets/..",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        Flag("--out", metavar="DIR", help="Folder for files; for one RUN: RUN/analyses/NAME."),
    ] = None,
    listed: Annotated[bool, Flag("--list", help="List the analyses.")] = False,
    as_json: AsJson = False,
    store: RunStore = None,
    cache: Cache = None,
    plugin: Plugins = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Analyse finished runs as a table, JSON, Markdown and plots; KEY=VALUE sets a field."""
    if listed:
        print_plugins("analysis", plugin or (), as_json=as_json)
        return
    name = _checked(name, as_json=as_json)
    from maskpolicy.plugins import discovery
    from maskpolicy.results import run_record
    from maskpolicy.runs import packing
    from maskpolicy.store import overlay
    from maskpolicy.store.opening import open_store

    detail = detail_of(quiet, verbose)
    log_to(console(err=True), detail=detail)
    discovery.load_files(plugin or (), fresh=True)
    analyses, places = _parsed(name, runs or [])
    with packing.opened(places) as opened:
        folders = opened.folders
        if name == ALL:
            _check(folders)
        place = run_record.trusted_store(store, opened.kept)
        artifacts = overlay.writable(open_store(place, cache))
        what = _unpaged(opened)  # a single run has a page, which shows analyses
        run = None if what else folders[0]
        written, notes = [], list[str]()
        for each, found in _each(analyses, opened, artifacts, detail, strict=name != ALL):
            if name != ALL:
                _print(found, each, as_json=as_json)
            written.append(_save(found, each, out, run, err=as_json))
            notes += found.notes
        if not written:
            raise DataError(f"analyze {ALL}: no analysis has results: the lines above say why")
        if out is None and run is not None and any(written):
            _refresh(run, err=as_json)
        elif what and not any(written):
            typer.echo(f"{what}: --out DIR writes JSON, Markdown and plots", err=True)
        for note in _unloaded(notes):
            typer.echo(f"left out: {note}", err=True)


def _unloaded(notes: Iterable[str]) -> list[str]:
    """Return the notes on rows that are left out because their plugin is not loaded, each once."""
    from maskpolicy.plugins.discovery import NOT_LOADED

    return [note for note in dict.fromkeys(notes) if NOT_LOADED in note]


def _checked(name: str | None, *, as_json: bool) -> str:
    """Return the name that was given; raises ConfigError without one, and for all with --json."""
    if name is None:
        raise ConfigError("analyze: name an analysis (see --list) and one or more runs")
    if name == ALL and as_json:
        raise ConfigError(f"analyze {ALL} --json: name one analysis; without --json, all are saved")
    return name


def _unpaged(opened: OpenedRuns) -> str:
    """Return what has no page to which analyses are added, or "" for the folder of one run."""
    if len(opened.folders) > 1:
        return "several runs"
    if opened.is_packed(opened.folders[0]):
        return "a packed run"
    return "a model" if _is_model(opened.folders[0]) else ""


def _parsed(name: str, words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the analyses by name, with the fields set by KEY=VALUE words, and the runs."""
    from maskpolicy.config import yaml_file
    from maskpolicy.plugins import discovery, registry

    if (Path(name) / "results").is_dir():
        raise ConfigError(f"analyze: name the analysis first, then runs: analyze NAME {name}")
    keys = [word for word in words if "=" in word and not Path(word).exists()]
    places = [word for word in words if word not in keys]
    if not places:
        raise ConfigError(f"analyze {name}: name one or more folders that `maskpolicy run` wrote")
    if name != ALL:
        fields = yaml_file.assignments(keys)
        return {name: discovery.instance("analysis", name, fields, name)}, places
    if keys:
        raise ConfigError(f"analyze {ALL} {keys[0]}: to set a field, name one analysis")
    discovery.load_builtin("analysis")
    names = registry.names("analysis")
    return {each: discovery.instance("analysis", each, {}, each) for each in names}, places


def _check(folders: Sequence[Path]) -> None:
    """Raise DataError for a folder that has no results and is not a model."""
    from maskpolicy.results.cell import read_run

    for folder in folders:
        if not _is_model(folder):
            read_run(folder)


def _each(
    analyses: Mapping[str, Any],
    opened: OpenedRuns,
    store: Store,
    detail: Detail,
    *,
    strict: bool,
) -> Iterator[tuple[str, Findings]]:
    """Yield the findings of each analysis; unless `strict`, failures are printed and skipped."""
    from maskpolicy.findings.cache import reporting
    from maskpolicy.runs.display import Display
    from maskpolicy.runs.meters import Tally

    for number, (name, analysis) in enumerate(analyses.items()):
        count = Tally(number, len(analyses), "analyses")
        try:
            # one display each: a bar would take what is printed in between off the standard output
            shown = Display(console(err=True), name, count, detail)
            with shown as display, reporting(display), opened.naming(store):
                found = _find(name, analysis, opened.folders, store)
        except MaskpolicyError as error:
            if strict:
                raise
            line = str(error)
            of = "" if line.startswith(f"analyze {name}:") else f"analyze {name}: "
            console(err=True).print(f"{of}{line.removeprefix(f'{name}: ')}", soft_wrap=True)
        else:
            yield name, found


def _find(name: str, analysis: Any, folders: Sequence[Path], store: Store) -> Findings:
    """Return the findings of an analysis; raises DataError if they have no rows."""
    from maskpolicy.findings import cache

    found, _ = cache.analyse(name, analysis, [_read(each, analysis) for each in folders], store)
    if not found.rows:
        raise DataError(f"analyze {name}: nothing to show: {_first(found.notes)}")
    return found


def _place(name: str, out: Path | None, run: Path | None) -> Path | None:
    """Return the folder for an analysis's files: `out`, or the one that the run's page shows."""
    from maskpolicy import findings

    if out is not None:
        return out
    return run / findings.FOLDER / name if run else None


def _save(found: Findings, name: str, out: Path | None, run: Path | None, *, err: bool) -> bool:
    """Write the files of an analysis, if there is a folder for them; return whether it has.

    What a run's folder has of it stays where rows of a plugin would be missing.
    """
    from maskpolicy import findings
    from maskpolicy.results import cell

    place = _place(name, out, run)
    if place is None:
        return False
    if out is None and place.is_dir() and _unloaded(found.notes):
        typer.echo(f"kept as it was: {place}", err=err)
        return False
    of, rows = (cell.fingerprint(run), cell.read_run(run).rows) if run else ("", ())
    for path in findings.save(found, name, place, of, rows=rows):
        typer.echo(f"written to {path}", err=err)
    return True


def _refresh(run: Path, *, err: bool) -> None:
    """Write a run's page again, to show its new analyses."""
    from maskpolicy.leaderboard.build import build_leaderboard
    from maskpolicy.leaderboard.page import save_page
    from maskpolicy.results.cell import read_run
    from maskpolicy.runs.contents import PAGE

    path = run / PAGE
    if path.is_file():
        save_page(build_leaderboard([read_run(run)]), path)
        typer.echo(f"written to {path}", err=err)


def _first(notes: Sequence[str]) -> str:
    """Return the first note, and the number of others."""
    if not notes:
        return "the runs have nothing to analyse"
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
    """Return the results in a folder; none for a model's folder, if the analysis takes models."""
    from maskpolicy.config.experiment import NONE
    from maskpolicy.plugins import hooks
    from maskpolicy.results import cell
    from maskpolicy.results.cell import read_run

    if not hooks.TAKES_MODELS.of(analysis) or (folder / "results").is_dir():
        return read_run(folder)
    if not _is_model(folder):
        raise DataError(
            f"{folder}: holds neither results nor a model: name a folder that `maskpolicy run` "
            "wrote, or one with a model's config.json, weights and tokenizer"
        )
    return cell.Run(folder, (), NONE)
