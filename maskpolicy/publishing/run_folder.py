"""What a run's folder holds: a table of names and meanings, and of what writes each.

To have `maskpolicy run` write something new, add a function and its line in `CONTENTS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from maskpolicy.config.experiment import Experiment
from maskpolicy.graph.outcomes import Outcome
from maskpolicy.leaderboard.board import Board
from maskpolicy.leaderboard.build import build_leaderboard
from maskpolicy.leaderboard.page import save_page
from maskpolicy.leaderboard.report import save_report
from maskpolicy.results import collecting, predictions, run_record
from maskpolicy.results.cell import Run
from maskpolicy.stages import Graph
from maskpolicy.store.artifacts import Store
from maskpolicy.types import Json


@dataclass
class FinishedRun:
    """All that a run's folder is written from."""

    experiment: Experiment
    graph: Graph
    outcomes: Mapping[str, Outcome]  # by the stage's key
    store: Store
    folder: Path
    how: dict[str, Json] = field(default_factory=dict)  # seconds and jobs, for run.json

    @cached_property
    def run(self) -> Run:
        """The results of its cells, which are written when they are first asked for."""
        return collecting.collect(
            self.experiment, self.graph, self.outcomes, self.store, self.folder
        )

    @cached_property
    def board(self) -> Board:
        """The leaderboard of the results."""
        return build_leaderboard([self.run])


@dataclass(frozen=True)
class Content:
    """Files of one name or pattern in a run's folder."""

    name: str
    holds: str
    write: Callable[[FinishedRun], object] | None = None  # None: another part of a run writes it


def write(finished: FinishedRun) -> None:
    """Write all that a finished run leaves in its folder; raises StoreError."""
    for content in CONTENTS:
        if content.write is not None:
            content.write(finished)


def _record(finished: FinishedRun) -> None:
    name, outcomes = finished.experiment.name, finished.outcomes.values()
    run_record.save(finished.folder, name, finished.how, outcomes, finished.store)


def _questions(finished: FinishedRun) -> None:
    predictions.save_questions(finished.graph.cells, finished.store, finished.folder)


def _page(finished: FinishedRun) -> None:
    save_page(finished.board, finished.folder / "leaderboard.html")


CONTENTS = (  # in the order in which they are written
    Content("experiment.yaml", "the experiment as it was written: `written.save`, at the start"),
    Content("logs/", "what a tracker recorded of each training"),
    Content("results/*.json", "each cell's score and settings", lambda finished: finished.run),
    Content("predictions/*.jsonl", "each cell's answers, as `collecting.collect` found them"),
    Content("steps/*.json", "the cells of models that `checkpoint_steps` names, likewise"),
    Content("experiment.json", "all settings, resolved, likewise"),
    Content(
        "leaderboard.*",
        "the leaderboard as JSON, Markdown, CSV and LaTeX",
        lambda finished: save_report(finished.board, finished.folder),
    ),
    Content("run.json", "what differs from run to run: seconds, versions, hardware", _record),
    Content("questions/*.jsonl", "the ids and sources of each task's test examples", _questions),
    Content("analyses/", "what `analyze` found, which the page shows"),
    Content("leaderboard.html", "the page, made of all of the above", _page),
)
