"""Markdown: tables, and text that is no markup."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from maskpolicy.types import Json


def table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: bool = False) -> str:
    """Return a table without a line break behind it; `numbers`: all columns but one are at right.

    A bar inside a cell is escaped, all other markup stays.
    """
    rule = ["---", *["---:" if numbers else "---"] * (len(head) - 1)]
    return "\n".join(map(_line, [head, rule, *rows]))


def plain_table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: bool = False) -> str:
    """Return a table of texts in which nothing is markup; see `table`."""
    return table([plain(cell) for cell in head], [list(map(plain, row)) for row in rows], numbers)


def plain(text: str) -> str:
    """Return text on one line that Markdown takes for no HTML: a label may say anything."""
    return " ".join(escape(text, quote=False).split())


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def title(column: str) -> str:
    """Return a column's name as a person reads it."""
    return column.replace("_", " ")


def shown(value: Json) -> str:
    """Return a value as a person reads it."""
    if value is None:
        return "–"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
