"""maskpolicy leaderboard: join the results of one or more runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from maskpolicy.cli.arguments import AsJson, console

if TYPE_CHECKING:
    from rich.console import Console

    from maskpolicy.leaderboard.board import Board

Flag = typer.Option


def leaderboard(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...", help="Folders that `run` wrote, zips of `pack`, or hf://datasets/.."
        ),
    ],
    out: Annotated[
        Path | None,
        Flag("--out", metavar="DIR", help="Write leaderboard.json, .md, .csv and .tex here."),
    ] = None,
    html: Annotated[
        Path | None, Flag("--html", metavar="FILE", help="Write a self-contained HTML page.")
    ] = None,
    baseline: Annotated[str | None, Flag(metavar="ROW", help="Default: the first run's.")] = None,
    mixed: Annotated[bool, Flag("--mixed", help="Rank rows that are not comparable.")] = False,
    work: Annotated[bool, Flag("--work", help="Show the work of the intermediate stage.")] = False,
    pairs: Annotated[bool, Flag("--pairs", help="Print the tests of all pairs of rows.")] = False,
    as_json: AsJson = False,
) -> None:
    """Join the results of runs into one leaderboard."""
    import json

    from maskpolicy.leaderboard import report
    from maskpolicy.leaderboard.build import build_leaderboard
    from maskpolicy.leaderboard.page import save_page
    from maskpolicy.leaderboard.report import save_report
    from maskpolicy.results.cell import read_run
    from maskpolicy.runs import packing

    with packing.opened(runs) as found:
        read = [read_run(folder) for folder in found.folders]
        board = build_leaderboard(read, baseline=baseline, mixed=mixed)
        if out is not None:
            save_report(board, out, work=work)
        if html is not None:
            save_page(board, html, "--html")
        if as_json:
            typer.echo(json.dumps(report.to_json(board, work=work), ensure_ascii=False, indent=1))
        else:
            show(board, console(), work=work)
            if pairs:
                if board.standings:
                    console().print(report.to_ranks(board))
                console().print(report.to_pairs(board))
        for path in (out, html):
            if path is not None:
                console(err=as_json).print(f"written to {path}", soft_wrap=True)


def show(board: Board, screen: Console, *, work: bool = False, gaps: bool = True) -> None:
    """Print a leaderboard and its notes; without `gaps`, no notes on missing scores."""
    from maskpolicy.leaderboard import not_significant, report

    screen.print(report.to_table(board, work=work))
    for line in not_significant.lines(board):
        screen.print(line, soft_wrap=True, markup=False)
    intervals = not_significant.to_table(board)
    if intervals is not None:
        screen.print(intervals)
    skipped = () if gaps else board.gaps
    for note in board.notes:
        if note not in skipped:
            screen.print(f"* {note}", soft_wrap=True)
