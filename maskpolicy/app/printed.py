"""The console of the commands, which prints the text of others without markup, and tables."""

from __future__ import annotations

import json
import logging
import os
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from maskpolicy.app.progress import Detail
    from maskpolicy.leaderboard.board import Board

_WIDE = 200  # columns, if the output is not a terminal


@cache
def _screen() -> type[Console]:
    """Return a console class that replaces control characters, which could move the cursor."""
    from rich.console import Console
    from rich.segment import Segment

    from maskpolicy.experiment.yaml_file import CONTROLS

    class Screen(Console):
        def on_broken_pipe(self) -> None:
            if not self.stderr:
                super().on_broken_pipe()
            self.quiet = True  # a run goes on without its progress
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())  # Python flushes again

        def render(self, *args: Any, **kwargs: Any) -> Any:
            for text, style, control in super().render(*args, **kwargs):
                yield Segment(text if control else CONTROLS.sub("\ufffd", text), style, control)

    return Screen


def console(*, err: bool = False) -> Console:
    """Return a console without markup; without a terminal, it has _WIDE columns."""
    screen = _screen()(stderr=err, highlight=False, markup=False, emoji=False)
    if not screen.is_terminal:
        screen.width = _WIDE
    return screen


def log_to(target: Console, detail: Detail = "normal") -> None:
    """Print the library's log on a console, and disable progress bars of other libraries.

    With the detail "quiet", only warnings and errors are printed.
    """
    os.environ.setdefault("TQDM_DISABLE", "1")
    from rich.logging import RichHandler

    logger = logging.getLogger("maskpolicy")
    for old in [each for each in logger.handlers if isinstance(each, RichHandler)]:
        logger.removeHandler(old)  # an earlier command of this process added it
    handler = RichHandler(console=target, show_time=False, show_path=False, markup=False)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING if detail == "quiet" else logging.INFO)
    logger.propagate = False


def print_json(value: object) -> None:
    """Print a value as JSON with one space of indentation."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=1))


def table(*heads: str, numbers: bool = False) -> Table:
    """Return an empty table without a box; with `numbers`, align all columns but one right."""
    from rich.table import Table

    empty = Table(box=None)
    for place, head in enumerate(heads):
        empty.add_column(head, justify="right" if numbers and place else "left")
    return empty


def size_text(count: int) -> str:
    """Return a number of bytes as text, with its unit."""
    if count < 1024:
        return f"{count} B"
    power = min(3, (count.bit_length() - 1) // 10)
    return f"{count / 1024**power:.1f} {('B', 'KiB', 'MiB', 'GiB')[power]}"


def leaderboard(
    board: Board, screen: Console, *, work: bool = False, gaps: bool = True, pairs: bool = False
) -> None:
    """Print a leaderboard and its notes; without `gaps`, leave out notes on missing scores.

    With `pairs`, print the ranks and the tests of all pairs of rows as well.
    """
    from maskpolicy.leaderboard import report

    screen.print(report.to_table(board, work=work))
    for line in board.about_tests:
        screen.print(line, soft_wrap=True, markup=False)
    intervals = report.to_differences(board)
    if intervals is not None:
        screen.print(intervals)
    for note in board.notes:
        if gaps or note not in board.gaps:
            screen.print(f"* {note}", soft_wrap=True)
    if pairs and board.standings:
        screen.print(report.to_ranks(board))
    if pairs:
        screen.print(report.to_pairs(board))
