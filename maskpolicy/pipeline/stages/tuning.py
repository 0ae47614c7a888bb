"""Stages of tuned rows: choose a candidate by its scores on dev, and take its cell."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

from maskpolicy.core.files import read_json
from maskpolicy.pipeline.graph import picking
from maskpolicy.pipeline.graph.nodes import stage
from maskpolicy.pipeline.graph.stage_run import StageRun
from maskpolicy.pipeline.stages.evaluation import PREDICTIONS, RESULT
from maskpolicy.pipeline.stages.params import ChooseParams, TakeParams


def score_name(candidate: int, task: int, seed: int) -> str:
    """Return the name of the input of the stage "choose" with one score on dev."""
    return f"{candidate:03d}-{task:03d}-{seed:03d}"


@stage("choose")
def choose(params: ChooseParams, inputs: Mapping[str, Path], out: Path, run: StageRun) -> None:
    """Choose the candidate with the best mean score on dev; the first one if several are best.

    The score of a task is the mean over seeds, and that of a candidate the mean over tasks.
    """
    scores: list[float] = []
    by_task = []
    for candidate in range(params.candidates):
        tasks = [
            fmean(
                float(read_json(inputs[score_name(candidate, task, seed)] / RESULT)["score"])
                for seed in range(params.seeds)
            )
            for task in range(params.tasks)
        ]
        by_task.append(tasks)
        scores.append(fmean(tasks))
    best = scores.index(max(scores))
    name = f"{picking.OPTION}{best:03d}"
    found = {"input": name, "candidate": best, "scores": scores, "by_task": by_task}
    (out / picking.FILE).write_text(json.dumps(found, indent=1, sort_keys=True), encoding="utf-8")


@stage("take", picks=True)
def take(params: TakeParams, inputs: Mapping[str, Path], out: Path, run: StageRun) -> None:
    """Take the answers and the score of the candidate that was chosen."""
    name = read_json(inputs[picking.CHOICE] / picking.FILE)["input"]
    for file in (RESULT, PREDICTIONS):
        shutil.copyfile(inputs[name] / file, out / file)
