"""The details of each cell for the page: seeds, intermediate runs, test, settings and stages."""

from __future__ import annotations

from collections.abc import Sequence

from maskpolicy import metrics
from maskpolicy.files import relative_paths
from maskpolicy.leaderboard import description, joined_rows, report
from maskpolicy.leaderboard.board import Board, BoardRow
from maskpolicy.results.cell import Run
from maskpolicy.types import Json

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
        "title": description.column(board, task).title,
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
