"""The interface of analyses, and their findings: rows, notes and plots in files of a run."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from maskpolicy.analyses import plots
from maskpolicy.analyses.plots import PLOTS, Plot
from maskpolicy.core import markdown
from maskpolicy.core.files import claim_folder, json_or_none, write_file
from maskpolicy.core.lazy import offers
from maskpolicy.core.markdown import shown, title
from maskpolicy.core.types import Json
from maskpolicy.leaderboard.results.cell import Run
from maskpolicy.plugins import registry

if TYPE_CHECKING:
    from rich.table import Table

    from maskpolicy.analyses.cache import derive as derive
    from maskpolicy.analyses.curves import Point as Point
    from maskpolicy.analyses.curves import panels as panels
    from maskpolicy.analyses.curves import points as points
    from maskpolicy.analyses.masked_sample import IntermediateStage as IntermediateStage
    from maskpolicy.analyses.masked_sample import Sample as Sample
    from maskpolicy.analyses.masked_sample import Sampling as Sampling
    from maskpolicy.analyses.masked_sample import intermediate_stages as intermediate_stages
    from maskpolicy.analyses.masked_sample import samples as samples
    from maskpolicy.analyses.task_examples import ColumnExamples as ColumnExamples
    from maskpolicy.analyses.task_examples import answers as answers
    from maskpolicy.analyses.task_examples import column_examples as column_examples
    from maskpolicy.pipeline.store.artifacts import Store

__all__, __getattr__, __dir__ = offers(__name__)
__all__ += ["Figure", "Findings"]

FOLDER = "analyses"  # in a run's folder; has a folder for each analysis
PAGE_FACTS = ("heading", "of_masks", "place")  # of `@analysis`, for the run's page
ENDINGS = {"json", "md", "svg", "png", "html"}  # of the files of an analysis


@dataclass(frozen=True)
class Figure:
    """A figure on the page of an analysis: one or more panels, and what drew them."""

    title: str
    about: str
    plots: tuple[Plot, ...]


@dataclass(frozen=True)
class Findings:
    """The output of an analysis: a table, notes, and the plots of one figure.

    `partial` findings are not cached, because artifacts were missing or files may change. `values`
    has the numbers to compare over intermediate runs: rows of `policy` (a row's label), `stage`
    (the number of the intermediate run), what was measured, and the `value`. `about`, a title and
    paragraphs, stands above the table. `overview` names the columns of a first table, whose rows
    have all of them; the other columns follow in a second table. `figures` add a page with tables,
    notes and figures.
    """

    columns: tuple[str, ...]
    rows: tuple[Mapping[str, Json], ...]  # by column; a missing key or None means unknown
    notes: tuple[str, ...] = ()
    plots: tuple[Plot, ...] = ()  # the panels of one figure
    partial: bool = False
    values: tuple[Mapping[str, Json], ...] = ()
    about: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    overview: tuple[str, ...] = ()

    @classmethod
    def of_runs(
        cls,
        runs: Collection[object],
        columns: Sequence[str],
        rows: Iterable[Mapping[str, Json]],
        notes: Iterable[str] = (),
        plots: Iterable[Plot] = (),
        values: Iterable[Mapping[str, Json]] = (),
        partial: bool = False,
    ) -> Findings:
        """Return findings without the first column, the name of the run, if there is one run."""
        shown = tuple(columns if len(runs) > 1 else columns[1:])
        return cls(shown, tuple(rows), tuple(notes), tuple(plots), partial, tuple(values))

    def tables(self) -> list[Findings]:
        """Return findings of one table each: the overview and the other columns, or all columns.

        The first column of the overview is in both tables.
        """
        if not self.overview:
            return [self]
        others = self.overview[1:]
        whole = [row for row in self.rows if all(row.get(name) for name in self.overview)]
        rest = tuple(name for name in self.columns if name not in others)
        return [Findings(self.overview, tuple(whole)), Findings(rest, self.rows)]


class Analysis(Protocol):
    """The protocol of a class registered by `@analysis(name)`: a dataclass with its settings."""

    def analyse(self, runs: Sequence[Run], store: Store) -> Findings:
        """Analyse the results of runs and their artifacts in `store`."""


def save(
    findings: Findings,
    name: str,
    out: Path,
    of: str = "",
    *,
    rows: Sequence[str] = (),
    pictures: bool = True,
) -> list[Path]:
    """Write NAME.json, NAME.md and, if there are plots, NAME.svg and NAME.png below `out`.

    Figures add a page, NAME.html. For a single run, `of` is the fingerprint of its results, and
    `rows` are its rows, which have the same colours in all plots. Files of earlier findings are
    removed. Returns the paths. Each file is written atomically, the JSON last; raises StoreError.
    """
    claim_folder(out)
    content = {**to_json(findings, name), **({"results": of} if of else {})}
    if name in registry.names("analysis"):
        entry = registry.entry("analysis", name)
        content |= {"summary": entry.summary} | {fact: entry.facts[fact] for fact in PAGE_FACTS}
    document = json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False)
    files = {"json": f"{document}\n".encode(), "md": to_markdown(findings).encode()}
    if findings.plots and pictures:
        files |= plots.draw(findings.plots, rows=rows)
    if findings.figures:
        files["html"] = render(findings, name).encode()
    saved = json_or_none(out / f"{name}.json")  # earlier findings, or data of the user
    is_ours = isinstance(saved, dict) and saved.get("analysis") == name
    for ending in ENDINGS - files.keys() if is_ours else ():
        (out / f"{name}.{ending}").unlink(missing_ok=True)
    for ending in reversed(files):
        write_file(out / f"{name}.{ending}", files[ending])
    return [out / f"{name}.{ending}" for ending in files]


def to_json(findings: Findings, name: str) -> Json:
    """Return findings as JSON; `plots` has the data of each panel. Empty `values` are left out."""
    rows = [{column: row.get(column) for column in findings.columns} for row in findings.rows]
    document = {
        **{"version": 1, "analysis": name, "columns": list(findings.columns), "rows": rows},
        **{"notes": list(findings.notes), "plots": _panels(findings.plots)},
    }
    more = {
        "values": list(map(dict, findings.values)),
        "about": list(findings.about),
        "overview": list(findings.overview),
        "figures": [
            {"title": each.title, "about": each.about, "plots": _panels(each.plots)}
            for each in findings.figures
        ],
    }
    return document | {key: value for key, value in more.items() if value}


def _panels(drawn: Sequence[Plot]) -> list[Json]:
    return [{"kind": type(plot).__name__.lower(), **asdict(plot)} for plot in drawn]


def from_json(document: Json) -> Findings:
    """Return findings from the JSON of `to_json`."""
    names = ("columns", "rows", "notes", "values", "about", "overview")
    parts: Json = {name: tuple(document.get(name, ())) for name in names}
    figures = (
        Figure(each["title"], each["about"], _plots(each["plots"]))
        for each in document.get("figures", ())
    )
    return Findings(**parts, plots=_plots(document["plots"]), figures=tuple(figures))


def _plots(panels: Sequence[Json]) -> tuple[Plot, ...]:
    return tuple(_plot(**panel) for panel in panels)


def _plot(kind: str, **fields: Any) -> Plot:
    if "series" in fields:
        fields["series"] = [plots.Series(**series) for series in fields["series"]]
    return PLOTS[kind](**fields)


def to_markdown(findings: Findings) -> str:
    """Return findings as Markdown: what they are about, the table or tables, and the notes."""
    above = [f"# {markdown.plain(line)}" for line in findings.about[:1]]
    tables = [
        markdown.plain_table(
            [title(column) for column in part.columns], [_cells(part, row) for row in part.rows]
        )
        for part in findings.tables()
    ]
    notes = "\n".join(f"* {markdown.plain(note)}" for note in findings.notes)
    return "\n\n".join(filter(None, [*above, *findings.about[1:], *tables, notes])) + "\n"


def to_table(findings: Findings) -> Table:
    """Return the table, or the overview, for the terminal; the caller prints the notes."""
    from rich.table import Table

    first, table = findings.tables()[0], Table(box=None)
    for column in first.columns:
        numbers = any(isinstance(row.get(column), int | float) for row in first.rows)
        table.add_column(title(column), justify="right" if numbers else "left")
    for row in first.rows:
        table.add_row(*_cells(first, row))
    return table


def _cells(findings: Findings, row: Mapping[str, Json]) -> list[str]:
    return [shown(row.get(column)) for column in findings.columns]


def render(findings: Findings, name: str) -> str:
    """Return the page of an analysis, which loads nothing; the same findings give the same bytes.

    The cells of a column `verdict` have their first word as a class, for their colour.
    """
    from markupsafe import Markup

    from maskpolicy.leaderboard.page import asset, templates

    heading, *paragraphs = findings.about or (name.replace("_", " ").capitalize(),)
    page = templates(__name__).get_template("page.html")
    return page.render(
        heading=heading,
        paragraphs=paragraphs,
        tables=[(list(map(title, each.columns)), _rows(each)) for each in findings.tables()],
        notes=findings.notes,
        figures=[
            (each.title, each.about, Markup(plots.draw(each.plots, each.title)["svg"].decode()))
            for each in findings.figures
        ],
        style=asset(__name__, "page.css"),
    )


def _rows(findings: Findings) -> Iterator[tuple[bool, list[tuple[str, str]]]]:
    """Yield for each row whether its first value differs from the row above, and its cells."""
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
