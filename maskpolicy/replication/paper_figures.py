"""The figures of both papers: which analysis draws each, of which experiment's runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from maskpolicy.findings import Figure
from maskpolicy.plots import Lines, Plot, Series
from maskpolicy.replication.contrast_evidence import Evidences
from maskpolicy.types import Json


@dataclass(frozen=True)
class PaperFigure:
    """A figure of a paper; `panels` are those of the analysis whose title holds this text."""

    title: str
    experiment: str
    analysis: str
    panels: str = ""
    settings: Mapping[str, Json] = field(default_factory=dict)


FIGURES = (
    PaperFigure("Ye et al. 2021: learning efficiency", "efficiency", "efficiency"),
    PaperFigure("Ye et al. 2021: learned policies on other tasks", "closed-book", "transfer"),
    PaperFigure("Ye et al. 2021: parts of speech of masked words", "closed-book", "pos"),
    PaperFigure("Ye et al. 2021: frequency of masked tokens", "closed-book", "frequency"),
    PaperFigure("Meng et al. 2024, figure 1a: rank of all tokens", "mae-lm", "rank", "(1a)"),
    PaperFigure("Meng et al. 2024, figure 1b: rank of <mask> tokens", "mae-lm", "rank", "(1b)"),
    PaperFigure("Meng et al. 2024, figure 3: scores over pre-training", "mae-lm", "figure3"),
    PaperFigure("Meng et al. 2024, figure 4: masks that return", "mae-lm", "returned-masks"),
    PaperFigure("The same for linear probes of the frozen encoders", "mae-lm", "probe"),
    PaperFigure("Meng et al. 2024, figure 5a: gap in rank", "mae-lm", "rank", "(5a)"),
    PaperFigure("Meng et al. 2024, figure 5b: rank in fine-tuning", "mae-lm", "rank", "(5b)"),
)


def draw(evidences: Evidences) -> list[Figure]:
    """Return the figures for which the runs have what their analysis needs."""
    found = []
    for figure in FIGURES:
        for run in evidences.of_experiment(figure.experiment):
            table = evidences.table(figure.analysis, figure.settings, run)
            plots = [_over_runs(plot) for plot in (table.plots if table else ())]
            kept = tuple(plot for plot in plots if figure.panels in getattr(plot, "title", ""))
            if kept:
                settings = "".join(f" {key}={value}" for key, value in figure.settings.items())
                about = f"maskpolicy analyze {figure.analysis} {run.name}{settings}"
                found.append(Figure(figure.title, about, kept))
    return found


def _over_runs(plot: Plot) -> Plot:
    """Return lines with one series for each row: the mean of its runs, and their range."""
    if not isinstance(plot, Lines):
        return plot
    rows: dict[str, list[Series]] = {}
    for series in plot.series:
        label = re.sub(r", (?:run|general model) \d+", "", series.label)
        rows.setdefault(label, []).append(series)
    return replace(plot, series=[_mean(label, each) for label, each in rows.items()])


def _mean(label: str, runs: Sequence[Series]) -> Series:
    if len(runs) == 1:
        return runs[0]
    by_place: dict[float, list[float]] = {}
    for series in runs:
        for place, value in zip(series.x, series.y, strict=True):
            if value is not None:
                by_place.setdefault(place, []).append(value)
    places = sorted(by_place)
    values = [by_place[place] for place in places]
    low, high = [min(each) for each in values], [max(each) for each in values]
    return Series(label, [fmean(each) for each in values], places, low, high, runs[0].color)
