"""The files in a run's folder and the functions that write them.

To let `maskpolicy run` write another file, add a function and a line in `CONTENTS`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from maskpolicy import analyses
from maskpolicy.analyses import cache
from maskpolicy.analyses.masked_sample import IntermediateStage, intermediate_stages
from maskpolicy.core.errors import MaskpolicyError
from maskpolicy.core.files import json_or_none
from maskpolicy.core.types import Json
from maskpolicy.experiment import verbatim
from maskpolicy.experiment.definition import NONE, Experiment
from maskpolicy.experiment.verbatim import WrittenExperiment
from maskpolicy.leaderboard.board import Board
from maskpolicy.leaderboard.build import build_leaderboard
from maskpolicy.leaderboard.page import save_page
from maskpolicy.leaderboard.report import save_report
from maskpolicy.leaderboard.results import collecting, predictions, run_folder, verification
from maskpolicy.leaderboard.results.cell import Run, fingerprint
from maskpolicy.leaderboard.results.run_folder import writing
from maskpolicy.pipeline.graph.events import Outcome
from maskpolicy.pipeline.stages import Graph
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.plugins.discovery import find_plugin, instance

PAGE = "leaderboard.html"
VIEWER = "viewer"  # the analysis of what each row masked in a few passages
MOST = 4  # passages of a row
ROOM = 64  # passages of all rows, to keep the page of a sweep small
NEAR = 256_000_000  # bytes that may be downloaded from a bucket
_log = logging.getLogger(__name__)


@dataclass
class FinishedRun:
    """A finished run, as it is written to its folder."""

    experiment: Experiment
    graph: Graph
    outcomes: Mapping[str, Outcome]  # by the stage's key
    store: Store
    folder: Path
    written: WrittenExperiment
    timing: dict[str, Json] = field(default_factory=dict)  # seconds and jobs, for run.json

    @cached_property
    def run(self) -> Run:
        """The results of its cells, which the first access writes."""
        return collecting.collect(
            self.experiment, self.graph, self.outcomes, self.store, self.folder
        )

    @cached_property
    def board(self) -> Board:
        """The leaderboard of the results."""
        return build_leaderboard([self.run])


def write(finished: FinishedRun) -> None:
    """Write the folder of a finished run; raises StoreError."""
    with writing(finished.folder):
        for save in CONTENTS.values():
            if save is not None:
                save(finished)


def _record(finished: FinishedRun) -> None:
    rows = (block.name for block in finished.experiment.policies if block.name != NONE)
    run_folder.save_record(
        finished.folder,
        finished.experiment.name,
        finished.timing,
        finished.outcomes.values(),
        finished.store,
        finished.run.tuned,
        {policy: find_plugin("policy", policy).summary for policy in rows},
    )


def save_passages(run: Run, store: Store) -> None:
    """Write analyses/viewer of a run, unless it is already there for these results.

    This takes seconds: it trains nothing, reads few passages and draws no picture. A failure is a
    warning, because a page without passages is better than none.
    """
    place = run.folder / analyses.FOLDER / VIEWER
    results = fingerprint(run.folder)
    record = json_or_none(place / f"{VIEWER}.json")
    if isinstance(record, dict) and record.get("results") == results:
        return
    try:
        rows = intermediate_stages([run], store)[0]
        if not rows or not _is_near(rows, store):
            return
        fields = {"passages": max(1, min(MOST, ROOM // len(rows)))}
        viewer: Any = instance("analysis", VIEWER, fields)
        findings = cache.analyse(VIEWER, viewer, [run], store)
        if findings.rows:
            analyses.save(findings, VIEWER, place, results, pictures=False)
    except MaskpolicyError as error:
        _log.warning("the page does not show what each policy masked: %s", error)


def _is_near(rows: list[IntermediateStage], store: Store) -> bool:
    """Return whether the rows' inputs are on this machine, or small enough to download."""
    read = {key for row in rows for key in row.read_by_policy.values()}
    manifests = (store.peek(key) or {"files": ()} for key in read if not store.path(key).exists())
    return bool(sum(int(entry["size"]) for each in manifests for entry in each["files"]) <= NEAR)


CONTENTS: Mapping[str, Callable[[FinishedRun], object] | None] = {
    # saved at the start if there are no results yet
    verbatim.WRITTEN: lambda finished: verbatim.save(finished.written, finished.folder),
    "logs/": None,  # of a tracker, for each training
    "results/*.json": lambda finished: finished.run,
    "predictions/*.jsonl": None,  # these three are written with the results
    "steps/*.json": None,
    "experiment.json": None,
    verification.STAGES: lambda finished: verification.save(finished.run, finished.store),
    "run.json": _record,
    "leaderboard.*": lambda finished: save_report(finished.board, finished.folder),
    "questions/*.jsonl": lambda finished: predictions.save_questions(
        finished.graph.cells, finished.store, finished.folder
    ),
    "analyses/": lambda finished: save_passages(finished.run, finished.store),
    PAGE: lambda finished: save_page(finished.board, finished.folder / PAGE),
}
"""Patterns of names in a run's folder and what writes them, in this order; None: another line."""
