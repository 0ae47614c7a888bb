"""The page of an analysis: its table, its notes and its figures in one HTML file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from maskpolicy import plots
from maskpolicy.leaderboard.page.html_assets import asset, templates
from maskpolicy.markdown import shown, title
from maskpolicy.types import Json

if TYPE_CHECKING:
    from maskpolicy.findings import Findings

_PACKAGE = "maskpolicy.findings"


def render(findings: Findings, name: str) -> str:
    """Return the page of an analysis, which loads nothing; the same findings give the same bytes.

    The cells of a column `verdict` have their first word as a class, for their colour.
    """
    from markupsafe import Markup

    heading, *paragraphs = findings.about or (name.replace("_", " ").capitalize(),)
    page = templates(_PACKAGE).get_template("page.html")
    return page.render(
        heading=heading,
        paragraphs=paragraphs,
        tables=[(list(map(title, each.columns)), _rows(each)) for each in findings.tables()],
        notes=findings.notes,
        figures=[
            (each.title, each.about, Markup(plots.draw(each.plots, each.title)["svg"].decode()))
            for each in findings.figures
        ],
        style=asset(_PACKAGE, "page.css"),
    )


def _rows(findings: Findings) -> Iterator[tuple[bool, list[tuple[str, str]]]]:
    """Yield for each row whether its first value is not that of the row above, and its cells."""
    above: Json = None
    for row in findings.rows:
        first = row.get(findings.columns[0])
        yield first != above, [_cell(row, column) for column in findings.columns]
        above = first


def _cell(row: Mapping[str, Json], column: str) -> tuple[str, str]:
    """Return the class and the text of a cell; a missing value is an empty cell."""
    value = row.get(column)
    if value is None:
        return "", ""
    if column == "verdict":
        return str(value).partition(":")[0], str(value)
    return "number" if isinstance(value, int | float) else "", shown(value)
