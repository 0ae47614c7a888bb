"""maskpolicy leaderboard, board and analyze: join the results of runs, test and explain them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from maskpolicy.app import printed
from maskpolicy.app.arguments import AsJson, DetailOptions, Plugins, RunStoreOptions
from maskpolicy.app.commands.listing import print_plugins
from maskpolicy.app.printed import console, print_json
from maskpolicy.core import schema
from maskpolicy.core.errors import ConfigError, DataError, MaskpolicyError
from maskpolicy.core.files import locked, name_of, writing_to
from maskpolicy.core.schema import Positive
from maskpolicy.experiment import yaml_file
from maskpolicy.experiment.definition import NONE
from maskpolicy.plugins import discovery, hooks, registry
from maskpolicy.plugins.discovery import NOT_LOADED

if TYPE_CHECKING:
    from maskpolicy.analyses import Findings
    from maskpolicy.app.packing import OpenedRuns
    from maskpolicy.app.progress import Detail
    from maskpolicy.leaderboard.results.cell import Run
    from maskpolicy.pipeline.store.artifacts import Store

ALL = "all"
_PLACES = "Folders that `run` wrote, zips of `pack`, or hf://datasets/.."


def leaderboard(
    *,
    runs: Annotated[list[str], Argument(metavar="RUN...", help=_PLACES)],
    out: Annotated[
        Path | None, Option(metavar="DIR", help="Write leaderboard.json, .md, .csv and .tex here.")
    ] = None,
    html: Annotated[
        Path | None, Option(metavar="FILE", help="Write a self-contained HTML page.")
    ] = None,
    baseline: Annotated[str | None, Option(metavar="ROW", help="Default: the first run's.")] = None,
    mixed: Annotated[bool, Option("--mixed", help="Rank rows that are not comparable.")] = False,
    work: Annotated[
        bool, Option("--work", help="Show the work of the intermediate stage.")
    ] = False,
    pairs: Annotated[bool, Option("--pairs", help="Print the tests of all pairs of rows.")] = False,
    as_json: AsJson = False,
) -> None:
    """Join the results of runs into one leaderboard."""
    from maskpolicy.app import packing
    from maskpolicy.leaderboard import report, stored_board
    from maskpolicy.leaderboard.build import build_leaderboard
    from maskpolicy.leaderboard.page import save_page
    from maskpolicy.leaderboard.report import save_report
    from maskpolicy.leaderboard.results.cell import read_run

    if out is not None:
        stored_board.check_other(out, "--out")
    with packing.opened(runs) as opened:
        read = [read_run(folder) for folder in opened.folders]
        if html is not None:
            alone = () if baseline is not None or mixed else read
            stored_board.check_other(html, "--html", alone)
        board = build_leaderboard(read, baseline=baseline, mixed=mixed)
        if out is not None:
            save_report(board, out, work=work)
        if html is not None:
            page = html.absolute()
            with writing_to(page, "--html"):
                page.parent.mkdir(parents=True, exist_ok=True)
            with locked(page.parent):
                save_page(board, html, "--html")
        if as_json:
            print_json(report.to_json(board, work=work))
        else:
            printed.leaderboard(board, console(), work=work, pairs=pairs)
        for path in (out, html):
            if path is not None:
                console(err=as_json).print(f"written to {path}", soft_wrap=True)


def board(
    *,
    files: Annotated[
        list[Path], Argument(metavar="FILE...", help="Tables of scores, or logs of evaluations.")
    ],
    out: Annotated[
        Path | None, Option(metavar="DIR", help="Write leaderboard.html, .json, .md, .csv, .tex.")
    ] = None,
    baseline: Annotated[str | None, Option(metavar="SYSTEM", help="Default: the first.")] = None,
    column: Annotated[
        list[str] | None,
        Option(
            metavar="NAME=COLUMN", help="Columns of system, task, example, score, ..; repeatable."
        ),
    ] = None,
    metric: Annotated[
        str | None, Option(metavar="NAME", help="Which score to test, or to give predictions.")
    ] = None,
    scale: Annotated[float, Option(help="The highest possible score.")] = 1.0,
    shared: Annotated[
        bool, Option("--shared", help="Leave out examples that not all systems have.")
    ] = False,
    pairs: Annotated[bool, Option("--pairs", help="Print the tests of all pairs of rows.")] = False,
    as_json: AsJson = False,
) -> None:
    """Test scores of single examples, which another program computed, as a leaderboard."""
    from maskpolicy.leaderboard import report, stored_board
    from maskpolicy.leaderboard.given_scores import build_board
    from maskpolicy.leaderboard.page import save_forms
    from maskpolicy.leaderboard.score_files import read_scores

    schema.check(scale, Positive, "--scale")
    if out is not None:
        stored_board.check(out)
    columns = dict(word.partition("=")[::2] for word in column or ())
    title = ", ".join(dict.fromkeys(name_of(path) for path in files))
    with console(err=True).status("reading", refresh_per_second=2) as status:
        frame, notes = read_scores(files, columns, metric)
        asked: dict[str, Any] = {"baseline": baseline, "scale": scale, "shared": shared}
        tested = build_board(frame, title=title, notes=notes, told=status.update, **asked)
        if out is not None:
            status.update("writing")
            save_forms(tested, out)
    if as_json:
        print_json(report.to_json(tested))
    else:
        printed.leaderboard(tested, console(), pairs=pairs)
    if out is not None:
        console(err=as_json).print(f"written to {out}", soft_wrap=True)


def analyze(
    *,
    name: Annotated[str | None, Argument(metavar="NAME", help="A name of --list, or all.")] = None,
    runs: Annotated[
        list[str] | None, Argument(metavar="RUN... [KEY=VALUE]...", help=_PLACES)
    ] = None,
    out: Annotated[
        Path | None, Option(metavar="DIR", help="Folder for files; for one RUN: RUN/analyses/NAME.")
    ] = None,
    listed: Annotated[bool, Option("--list", help="List the analyses.")] = False,
    as_json: AsJson = False,
    store: RunStoreOptions,
    plugin: Plugins = None,
    detail: DetailOptions,
) -> None:
    """Analyse finished runs with tables, JSON, Markdown and plots; KEY=VALUE sets a field."""
    if listed:
        print_plugins("analysis", plugin or (), as_json=as_json)
        return
    if name is None:
        raise ConfigError("analyze: name an analysis (see --list) and one or more runs")
    if name == ALL and as_json:
        raise ConfigError(f"analyze {ALL} --json: name one analysis; without --json, all are saved")
    from maskpolicy.app import packing
    from maskpolicy.leaderboard.results.cell import read_run

    _, amount = detail.notes()
    discovery.load_files(plugin or (), fresh=True)
    analyses, places = _parsed(name, runs or [])
    with packing.opened(places) as opened:
        folders = opened.folders
        if name == ALL:
            for folder in folders:
                if not _is_model(folder):
                    read_run(folder)  # raises DataError for a folder without results
        artifacts = store.open_writable(opened.kept)
        what = _without_page(opened)
        run = None if what else folders[0]  # whose page shows analyses
        written, notes = [], list[str]()
        for each, findings in _each(analyses, opened, artifacts, amount, strict=name != ALL):
            if name != ALL:
                _print(findings, each, as_json=as_json)
            written.append(_save(findings, each, out, run, err=as_json))
            notes += findings.notes
        if not written:
            raise DataError(f"analyze {ALL}: no analysis has results: the lines above say why")
        if out is None and run is not None and any(written):
            _refresh(run, err=as_json)
        elif what and not any(written):
            typer.echo(f"{what}: --out DIR writes JSON, Markdown and plots", err=True)
        for note in _unloaded(notes):
            typer.echo(f"left out: {note}", err=True)


def _unloaded(notes: Iterable[str]) -> list[str]:
    """Return the notes on rows whose plugin is not loaded, each once."""
    return [note for note in dict.fromkeys(notes) if NOT_LOADED in note]


def _without_page(opened: OpenedRuns) -> str:
    """Return what is analysed if there is no page to show it, or "" for the folder of one run."""
    if len(opened.folders) > 1:
        return "several runs"
    if opened.is_packed(opened.folders[0]):
        return "a packed run"
    return "a model" if _is_model(opened.folders[0]) else ""


def _parsed(name: str, words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the analyses by name, with fields from KEY=VALUE words, and the runs."""
    if (Path(name) / "results").is_dir():
        raise ConfigError(f"analyze: name the analysis first, then runs: analyze NAME {name}")
    keys = [word for word in words if "=" in word and yaml_file.locate(word, ()) is None]
    places = [word for word in words if word not in keys]
    if not places:
        raise ConfigError(f"analyze {name}: name one or more folders that `maskpolicy run` wrote")
    names = [name]
    if name == ALL:
        if keys:
            raise ConfigError(f"analyze {ALL} {keys[0]}: to set a field, name one analysis")
        discovery.load_builtin("analysis")
        names = registry.names("analysis")
    fields = yaml_file.assignments(keys)
    return {each: discovery.instance("analysis", each, fields, each) for each in names}, places


def _each(
    analyses: Mapping[str, Any],
    opened: OpenedRuns,
    store: Store,
    detail: Detail,
    *,
    strict: bool,
) -> Iterator[tuple[str, Findings]]:
    """Yield the findings of each analysis; unless `strict`, print failures and go on."""
    from maskpolicy.analyses.cache import reporting
    from maskpolicy.app.progress import Display

    for number, (name, analysis) in enumerate(analyses.items()):
        count = (number / len(analyses), f"{number} of {len(analyses)} analyses")
        try:
            # one display each: a bar would disturb what is printed in between
            shown = Display(console(err=True), name, count, detail)
            with shown as display, reporting(display), opened.naming(lambda: store):
                findings = _find(name, analysis, opened.folders, store)
        except MaskpolicyError as error:
            if strict:
                raise
            line = str(error)
            of = "" if line.startswith(f"analyze {name}:") else f"analyze {name}: "
            console(err=True).print(f"{of}{line.removeprefix(f'{name}: ')}", soft_wrap=True)
        else:
            yield name, findings


def _find(name: str, analysis: Any, folders: Sequence[Path], store: Store) -> Findings:
    """Return the findings of an analysis; raises DataError if they have no rows."""
    from maskpolicy.analyses import cache

    runs = [_read(folder, analysis) for folder in folders]
    findings = cache.analyse(name, analysis, runs, store)
    if not findings.rows:
        first = next(iter(findings.notes), "the runs have nothing to analyse")
        others = len(set(findings.notes)) - 1
        more = f" (and {others} more)" if others > 0 else ""
        raise DataError(f"analyze {name}: nothing to show: {first}{more}")
    return findings


def _save(findings: Findings, name: str, out: Path | None, run: Path | None, *, err: bool) -> bool:
    """Write the files of an analysis to `out`, or else to the folder that the run's page shows.

    Returns whether it has written them: findings without the rows of a plugin that is not loaded
    replace no files in a run's folder.
    """
    from maskpolicy import analyses
    from maskpolicy.leaderboard.results import cell

    if out is None and run is None:
        return False
    place = out or Path(run or "") / analyses.FOLDER / name
    if out is None and place.is_dir() and _unloaded(findings.notes):
        typer.echo(f"kept as it was: {place}", err=err)
        return False
    of, rows = (cell.fingerprint(run), cell.read_run(run).rows) if run else ("", ())
    for path in analyses.save(findings, name, place, of, rows=rows):
        typer.echo(f"written to {path}", err=err)
    return True


def _refresh(run: Path, *, err: bool) -> None:
    """Write a run's page again, to show its new analyses."""
    from maskpolicy.app.contents import PAGE
    from maskpolicy.leaderboard.build import build_leaderboard
    from maskpolicy.leaderboard.page import save_page
    from maskpolicy.leaderboard.results.cell import read_run

    path = run / PAGE
    if path.is_file():
        with locked(run):
            save_page(build_leaderboard([read_run(run)]), path)
        typer.echo(f"written to {path}", err=err)


def _print(findings: Findings, name: str, *, as_json: bool) -> None:
    from maskpolicy import analyses

    if as_json:
        print_json(analyses.to_json(findings, name))
        return
    screen = console()
    screen.print(analyses.to_table(findings))
    for note in findings.notes:
        screen.print(f"* {note}", soft_wrap=True)


def _is_model(folder: Path) -> bool:
    return (folder / "config.json").is_file() and not (folder / "results").is_dir()


def _read(folder: Path, analysis: Any) -> Run:
    """Return the results in a folder; a model's folder has none, if the analysis takes models."""
    from maskpolicy.leaderboard.results import cell

    if not hooks.TAKES_MODELS.of(analysis) or (folder / "results").is_dir() or not folder.is_dir():
        return cell.read_run(folder)
    if not _is_model(folder):
        raise DataError(
            f"{folder}: holds neither results nor a model: name a folder that `maskpolicy run` "
            "wrote, or one with a model's config.json, weights and tokenizer"
        )
    return cell.Run(folder, (), NONE)
