"""What a leaderboard says of differences without a mark, and of those without a test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maskpolicy import markdown
from maskpolicy.leaderboard import measured
from maskpolicy.leaderboard.board import Board, Score
from maskpolicy.leaderboard.stats import POWER

if TYPE_CHECKING:
    from rich.table import Table

_HEAD = ("policy", "task", "difference", "95% interval", "finds")
_ABOUT = (
    "Differences without a mark: the interval of each one's own test, and the difference that "
    f"would have been marked with a probability of {100 * POWER:.0f}%. "
    "No mark does not mean no difference"
)
_EVERY = "all tasks"


def untested(board: Board) -> tuple[str, ...]:
    """Return each reason for which there is no test, behind the tasks that it holds for.

    A task whose rows do not all lack the test is followed by those that do.
    """
    lacking: dict[str, dict[str, list[str]]] = {}
    compared: dict[str, int] = dict.fromkeys(board.tasks, 0)
    for task in board.tasks:
        for row in board.rows:
            score = row.scores[task]
            if score is None or score.comparison is None:
                continue
            compared[task] += 1
            if score.comparison.reason:
                tasks = lacking.setdefault(score.comparison.reason, {})
                tasks.setdefault(task, []).append(row.label)
    said = []
    for reason, tasks in lacking.items():
        whole = {task for task, rows in tasks.items() if len(rows) == compared[task]}
        names = [
            measured.title(board, task) + ("" if task in whole else f" ({', '.join(rows)})")
            for task, rows in tasks.items()
        ]
        where = _EVERY if len(whole) == len(board.tasks) > 1 else ", ".join(names)
        said.append(f"{where}: {reason}")
    return tuple(said)


def lacks_runs(board: Board) -> bool:
    """Whether a test is missing for want of seeds with intermediate runs of their own."""
    scores = (score for row in board.rows for score in row.scores.values() if score)
    return any(score.comparison.lacks_runs for score in scores if score.comparison)


def lines(board: Board) -> list[str]:
    """Return what the tests answer for, if there are any, and why others could not be made."""
    missing = [f"No test on {said}." for said in untested(board)]
    return [*([board.condition] if board.tests else []), *missing]


def to_markdown(board: Board) -> list[str]:
    """Return the intervals of differences without a mark as lines of Markdown."""
    rows = unmarked(board)
    table = markdown.plain_table(_HEAD, rows, numbers=False)
    return ["", f"{_ABOUT}.", "", table] if rows else []


def to_table(board: Board) -> Table | None:
    """Return the intervals of differences without a mark as a table for the terminal."""
    from rich.table import Table
    from rich.text import Text

    rows = unmarked(board)
    if not rows:
        return None
    table = Table(title=_ABOUT, title_justify="left", box=None)
    for index, name in enumerate(_HEAD):
        table.add_column(name, justify="left" if index < 2 else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def unmarked(board: Board) -> list[list[str]]:
    """Return policy, task, difference, interval and what would be found of each such cell."""
    return [
        [row.label, measured.title(board, task), *numbers]
        for row in board.rows
        for task in board.tasks
        if (score := row.scores[task]) is not None and (numbers := _numbers(score))
    ]


def _numbers(score: Score) -> list[str]:
    found = score.comparison and score.comparison.found
    if not found or score.is_significant:
        return []
    finds = f"±{found.detectable:.1f}" if found.detectable > 0 else "–"
    return [f"{found.difference:+.1f}", f"{found.low:+.1f} to {found.high:+.1f}", finds]
