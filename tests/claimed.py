"""Folders of results for claims, and verdicts on single claims."""

import json
from pathlib import Path
from typing import Any

import folders

from maskpolicy.analyses.paper_claims.contrast_evidence import Evidences
from maskpolicy.analyses.paper_claims.contrasts import Claim, Contrast, RowDifference
from maskpolicy.analyses.paper_claims.verdicts import RUNS, Verdict, decide
from maskpolicy.leaderboard.results.cell import Run, read_run
from maskpolicy.pipeline.store.artifacts import Store

BETTER = RowDifference("it", "good", "none", ("triviaqa",))
ROWS = {"none": 0.1, "good": 0.8, "middle": 0.45, "like none": 0.1}


def run(
    folder: Path,
    rows: dict[str, float] = ROWS,
    tasks: tuple[str, ...] = ("triviaqa", "zsre"),
    name: str = "it",
    **more: Any,
) -> Run:
    folders.write(folder, rows, tasks, **{"seeds": RUNS, "n": 240, **more})
    path = folder / "experiment.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "name": name}))
    return read_run(folder)


def verdict(*contrasts: Contrast, runs: list[Run], store: Store) -> Verdict:
    claim = Claim("F0", "A sentence.", "a paper", contrasts, "all")
    return decide([claim], Evidences(runs, store))[0]
