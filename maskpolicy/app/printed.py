"""The console of the commands, which prints the text of others without markup, and tables."""

from __future__ import annotations

import json
import logging
import os
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import Console
    from rich.table import Table

    from maskpolicy.app.progress import Detail
    from maskpolicy.core.types import Json
    from maskpolicy.experiment.reference import Key
    from maskpolicy.leaderboard.board import Board
    from maskpolicy.leaderboard.power import Power
    from maskpolicy.pipeline.graph.costs import Expected
    from maskpolicy.pipeline.graph.planning import Planned

_WIDE = 200  # columns, if the output is not a terminal
_ROWS = 12  # the most stages of one kind, state and reason that are listed one by one


@cache
def _screen() -> type[Console]:
    """Return a console class that replaces control characters, which could move the cursor."""
    from rich.console import Console
    from rich.segment import Segment

    from maskpolicy.experiment.yaml_file import CONTROLS

    class Screen(Console):
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


def plan(planned: Sequence[Planned], takes: Expected, screen: Console, *, stages: bool) -> None:
    """Print how many stages of each kind are in each state, and what the rest will take.

    With `stages`, list each stage with the reason for its state.
    """
    if stages:
        shown = table("state", "stage", "why")
        for row in _grouped(planned):
            shown.add_row(*row)
        screen.print(shown)
    for state, number in Counter(entry.state for entry in planned).items():
        kinds = Counter(entry.stage.kind for entry in planned if entry.state == state)
        names = (kind if count == 1 else f"{count} {kind}" for kind, count in kinds.items())
        screen.print(f"{number} {state}: {', '.join(names)}", soft_wrap=True)
    if any(entry.state != "done" for entry in planned):
        screen.print(_expectation(takes), soft_wrap=True)


def _grouped(planned: Sequence[Planned]) -> Iterator[tuple[str, str, str]]:
    """Yield (state, stage, why), with one row for many stages of one kind and reason."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for entry in planned:
        groups.setdefault((entry.state, entry.stage.kind, entry.why), []).append(entry.stage.name)
    for (state, _, why), names in groups.items():
        if len(names) > _ROWS:
            names = [f"{names[0]}, and {len(names) - 1} more"]
        yield from ((state, name, why) for name in names)


def _expectation(takes: Expected) -> str:
    """Return a line about the time and the disk space that a run will need."""
    from maskpolicy.app.progress import duration

    lacking = f"unknown for {', '.join(takes.unknown)}, because no such stage was computed yet"
    if not takes.measured:
        return f"time and bytes: {lacking}"
    jobs = f" with {takes.workers} stages at a time" if takes.workers > 1 else ""
    work = f" ({duration(takes.work)} of work)" if takes.workers > 1 else ""
    line = (
        f"expected: {duration(takes.seconds)}{jobs}{work}, {size_text(takes.written)} written, "
        f"{size_text(takes.kept)} of them kept; estimated from {takes.measured} finished stages "
        "of the same kinds"
    )
    return f"{line}; {lacking}" if takes.unknown else line


def corpora(text_of_rows: Mapping[str, str], screen: Console) -> None:
    """Print the corpora and the rows that read each."""
    rows: dict[str, list[str]] = {}
    for label, text in text_of_rows.items():
        rows.setdefault(text, []).append(label)
    if not rows:
        return
    shown = table("corpus of the intermediate stage", "rows")
    for text, labels in rows.items():
        shown.add_row(text, "; ".join(labels))
    screen.print()
    screen.print(shown)


def power(differences: list[Power], remarks: Sequence[str], screen: Console) -> None:
    """Print the remarks, and the differences that the planned seeds would find."""
    from maskpolicy.leaderboard.power import to_rows

    if differences or remarks:
        screen.print()
    for line in remarks:
        screen.print(line, soft_wrap=True)
    if not differences:
        return
    rows = to_rows(differences)
    shown = table(*rows[0])
    for row in rows:
        shown.add_row(*row.values())
    screen.print("Differences to the baseline that would be significant with 80% probability:")
    screen.print(shown)


def keys(listed: Sequence[Key]) -> Table:
    """Return a table of the keys of an experiment file."""
    from maskpolicy.experiment import reference

    shown = table("block", "key", "type", "default", "")
    for key in listed:
        block = f"{key.block}: {key.of}" if key.of else key.block
        cases = [f"{reference.written(value)} ({case})" for case, value in key.defaults.items()]
        shown.add_row(
            block, key.name, key.type, "\n".join([reference.default(key), *cases]), key.meaning
        )
    return shown


def listing(entries: Sequence[Json]) -> Table:
    """Return a table of entries with the same keys; `fields` and their defaults come last."""
    names = [name for name in entries[0] if name not in ("fields", "where")]
    shown = table(*names, *(["fields"] if "fields" in entries[0] else []))
    for entry in entries:
        fields = ", ".join(
            f"{name}={json.dumps(field['default'])}" if "default" in field else name
            for name, field in entry.get("fields", {}).items()
        )
        cells = [_cell(entry[name]) for name in names]
        shown.add_row(*cells, *([fields] if "fields" in entry else []))
    return shown


def _cell(value: Json) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={item}" for key, item in value.items())
    return "–" if value is None else str(value)
