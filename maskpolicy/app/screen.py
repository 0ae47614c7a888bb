"""The console of the commands, on which what users and strangers wrote is only text."""

from __future__ import annotations

import json
import logging
import os
from functools import cache
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from maskpolicy.app.progress import Detail

_WIDE = 200  # columns, if the output is not a terminal


@cache
def _screen() -> type[Console]:
    """Return the class of consoles that replace control characters, which move the cursor."""
    from rich.console import Console
    from rich.segment import Segment

    from maskpolicy.experiment.yaml_file import CONTROLS

    class Screen(Console):
        def render(self, *args: Any, **kwargs: Any) -> Any:
            for text, style, control in super().render(*args, **kwargs):
                yield Segment(text if control else CONTROLS.sub("\ufffd", text), style, control)

    return Screen


def console(*, err: bool = False) -> Console:
    """Return a console without markup on stdout or stderr; _WIDE columns without a terminal."""
    screen = _screen()(stderr=err, highlight=False, markup=False, emoji=False)
    if not screen.is_terminal:
        screen.width = _WIDE
    return screen


def log_to(target: Console, line: str = "%(message)s", detail: Detail = "normal") -> None:
    """Print the library's log on a console, and disable progress bars of other libraries.

    `line` is the format of a line, as `logging.Formatter` takes it. With the detail "quiet", only
    warnings and errors are printed.
    """
    os.environ.setdefault("TQDM_DISABLE", "1")
    from rich.logging import RichHandler

    logger = logging.getLogger("maskpolicy")
    for old in [each for each in logger.handlers if isinstance(each, RichHandler)]:
        logger.removeHandler(old)  # of an earlier command of this process
    handler = RichHandler(console=target, show_time=False, show_path=False, markup=False)
    handler.setFormatter(logging.Formatter(line))
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING if detail == "quiet" else logging.INFO)
    logger.propagate = False


def print_json(value: object) -> None:
    """Print a value as JSON with one space of indentation."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=1))


def table(*heads: str, numbers: bool = False) -> Table:
    """Return an empty table without a box; `numbers`: all columns but the first hold numbers."""
    from rich.table import Table

    empty = Table(box=None)
    for place, head in enumerate(heads):
        empty.add_column(head, justify="right" if numbers and place else "left")
    return empty


def size_text(count: int) -> str:
    """Return a number of bytes as text, with its unit."""
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
