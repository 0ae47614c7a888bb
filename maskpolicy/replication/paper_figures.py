"""The figures of both papers: which analysis draws each, of which experiment's runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from maskpolicy.findings import Figure
from maskpolicy.replication.contrast_evidence import Evidences
from maskpolicy.types import Json


@dataclass(frozen=True)
class PaperFigure:
    """A figure of a paper: the panels of an analysis that have `panels` in their titles."""

    title: str
    experiment: str
    analysis: str
    panels: str = ""
    settings: Mapping[str, Json] = field(default_factory=dict)


_EVERY = {"every": True}  # all intermediate runs of a row
FIGURES = (
    PaperFigure("Ye et al. 2021: learning efficiency", "efficiency", "efficiency"),
    PaperFigure("Ye et al. 2021: learned policies on other tasks", "closed-book", "transfer"),
    PaperFigure(
        "Ye et al. 2021: parts of speech of masked words", "closed-book", "pos", settings=_EVERY
    ),
    PaperFigure(
        "Ye et al. 2021: frequency of masked tokens", "closed-book", "frequency", settings=_EVERY
    ),
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
            plots = table.plots if table else ()
            kept = tuple(plot for plot in plots if figure.panels in getattr(plot, "title", ""))
            if kept:
                given = figure.settings.items()
                settings = "".join(f" {key}={json.dumps(value)}" for key, value in given)
                about = f"maskpolicy analyze {figure.analysis} {run.name}{settings}"
                found.append(Figure(figure.title, about, kept))
    return found
