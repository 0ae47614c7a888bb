"""Embed the analyses of runs in the page: plots as data URLs, findings as tables."""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

from maskpolicy.core.errors import DataError
from maskpolicy.core.files import read_json, relative_paths
from maskpolicy.core.markdown import shown, title
from maskpolicy.core.types import Json
from maskpolicy.leaderboard.results import cell
from maskpolicy.leaderboard.results.cell import names_of

ROOM = 1_300_000  # characters of plots, so that the whole page stays below 3 MB
MOST_ROWS = 60
_STALE = "The results or the baseline have changed since this analysis: analyze the run again."
_WIDE = 480  # points: wider plots are not shown side by side
_MASKED = 1.0  # the weight of a masked span; a candidate's is smaller
BETWEEN = " — passage "  # label and name of the first of the viewer's texts on a passage


@dataclass
class EmbeddedPlot:
    """One plot; `url` is None if it did not fit into the page."""

    name: str
    path: str  # below the folder of results
    forms: tuple[str, ...]  # data URLs: of the SVG, then of a PNG if there is one
    width: float  # of the SVG in points, 0 if it is not known
    url: str | None = None  # the form that fits into the page, if one does


@dataclass(frozen=True)
class MaskedPassage:
    """A text with marked spans; a part's mark is "masked", "candidate" or "" for neither."""

    label: str  # of the row
    name: str  # of the passage, "" if it is that of the passage before
    parts: tuple[tuple[str, str], ...]  # mark, text


@dataclass(frozen=True)
class EmbeddedAnalysis:
    """The contents of DIR/analyses/NAME."""

    name: str
    title: str
    about: str  # a sentence on what it shows, "" if it is not known
    folder: str  # of the results
    run: str  # name of the run, "" if there is only one
    plots: tuple[EmbeddedPlot, ...]
    passages: tuple[MaskedPassage, ...]
    notes: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    more: int  # rows that are not shown
    is_of_masks: bool  # it shows what was masked, and not what came of it
    place: int  # among those of masks, or among the others: the lowest comes first

    @property
    def is_wide(self) -> bool:
        """Whether it needs the whole width of the page."""
        return bool(self.passages) or any(plot.width > _WIDE for plot in self.plots)


def find_analyses(folders: Sequence[Path]) -> list[EmbeddedAnalysis]:
    """Return the analyses of all folders, the most important first.

    Symbolic links are left out, because a run may come from a stranger and a page is shared. Raises
    DataError for a broken file.
    """
    analyses = [
        analysis
        for folder, name in zip(folders, names_of(folders), strict=True)
        for place in _entries(folder / "analyses", "*")
        if (analysis := _analysis(place, folder, name if len(folders) > 1 else ""))
    ]
    analyses.sort(key=lambda each: (not each.is_of_masks, each.place, each.name))
    plots = [plot for each in analyses for plot in each.plots]
    for plot, url in zip(plots, _fitting([plot.forms for plot in plots], ROOM), strict=True):
        plot.url = url
    return analyses


def _fitting(plots: Sequence[Sequence[str]], room: int) -> Iterator[str | None]:
    """Yield a form of each plot, or None: a small one of as many as fit, then larger ones."""
    chosen: list[str | None] = []
    for forms in plots:
        smallest = min(forms, key=len)
        chosen.append(smallest if len(smallest) <= room else None)
        room -= len(chosen[-1] or "")
    for forms, small in zip(plots, chosen, strict=True):
        is_larger = small is not None and len(forms[0]) - len(small) <= room
        room -= len(forms[0]) - len(small or "") if is_larger else 0
        yield forms[0] if is_larger else small


def shared_notes(analyses: Sequence[EmbeddedAnalysis]) -> dict[str, list[str]]:
    """Return the notes that several analyses have, each with the titles of these analyses."""
    counts = Counter(note for each in analyses for note in set(each.notes))
    return {
        note: [each.title for each in analyses if note in each.notes]
        for note, count in counts.items()
        if count > 1
    }


def _entries(folder: Path, pattern: str) -> list[Path]:
    """Return the entries of a folder that are not symbolic links, sorted by name."""
    if folder.is_symlink():
        return []
    return sorted(path for path in folder.glob(pattern) if not path.is_symlink())


def _is_own_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _url(image: Path) -> str:
    """Return an image as a data URL; an SVG is shorter as text than in base64."""
    if image.suffix == ".svg":
        text = image.read_text(encoding="utf-8", errors="replace")
        return f"data:image/svg+xml,{quote(text, safe=' ,.:;/=()-+*!@?[]|')}"
    return f"data:image/png;base64,{base64.b64encode(image.read_bytes()).decode()}"


def _plot(svg: Path, folder: Path) -> EmbeddedPlot:
    forms = tuple(map(_url, filter(_is_own_file, (svg, svg.with_suffix(".png")))))
    name = "" if svg.stem == svg.parent.name else title(svg.stem)
    found = re.search(r'width="([\d.]+)pt"', svg.read_text(encoding="utf-8", errors="replace"))
    width = float(found[1]) if found else 0.0
    return EmbeddedPlot(name, svg.relative_to(folder).as_posix(), forms, width)


def _passages(found: Json) -> Iterator[MaskedPassage]:
    """Yield the texts with marked spans, which the page shows as text and not as an image."""
    for plot in found.get("plots", ()):
        if plot["kind"] == "marked":
            label, _, name = str(plot["label"]).partition(BETWEEN)
            yield MaskedPassage(label, name, tuple(_parts(plot["text"], plot["marks"])))


def _parts(text: str, marks: Sequence[Sequence[float]]) -> Iterator[tuple[str, str]]:
    """Yield (mark, text) of each part of a text; where spans overlap, a masked one counts."""
    spans: list[tuple[int, str]] = [(-1, "")] * len(text)
    for number, (start, end, weight) in enumerate(sorted(marks, key=lambda mark: mark[2])):
        mark = "masked" if weight >= _MASKED else "candidate"
        first, last = max(0, int(start)), min(len(text), int(end))
        spans[first:last] = [(number, mark)] * (last - first)
    for (_, mark), places in groupby(range(len(text)), spans.__getitem__):
        yield mark, "".join(text[place] for place in places)


def _analysis(place: Path, folder: Path, run: str) -> EmbeddedAnalysis | None:
    """Return the analysis in a folder of a run, or None if it holds no analysis."""
    path = place / f"{place.name}.json"
    has_findings = _is_own_file(path)
    found = relative_paths(read_json(path), folder) if has_findings else {"rows": []}
    try:
        analysis = _embedded(found, place, folder, run)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        raise DataError(f"{path}: not written by `maskpolicy analyze`: remove it") from None
    return analysis if has_findings or analysis.plots else None


def _embedded(found: Json, place: Path, folder: Path, run: str) -> EmbeddedAnalysis:
    """Return the analysis in a folder of a run, whose JSON a stranger may have written."""
    passages = tuple(_passages(found))
    drawn = [] if passages else filter(_is_own_file, _entries(place, "*.svg"))
    stale = found.get("results") not in (None, cell.fingerprint(folder))
    rows = found["rows"]
    columns = found.get("columns") or list(dict.fromkeys(key for row in rows for key in row))
    words = place.name.replace("_", " ").replace("-", " ").capitalize()
    heading, *paragraphs = found.get("about") or [found.get("heading") or words]
    return EmbeddedAnalysis(
        name=place.name,
        title=str(heading),
        about=" ".join(map(str, paragraphs)) or str(found.get("summary", "")),
        folder=str(folder),
        run=run,
        plots=tuple(_plot(svg, folder) for svg in drawn),
        passages=passages,
        notes=(*([_STALE] if stale else []), *map(str, found.get("notes", ()))),
        columns=tuple(map(title, columns)),
        rows=tuple(tuple(shown(row.get(name)) for name in columns) for row in rows[:MOST_ROWS]),
        more=max(0, len(rows) - MOST_ROWS),
        is_of_masks=bool(found.get("of_masks")),
        place=int(found.get("place", 0)),
    )
