"""What an analysis of finished runs is and gives: rows, as a table, JSON and Markdown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from maskpolicy.results import Run, claim, write
from maskpolicy.types import Json

if TYPE_CHECKING:
    from rich.table import Table

    from maskpolicy.store import Store


@dataclass(frozen=True)
class Findings:
    """What an analysis found: one row for each thing it looked at, and lines worth saying."""

    columns: tuple[str, ...]
    rows: tuple[Mapping[str, Json], ...]  # a key that is missing, or None: not known
    notes: tuple[str, ...] = ()


class Analysis(Protocol):
    """What `@analysis(name)` gives a name to: a dataclass whose fields are its settings."""

    def analyse(self, runs: Sequence[Run], store: Store) -> Findings:
        """Return what it finds in the results of runs, and in their artifacts in `store`."""
        ...


def save(findings: Findings, name: str, out: Path) -> list[Path]:
    """Write NAME.json and NAME.md below `out`, each atomically; raises StoreError."""
    claim(out)
    document = json.dumps(to_json(findings, name), ensure_ascii=False, indent=1, allow_nan=False)
    paths = [out / f"{name}.json", out / f"{name}.md"]
    write(paths[0], f"{document}\n".encode())
    write(paths[1], to_markdown(findings).encode())
    return paths


def to_json(findings: Findings, name: str) -> Json:
    """Return findings as JSON of version 1."""
    rows = [{column: row.get(column) for column in findings.columns} for row in findings.rows]
    return {"version": 1, "analysis": name, "rows": rows, "notes": list(findings.notes)}


def to_markdown(findings: Findings) -> str:
    """Return findings as a Markdown table, the notes below."""
    lines = [[title(column) for column in findings.columns], ["---"] * len(findings.columns)]
    lines += [_cells(findings, row) for row in findings.rows]
    table = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
    notes = ["", *(f"* {note}" for note in findings.notes)] if findings.notes else []
    return "\n".join([*table, *notes]) + "\n"


def to_table(findings: Findings) -> Table:
    """Return findings as a table for the terminal; the caller prints the notes."""
    from rich.table import Table

    table = Table(box=None)
    for column in findings.columns:
        numbers = any(isinstance(row.get(column), int | float) for row in findings.rows)
        table.add_column(title(column), justify="right" if numbers else "left")
    for row in findings.rows:
        table.add_row(*_cells(findings, row))
    return table


def _cells(findings: Findings, row: Mapping[str, Json]) -> list[str]:
    return [shown(row.get(column)) for column in findings.columns]


def title(column: str) -> str:
    """Return a column's name as a person reads it."""
    return column.replace("_", " ")


def shown(value: Json) -> str:
    """Return a value as a person reads it."""
    if value is None:
        return "–"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
