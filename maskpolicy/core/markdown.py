"""Markdown: tables, and text in which nothing is markup."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from maskpolicy.core.types import Json

_MARK = re.compile(r"[\\`\[]|[*~](?=\S)|(?<=\S)[*~]|(?<![^\W_])_|_(?![^\W_])")
_START = re.compile(r"^(?=(?:[-+*]|#{1,6}|-{3,})(?:\s|$))")  # begins a list, heading or rule
_NUMBER = re.compile(r"^\s*\d{1,9}(?=[.)](?:\s|$))")  # begins a list
_LINK = re.compile(r"(?<=\])(?=[(:\[])|(?<=\w:)(?=//)|(?<=\bwww)(?=\.)", re.IGNORECASE)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: bool = False) -> str:
    """Return a table without a final line break; with `numbers`, align all columns but one right.

    A bar inside a cell is escaped; all other markup stays.
    """
    rule = ["---", *["---:" if numbers else "---"] * (len(head) - 1)]
    lines = (" | ".join(cell.replace("|", "\\|") for cell in row) for row in [head, rule, *rows])
    return "\n".join(f"| {line} |" for line in lines)


def plain_table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: bool = False) -> str:
    """Return a table of texts in which nothing is markup; see `table`."""
    return table([plain(cell) for cell in head], [list(map(plain, row)) for row in rows], numbers)


def plain(text: str) -> str:
    """Return text on one line, escaped so that nothing in it is markup."""
    marked = _START.sub(r"\\", _MARK.sub(r"\\\g<0>", " ".join(text.split())))
    return unlinked(_NUMBER.sub(r"\g<0>\\", marked))


def unlinked(text: str) -> str:
    """Return text on one line, escaped so that Markdown sees no HTML, link or image in it.

    This includes definitions of links, and bare addresses, which GitHub turns into links. Emphasis
    and code stay.
    """
    return " ".join(_LINK.sub(r"\\", escape(text, quote=False)).split())


def title(column: str) -> str:
    """Return a column's name for display."""
    return column.replace("_", " ")


def shown(value: Json) -> str:
    """Return a value as text for display."""
    if value is None:
        return "–"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
