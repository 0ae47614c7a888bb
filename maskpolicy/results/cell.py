"""One small JSON for each (policy, task, seed), read back by anyone; `collecting` writes them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from maskpolicy.config.experiment import with_present_names
from maskpolicy.config.verbatim import WRITTEN
from maskpolicy.errors import DataError
from maskpolicy.files import json_bytes, read_json, slug
from maskpolicy.metrics import Total
from maskpolicy.types import Json

VERSION = 1
SETTINGS = "experiment.json"  # all settings, resolved
MARKS = (SETTINGS, WRITTEN, "results", "predictions", "logs")  # of a run, an unfinished one too
LEFT_OUT = "left_out"  # the key of SETTINGS that names cells which --only left out
EARLY, STEP = "steps", "intermediate_step"  # the folder of early cells, and their key of a config


@dataclass(frozen=True)
class Result:
    """What became of one cell; nothing in it changes from run to run."""

    policy: str
    task: str
    seed: int
    group: str  # of the task
    config: Json  # all that the cell depends on, resolved
    stages: Mapping[str, str]  # name -> key of every stage behind the cell
    metrics: Total | None = None  # what its metric gave; None: failed
    work: Json = None  # of the intermediate stage: passages, hidden_tokens, ..
    error: str | None = None  # one line
    origin: str = ""  # of the questions: world, hub or files; "": as config.task.data says
    code: Json = None  # {"versions": of the trainings' code, "policy": digest}; None: not known
    majority: Json = None  # {"rule", "score" (0..1), ..}: the best guess without a model
    audit: Json = None  # of the task's data: test examples in train, texts that were cut
    folder: Path = Path()  # of its run, once results of several runs are joined; not in its file

    def __hash__(self) -> int:
        """Return a hash of what names the cell."""
        return hash((self.policy, self.task, self.seed, self.folder))

    @property
    def percent(self) -> float | None:
        """The score in percent; None: the cell failed."""
        return None if self.metrics is None else 100 * self.metrics.score

    def stage_key(self, name: str) -> str | None:
        """Return the key of the stage of this name (kind and label), or of this kind, if any."""
        found = (key for known, key in self.stages.items() if name in (known, known.split(" ")[0]))
        return next(found, None)

    @property
    def answers(self) -> Path:
        """The file of its predictions, in the folder of its run."""
        name = cell_name(self.policy, self.task, self.seed)
        return self.folder / "predictions" / f"{name}.jsonl"

    def to_json(self) -> dict[str, Json]:
        """Return what its file holds besides the version."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        del values["folder"]
        return {**values, "metrics": self.metrics and self.metrics.to_json()}


@dataclass(frozen=True)
class Run:
    """The results of one folder, with the order that its experiment gave rows and columns."""

    folder: Path
    results: tuple[Result, ...]
    baseline: str
    policies: tuple[str, ...] = field(default=())
    tasks: tuple[str, ...] = field(default=())
    early: tuple[Result, ...] = field(default=())  # of models kept before the stage's end
    experiment: str = ""  # its name, "" where it is not known
    left_out: tuple[str, ...] = ()  # cells that --only left out, by the names of their files
    dropped: tuple[str, ...] = ()  # cells in the folder that its experiment no longer has

    @property
    def name(self) -> str:
        """The folder's name, which tells rows of joined runs apart."""
        return self.folder.resolve().name

    @property
    def rows(self) -> list[str]:
        """The labels of all rows in their order, those too that only results know."""
        return list(dict.fromkeys([*self.policies, *(one.policy for one in self.results)]))

    @property
    def columns(self) -> list[str]:
        """The labels of all columns, likewise."""
        return list(dict.fromkeys([*self.tasks, *(one.task for one in self.results)]))


def read_run(folder: Path) -> Run:
    """Return the results of a folder that `maskpolicy run` wrote; DataError names a bad file."""
    paths = _current(folder, "results")
    if not paths:
        raise DataError(f"{folder}: no results/*.json: name a folder that `maskpolicy run` wrote")
    results = tuple(read_result(path) for path in paths)
    early = tuple(read_result(path) for path in _current(folder, EARLY))
    if any(not isinstance(result.config.get(STEP), int) for result in early):
        raise DataError(f"{folder / EARLY}: a file tells no {STEP}: remove it and run again")
    config = read_settings(folder)
    try:
        return Run(
            folder,
            results,
            config.get("baseline", "none"),
            tuple(block["label"] for block in config.get("policies", ())),
            tuple(block["label"] for block in config.get("tasks", ())),
            early,
            str(config.get("name", "")),
            tuple(name for name in config.get(LEFT_OUT, ()) if name in (_cells(folder) or ())),
            dropped(folder),
        )
    except (AttributeError, KeyError, TypeError):
        raise _foreign(folder) from None


def read_settings(folder: Path) -> dict[str, Json]:
    """Return a run's resolved settings, {} where its folder holds none; raises DataError."""
    path = folder / SETTINGS
    found = read_json(path) if path.is_file() else {}
    if not isinstance(found, dict):
        raise _foreign(folder)
    return with_present_names(found)


def plugin_files(folder: Path) -> list[str]:
    """Return the plugin files that a run's folder names: for messages alone, never to be loaded."""
    named = read_settings(folder).get("plugins") or []
    return [name for name in named if isinstance(name, str)] if isinstance(named, list) else []


def dropped(folder: Path) -> tuple[str, ...]:
    """Return the names of results that a folder holds of cells that its experiment lacks now."""
    known = _cells(folder)
    names = [path.stem for path in sorted((folder / "results").glob("*.json"))]
    return tuple(name for name in names if known is not None and name not in known)


def _current(folder: Path, kind: str) -> list[Path]:
    """Return the files of results that count: of cells of the experiment that were not left out."""
    known = _cells(folder, early=kind == EARLY)
    left_out = read_settings(folder).get(LEFT_OUT, ())
    return [
        path
        for path in sorted((folder / kind).glob("*.json"))
        if known is None or (path.stem in known and path.stem not in left_out)
    ]


def _cells(folder: Path, early: bool = False) -> set[str] | None:
    """Return the names of the cells of a folder's experiment; None where it does not say.

    `early` are those of models that were kept before the end of the intermediate stage.
    """
    config = read_settings(folder)
    if not {"policies", "tasks", "seeds"} <= config.keys():
        return None
    try:
        cells = [
            (row["label"], task["label"], seed)
            for row in config["policies"]
            for task in config["tasks"]
            for seed in config["seeds"]
        ]
        if early:
            steps = config.get("checkpoint_steps", ())
            return {early_cell_name(*cell, step) for cell in cells for step in steps}
        return {cell_name(*cell) for cell in cells}
    except (KeyError, TypeError):
        raise _foreign(folder) from None


def _foreign(folder: Path) -> DataError:
    return DataError(f"{folder / SETTINGS}: not written by `maskpolicy run`: remove it")


def cell_name(policy: str, task: str, seed: int) -> str:
    """Return the name, without ending, of a cell's files."""
    return f"{slug(policy)}--{slug(task)}--{seed}"


def early_cell_name(policy: str, task: str, seed: int, step: int) -> str:
    """Return the name, without ending, of the file of a cell whose model was kept at a step."""
    return f"{cell_name(policy, task, seed)}--{step}"


def fingerprint(folder: Path) -> str:
    """Return a digest of the results of a run, to tell whether they have changed."""
    files = _current(folder, "results")
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]


def read_result(path: Path) -> Result:
    """Return the result that a file holds; raises DataError."""
    values = read_json(path)
    try:
        if values.pop("version") != VERSION:
            raise DataError(f"{path}: of another version of maskpolicy: run its experiment again")
        metrics = values.pop("metrics", None)
        values["config"] = with_present_names(values["config"])
        result = Result(**values, metrics=None if metrics is None else Total.from_json(metrics))
        if result.metrics is None and result.error is None:
            raise KeyError("metrics")
        if result.majority is not None:
            _ = (result.majority["rule"], float(result.majority["score"]))
        return result
    except (AttributeError, KeyError, TypeError, ValueError):
        raise DataError(f"{path}: not a result that `maskpolicy run` wrote: remove it") from None


def result_bytes(result: Result) -> bytes:
    """Return the file of a result."""
    return json_bytes({"version": VERSION, **result.to_json()})
