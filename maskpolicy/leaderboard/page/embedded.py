"""Analyses that lie beside the results: their plots as images, what they found as a table."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from maskpolicy.errors import DataError
from maskpolicy.files import read_json
from maskpolicy.markdown import shown, title
from maskpolicy.results import cell
from maskpolicy.types import Json

ROOM = 900_000  # bytes of plots in one page, so that it stays below 3 MB with all else
MOST_ROWS = 60
_STALE = "This is of other results than the table's: analyze the run again."


@dataclass(frozen=True)
class Plot:
    """One plot; without a `url` there was no room for it."""

    name: str
    path: str  # below the folder of results
    url: str | None


@dataclass(frozen=True)
class Analysis:
    """What one analysis left in DIR/analyses/NAME."""

    title: str
    run: str  # where there are several
    plots: tuple[Plot, ...]
    notes: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    more: int  # rows that are not shown


def find(folders: Sequence[Path]) -> list[Analysis]:
    """Return the analyses of all folders, in the order of their names; raises DataError."""
    room = ROOM
    found = []
    for folder in folders:
        for place in sorted(path for path in (folder / "analyses").glob("*") if path.is_dir()):
            run = folder.resolve().name if len(folders) > 1 else ""
            plots = []
            for path in sorted(place.glob("*.svg")):
                image = next((each for each in _forms(path) if each.stat().st_size <= room), None)
                plots.append(_plot(path, folder, image))
                room -= image.stat().st_size if image else 0
            about = place / f"{place.name}.json"
            text = _findings(about) if about.is_file() else {}
            if text.get("results") not in (None, cell.fingerprint(folder)):
                text = {**text, "notes": [_STALE, *text.get("notes", ())]}
            if plots or text:
                found.append(_analysis(place.name, run, plots, text))
    return found


def _forms(path: Path) -> list[Path]:
    """Return a plot as SVG and, for want of room, as the PNG beside it."""
    return [form for form in (path, path.with_suffix(".png")) if form.is_file()]


def _plot(path: Path, folder: Path, image: Path | None) -> Plot:
    url = None
    if image is not None:
        kind = "svg+xml" if image.suffix == ".svg" else "png"
        url = f"data:image/{kind};base64,{base64.b64encode(image.read_bytes()).decode()}"
    name = "" if path.stem == path.parent.name else path.stem.replace("_", " ")
    return Plot(name, path.relative_to(folder).as_posix(), url)


def _findings(path: Path) -> Json:
    found = read_json(path)
    rows = found.get("rows") if isinstance(found, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise DataError(f"{path}: not written by `maskpolicy analyze`: remove it")
    return found


def _analysis(name: str, run: str, plots: list[Plot], found: Json) -> Analysis:
    rows = found.get("rows", [])
    columns = found.get("columns") or list(dict.fromkeys(key for row in rows for key in row))
    cells = [tuple(shown(row.get(column)) for column in columns) for row in rows[:MOST_ROWS]]
    return Analysis(
        str(found.get("title") or name.replace("_", " ").capitalize()),
        run,
        tuple(plots),
        tuple(map(str, found.get("notes", ()))),
        tuple(title(column) for column in columns),
        tuple(cells),
        max(0, len(rows) - MOST_ROWS),
    )
