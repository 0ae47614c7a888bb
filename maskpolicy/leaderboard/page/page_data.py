"""What the page knows of rows and runs: a glossary, cells, experiments and run.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from maskpolicy.core import metrics
from maskpolicy.core.errors import ConfigError
from maskpolicy.core.files import relative_paths
from maskpolicy.core.keys import plain
from maskpolicy.core.types import Denoising, Json
from maskpolicy.experiment import verbatim
from maskpolicy.experiment.definition import NONE
from maskpolicy.leaderboard import description, joined_rows, report
from maskpolicy.leaderboard.board import Board, BoardRow, masked
from maskpolicy.leaderboard.page.embedded_analyses import EmbeddedAnalysis, MaskedPassage
from maskpolicy.leaderboard.results import run_folder
from maskpolicy.leaderboard.results.cell import Run
from maskpolicy.plugins.discovery import plugin_of_run

_NO_STAGE = "No intermediate stage: the model is fine-tuned as it is."


@dataclass(frozen=True)
class PolicyEntry:
    """One row in the glossary."""

    label: str
    sentence: str  # "" if neither the policy's plugin nor the run has it
    settings: tuple[tuple[str, str], ...]
    counts: tuple[str, ...]  # as board.MASKED; () if nothing was counted
    passage: MaskedPassage | None  # one that was masked in training, if the viewer was run


def entries(board: Board, analyses: Sequence[EmbeddedAnalysis]) -> list[PolicyEntry]:
    """Return an entry for each row, in the order of the board."""
    passages: dict[tuple[str, str], MaskedPassage] = {}  # by the run's name and the row's label
    for analysis in analyses:
        for passage in analysis.passages:
            passages.setdefault((analysis.folder, passage.label), passage)
    return [
        PolicyEntry(
            label=row.label,
            sentence=_sentence(row.config["name"], _places(row)),
            settings=tuple(_settings(board, row).items()),
            counts=masked(row),
            passage=next((passages[place] for place in _places(row) if place in passages), None),
        )
        for row in board.rows
    ]


def _places(row: BoardRow) -> list[tuple[str, str]]:
    """Return the folders of a row's results, each with the row's label there."""
    return list(dict.fromkeys((str(cell.folder), cell.policy) for cell in row.cells.values()))


def _sentence(policy: str, places: Sequence[tuple[str, str]]) -> str:
    """Return the first sentence of a policy's docstring; of a plugin that is not loaded, as run."""
    if policy == NONE:
        return _NO_STAGE
    try:
        return plugin_of_run("policy", policy).summary
    except ConfigError:  # a plugin whose file this command was not given
        known = [run_folder.policy_summaries(Path(folder)) for folder, _ in places]
        return next((each[policy] for each in known if policy in each), "")


def _settings(board: Board, row: BoardRow) -> dict[str, str]:
    """Return a row's settings besides the usual objective, and what it has for its trainings."""
    settings = dict(row.config)
    if row.label != settings.pop("name"):
        settings = {"policy": row.config["name"], **settings}
    settings |= row.own_settings
    chosen = {description.choice(cell) for cell in row.cells.values()} - {""}
    settings |= {description.CHOICE: "; ".join(sorted(chosen))} if chosen else {}
    found = relative_paths(settings, board.runs[0].folder)
    return {key.replace("_", " "): _plain(value) for key, value in _unusual(found).items()}


def _unusual(settings: Mapping[str, Json]) -> dict[str, Json]:
    """Return the settings without those of the usual objective, and without unset ones."""
    usual = asdict(Denoising())
    return {
        key: value
        for key, value in settings.items()
        if value is not None and not (key in usual and value == usual[key])
    }


def _plain(value: Json) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{key} {_plain(each)}" for key, each in _unusual(value).items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value).lower() if isinstance(value, bool) else str(value)


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
        except ConfigError:  # maskpolicy did not write it
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
    record = run_folder.read_record(run.folder)
    if record is None:
        return {"name": run.name, "stages": {}}
    try:
        found = {
            "name": run.name,
            **{key: record[key] for key in _KEPT},
            "system": record["machine"]["system"],
            "stages": {
                stage["key"][:KEY]: [round(stage["seconds"], 2), stage.get("made_with")]
                for stage in record["stages"]
            },
        }
        return plain(found)
    except (AttributeError, ConfigError, KeyError, TypeError):
        raise run_folder.foreign_record(run.folder) from None


KEY = 12  # digits of a stage's key


def cells(board: Board) -> Json:
    """Return the page's data block "board": tasks, rows with their cells, stages and units.

    Cells refer to stages by index, so that each stage is listed once.
    """
    labels = [row.label for row in board.rows]
    home, folders = board.runs[0].folder, [run.folder for run in board.runs]
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
                "cells": [_cell(row, task, folders, stages) for task in board.tasks],
            }
            for row in board.rows
        ],
        "stages": [[names[key], key[:KEY]] for key in stages],
        "unit": board.unit,
        "paired": board.given is None or board.given.paired,
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


def _cell(row: BoardRow, task: str, folders: Sequence[Path], stages: Mapping[str, int]) -> Json:
    score = row.scores[task]
    own = {seed: cell for (t, seed), cell in row.cells.items() if t == task}
    firsts = (next(iter(cells.values())) for cells in (row.cells, own or row.cells))
    usual, mine = map(joined_rows.row_config, firsts)
    differing = {key: mine.get(key) for key in usual | mine if mine.get(key) != usual.get(key)}
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
        **({"own": relative_paths(differing, folders[0])} if differing else {}),
    }
