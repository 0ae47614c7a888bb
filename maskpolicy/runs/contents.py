"""The contents of a run's folder: names, meanings, and the functions that write them.

To make `maskpolicy run` write something new, add a function and its line in `CONTENTS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from maskpolicy.config.experiment import NONE, Experiment
from maskpolicy.graph.outcomes import Outcome
from maskpolicy.leaderboard.board import Board
from maskpolicy.leaderboard.build import build_leaderboard
from maskpolicy.leaderboard.page import save_page
from maskpolicy.leaderboard.report import save_report
from maskpolicy.plugins.discovery import find_plugin
from maskpolicy.results import collecting, predictions, run_record
from maskpolicy.results.cell import Run
from maskpolicy.results.run_folder_state import writing
from maskpolicy.runs import masked_passages
from maskpolicy.stages import Graph
from maskpolicy.store.artifacts import Store
from maskpolicy.types import Json

PAGE = "leaderboard.html"


@dataclass
class FinishedRun:
    """A finished run, from which its folder is written."""

    experiment: Experiment
    graph: Graph
    outcomes: Mapping[str, Outcome]  # by the stage's key
    store: Store
    folder: Path
    timing: dict[str, Json] = field(default_factory=dict)  # seconds and jobs, for run.json

    @cached_property
    def run(self) -> Run:
        """The results of its cells; the first access writes them."""
        return collecting.collect(
            self.experiment, self.graph, self.outcomes, self.store, self.folder
        )

    @cached_property
    def board(self) -> Board:
        """The leaderboard of the results."""
        return build_leaderboard([self.run])


@dataclass(frozen=True)
class Content:
    """The files of one name or pattern in a run's folder."""

    name: str
    holds: str
    write: Callable[[FinishedRun], object] | None = None  # None: written elsewhere


def write(finished: FinishedRun) -> None:
    """Write the folder of a finished run; raises StoreError."""
    with writing(finished.folder):
        for content in CONTENTS:
            if content.write is not None:
                content.write(finished)


def _record(finished: FinishedRun) -> None:
    name, outcomes = finished.experiment.name, finished.outcomes.values()
    rows = (block.name for block in finished.experiment.policies if block.name != NONE)
    run_record.save(
        finished.folder,
        name,
        finished.timing,
        outcomes,
        finished.store,
        finished.run.results,
        {policy: find_plugin("policy", policy).summary for policy in rows},
    )


CONTENTS = (  # in the order in which they are written
    Content("experiment.yaml", "the experiment file, saved at the start by `verbatim.save`"),
    Content("logs/", "the log of a tracker for each training"),
    Content("results/*.json", "each cell's score and settings", lambda finished: finished.run),
    Content("predictions/*.jsonl", "each cell's predictions, written with the results"),
    Content("steps/*.json", "results of `checkpoint_steps`, written with the results"),
    Content("experiment.json", "all resolved settings, written with the results"),
    Content(
        "leaderboard.*",
        "the leaderboard as JSON, Markdown, CSV and LaTeX",
        lambda finished: save_report(finished.board, finished.folder),
    ),
    Content("run.json", "seconds, versions and hardware of this run", _record),
    Content(
        "questions/*.jsonl",
        "the ids and sources of each task's test examples",
        lambda finished: predictions.save_questions(
            finished.graph.cells, finished.store, finished.folder
        ),
    ),
    Content(
        "analyses/",
        "the findings of `analyze`, which the page shows, and what was masked in a few passages",
        lambda finished: masked_passages.save(finished.run, finished.store),
    ),
    Content(
        PAGE,
        "the page, made from all of the above",
        lambda finished: save_page(finished.board, finished.folder / PAGE),
    ),
)
