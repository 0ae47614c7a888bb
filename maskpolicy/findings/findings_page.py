"""The page of an analysis: its table, its notes and its figures in one HTML file."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from typing import TYPE_CHECKING

from maskpolicy import plots
from maskpolicy.markdown import shown, title
from maskpolicy.types import Json

if TYPE_CHECKING:
    from maskpolicy.findings import Findings


def render(findings: Findings, name: str) -> str:
    """Return the page of an analysis, which loads nothing; the same findings give the same bytes.

    The cells of a column `verdict` have their first word as a class, for their colour.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader(__name__.rpartition(".")[0], "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = resources.files("maskpolicy.findings").joinpath("assets", "page.css")
    heading, *paragraphs = findings.about or (name.replace("_", " ").capitalize(),)
    return environment.get_template("page.html").render(
        heading=heading,
        paragraphs=paragraphs,
        columns=[title(column) for column in findings.columns],
        rows=[
            (bool(row.get("verdict")), [_cell(row, column) for column in findings.columns])
            for row in findings.rows
        ],
        notes=findings.notes,
        figures=[
            (each.title, each.about, Markup(plots.draw(each.plots, each.title)["svg"].decode()))
            for each in findings.figures
        ],
        style=Markup(style.read_text(encoding="utf-8")),
    )


def _cell(row: Mapping[str, Json], column: str) -> tuple[str, str]:
    """Return the class and the text of a cell; a missing value is an empty cell."""
    value = row.get(column)
    if value is None:
        return "", ""
    if column == "verdict":
        return str(value).partition(":")[0], str(value)
    return "number" if isinstance(value, int | float) else "", shown(value)
