"""Render a leaderboard as one self-contained HTML page."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maskpolicy.core.files import write_file
from maskpolicy.core.types import Json
from maskpolicy.data.majority import LABEL, SENTENCE
from maskpolicy.leaderboard import description, report, stored_board
from maskpolicy.leaderboard.board import MASKED, Board
from maskpolicy.leaderboard.page import differences, embedded_analyses, page_data
from maskpolicy.leaderboard.stats import LEVEL, POWER
from maskpolicy.leaderboard.table import HEIGHT, WIDTH, Table, table

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

SCRIPTS = (
    *("theme.js", "page.js", "tip.js", "table.js", "costs.js", "seeds.js", "policies.js"),
    *("examples.js", "details.js", "runs.js", "scroll.js"),
)
PACKAGE = __name__
_UNSAFE = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&'\u2028\u2029"}


def save_page(board: Board, path: Path, option: str = "--out", home: str = "") -> None:
    """Write the page of a leaderboard atomically; errors name the `option`."""
    if len(board.runs) > 1:
        stored_board.check_other(path, option)
    write_file(path, render(board, home).encode("utf-8", "replace"), option)


def save_forms(board: Board, out: Path, home: str = "") -> None:
    """Write leaderboard.html, .json, .md, .csv and .tex; raises StoreError.

    A board of given scores also has a manifest with their digests, and a folder of its own.
    """
    if board.given is not None:
        stored_board.check(out)
    save_page(board, out / "leaderboard.html", home=home)
    report.save_report(board, out)
    if board.given is not None:
        stored_board.seal(out)


def render(board: Board, home: str = "") -> str:
    """Return the page of a leaderboard, with a link to `home`, the index of a site.

    Reads predictions, questions, analyses and run.json from the folders of results. Only one line,
    the data block "record" with seconds, versions and machines, differs between two runs of one
    command. Raises DataError for a broken file.
    """
    environment = templates(__name__)
    environment.filters |= {"data": data, "amount": _amount, "code": _code}
    environment.filters["signed"] = lambda text: text.replace("-", "−")
    runs = board.runs
    shown = table(board)
    analyses = embedded_analyses.find_analyses([run.folder for run in runs])
    return environment.get_template("page.html").render(
        **parts(SCRIPTS),
        home=home,
        title=title(board),
        table=shown,
        sizes=_sizes(board),
        width=WIDTH,
        height=HEIGHT,
        level=LEVEL,
        majority=LABEL,
        sentence=SENTENCE,
        power=POWER,
        ranks=[board.title(column) for column in board.standings],
        ranks_about=report.RANKS,
        ranked=[(row.label, report.ranks_of(board, row)) for row in board.rows],
        missing=board.gaps,
        notes=[note for note in board.notes if note not in board.gaps],
        measured=description.facts(board),
        given=board.given,
        nouns="policies" if board.given is None else "systems",
        reported=_reported(shown),
        policies=page_data.entries(board, analyses),
        counts=list(MASKED),
        analyses=analyses,
        shared=embedded_analyses.shared_notes(analyses),
        experiments=page_data.experiments(runs),
        board=page_data.cells(board),
        examples=differences.examples(board),
        record=page_data.run_records(runs),
    )


def title(board: Board) -> str:
    """Return the names of the experiments on a board, or of the runs where these are not unique."""
    names = [run.experiment or run.name for run in board.runs]
    return ", ".join(names if len(set(names)) == len(names) else [run.name for run in board.runs])


def parts(names: Sequence[str]) -> dict[str, Any]:
    """Return the style and scripts of a page, and the policy that allows nothing else."""
    scripts = [asset(__name__, name) for name in names]
    style = asset(__name__, "page.css")
    return {"style": style, "scripts": scripts, "policy": _policy(style, scripts)}


def data(value: Json) -> Markup:
    """Return JSON that is safe inside a script element."""
    from markupsafe import Markup

    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(text.translate(_UNSAFE))


def _sizes(board: Board) -> str:
    """Return how many test examples the tasks have, in words, or "" if no task has a score."""
    sizes = sorted({n for task in board.tasks for n in board.column(task).n})
    ends = dict.fromkeys(map(str, (sizes[0], sizes[-1]) if sizes else ()))
    each = " a task" if len(board.tasks) > 1 else ""
    return f"{' to '.join(ends)} test examples{each}; " if ends else ""


def _amount(count: int) -> str:
    """Return a large number in three digits, e.g. "1.23 M"."""
    count = int(float(f"{count:.3g}"))  # 999,999 is 1 M
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return str(count)


def _code(text: str) -> Markup:
    """Return a text as HTML; text between backticks becomes code."""
    from markupsafe import Markup, escape

    parts = [escape(part) for part in text.split("`")]
    if len(parts) % 2 == 0:  # a backtick of a user's own
        return escape(text)
    marked = (Markup("<code>%s</code>") % each if i % 2 else each for i, each in enumerate(parts))
    return Markup("").join(marked)


def _policy(style: str, scripts: list[Markup]) -> str:
    """Return a content security policy: only these scripts and this style, and no requests."""
    allowed = " ".join(_digest(script) for script in scripts)
    return (
        f"default-src 'none'; script-src {allowed}; style-src {_digest(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _reported(table: Table) -> Json:
    """Return the reported rows with a number for at least one column, or None if there are none.

    Numbers are shown only if all cells use the paper's model, and only for closed-book columns
    with the data set's own questions, not those of the embedded world.
    """
    text = resources.files(__package__).joinpath("reported.json").read_text("utf-8")
    known = json.loads(text)  # {"source", "url", "model", "about", "rows": [{"policy", "scores"}]}
    cells = (cell for row in table.board.rows for cell in row.cells.values())
    models = {cell.config.get("model", {}).get("name") for cell in cells}
    if models != {known["model"]}:
        return None
    names = [column.data_set for column in table.columns]
    rows = [
        {"policy": row["policy"], "cells": [row["scores"].get(name) for name in names]}
        for row in known["rows"]
    ]
    shown = [row for row in rows if any(row["cells"])]
    return {**known, "rows": shown} if shown else None


@cache
def templates(package: str) -> Environment:
    """Return the templates in a package's `assets`.

    They escape their values, and an unknown name is an error. They are cached, because compiling
    takes longer than rendering.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader(package, "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def asset(package: str, name: str) -> Markup:
    """Return a text file in a package's `assets`, which templates do not escape."""
    from markupsafe import Markup

    path = resources.files(package).joinpath("assets", name)
    return Markup(path.read_text(encoding="utf-8"))
