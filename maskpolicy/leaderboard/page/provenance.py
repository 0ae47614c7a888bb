"""The page's record of each run: its experiment, and from its run.json seconds and versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from maskpolicy.core import metrics
from maskpolicy.core.errors import ConfigError
from maskpolicy.core.files import relative_paths
from maskpolicy.core.types import Json
from maskpolicy.experiment import verbatim
from maskpolicy.leaderboard import joined_rows, report
from maskpolicy.leaderboard.board import Board, BoardRow
from maskpolicy.leaderboard.results import run_record
from maskpolicy.leaderboard.results.cell import Run

_KEPT = ("finished", "seconds", "hardware", "versions", "commit")


@dataclass(frozen=True)
class ShownExperiment:
    """The experiment of a run as its author wrote it, without absolute paths."""

    run: str
    text: str  # YAML
    keys: tuple[str, ...]  # of the command line


def experiments(runs: Sequence[Run]) -> list[ShownExperiment]:
    """Return the experiments of the runs that kept theirs; runs of one experiment share it."""
    found: dict[tuple[str, ...], ShownExperiment] = {}
    for run in runs:
        path = run.folder / verbatim.WRITTEN
        try:
            if path.is_symlink() or not verbatim.is_saved(run.folder):
                continue
            written = verbatim.read_experiment(path)
        except ConfigError:  # a file of another origin
            continue
        text, *keys = relative_paths([written.experiment.strip(), *written.keys], run.folder)
        found.setdefault((text, *keys), ShownExperiment(run.name, text, tuple(keys)))
    return list(found.values())


def run_records(runs: Sequence[Run]) -> Json:
    """Return the page's data block "record", one dict for each run; without run.json, its name.

    The host name is omitted, because pages are shared. Raises DataError for a broken file.
    """
    return [_of_run(run) for run in runs]


def _of_run(run: Run) -> Json:
    record = run_record.read(run.folder)
    if record is None:
        return {"name": run.name, "stages": {}}
    try:
        return {
            "name": run.name,
            **{key: record[key] for key in _KEPT},
            "system": record["machine"]["system"],
            "stages": {
                stage["key"][:KEY]: [round(stage["seconds"], 2), stage.get("made_with")]
                for stage in record["stages"]
            },
        }
    except (AttributeError, KeyError, TypeError):
        raise run_record.foreign(run.folder) from None


KEY = 12  # digits of a stage's key


def cells(board: Board, runs: Sequence[Run]) -> Json:
    """Return the page's data block "board": tasks, rows with their cells, and stages.

    Cells refer to stages by index, so that each stage is listed once.
    """
    labels = [row.label for row in board.rows]
    home = runs[0].folder
    stages: dict[str, int] = {}
    names: dict[str, str] = {}
    for row in board.rows:
        for cell in row.cells.values():
            for name, key in sorted(cell.stages.items()):
                stages.setdefault(key, len(stages))
                names[key] = name
    return {
        "tasks": [relative_paths(_task(board, task), home) for task in board.tasks],
        "rows": [
            {
                "label": row.label,
                "against": labels.index(row.against),
                "config": relative_paths(
                    joined_rows.row_config(next(iter(row.cells.values()))), home
                ),
                "work": row.work,
                "cells": [_cell(row, task, runs, stages) for task in board.tasks],
            }
            for row in board.rows
        ],
        "stages": [[names[key], key[:KEY]] for key in stages],
    }


def _task(board: Board, task: str) -> Json:
    first = next(cell for row in board.rows for (t, _), cell in row.cells.items() if t == task)
    score = next((score for row in board.rows if (score := row.scores[task])), None)
    return {
        "label": task,
        "title": board.column(task).title,
        "metric": score and board.metric(task),
        "n": score and score.n,
        "config": first.config["task"],
    }


def _cell(row: BoardRow, task: str, runs: Sequence[Run], stages: dict[str, int]) -> Json:
    score = row.scores[task]
    own = {seed: cell for (t, seed), cell in row.cells.items() if t == task}
    folders = [run.folder for run in runs]
    return {
        "seeds": {
            str(seed): {
                "score": None if score is None else score.seeds.get(seed),
                "run": cell.config.get("intermediate_seed"),
                "error": relative_paths(cell.error, cell.folder),
                "from": folders.index(cell.folder),
                "stages": [stages[key] for _, key in sorted(cell.stages.items())],
            }
            for seed, cell in sorted(own.items())
        },
        "parts": {metrics.title(name): v for name, v in score.parts.items()} if score else {},
        "delta": score and score.delta,
        "test": score and report.comparison_json(score),
    }
