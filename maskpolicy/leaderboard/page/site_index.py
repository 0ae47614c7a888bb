"""The index of a site: one page that lists many leaderboards, with search and filters."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from maskpolicy.core.errors import listed
from maskpolicy.core.files import write_file
from maskpolicy.leaderboard import description
from maskpolicy.leaderboard.board import Board
from maskpolicy.leaderboard.comparisons import points
from maskpolicy.leaderboard.page import PACKAGE, page_data, parts, templates, title
from maskpolicy.leaderboard.table import table

INDEX = "index.html"
FACETS = ("model", "task", "policy", "budget")
_MOST, _TASKS = 6, 4  # values of a facet, and tasks, that an entry shows
_DATE = re.compile(r"\d{4}-\d\d-\d\d")


@dataclass(frozen=True)
class Entry:
    """What the index says of one leaderboard."""

    place: str  # its folder
    title: str
    summary: str
    finished: str  # a date, or ""
    facets: Mapping[str, Sequence[str]]
    best: str


def entry(board: Board, place: str) -> Entry:
    """Return the entry of a board whose page lies in the folder `place`."""
    cells = [] if board.given else [cell for row in board.rows for cell in row.cells.values()]
    budgets = (description.stage(cell.config, "intermediate") for cell in cells)
    found = {
        "model": map(description.model, cells),
        "task": map(board.title, board.tasks),
        "policy": (row.config["name"] for row in board.rows),
        "budget": (budget.partition(",")[0] for budget in budgets if budget),
    }
    records = [] if board.given else page_data.run_records(board.runs)
    day = _DATE.match(str(max((str(each.get("finished")) for each in records), default="")))
    best = board.best()
    highest = [
        f"{board.title(task)} {points(score.mean)} ({row.label})"
        for task in board.tasks
        for row in board.rows
        if row.label in best[task] and (score := row.scores[task])
    ]
    return Entry(
        place=place,
        title=title(board),
        summary=table(board).summary,
        finished=day[0] if day else "",
        facets={name: tuple(dict.fromkeys(values)) for name, values in found.items()},
        best=listed(highest, "; ", most=_TASKS),
    )


def save_index(entries: Sequence[Entry], path: Path, heading: str) -> None:
    """Write the index of a site; raises StoreError."""
    counts = {name: Counter(v for one in entries for v in one.facets[name]) for name in FACETS}
    choices = {name: dict(sorted(values.items())) for name, values in counts.items()}
    numbers = {name: {v: at for at, v in enumerate(values)} for name, values in choices.items()}
    lists = {"entries": entries, "choices": choices, "numbers": numbers, "most": _MOST}
    page = templates(PACKAGE).get_template("site.html")
    text = page.render(title=heading, **lists, **parts(("theme.js", "site.js")))
    write_file(path, text.encode("utf-8", "replace"))
