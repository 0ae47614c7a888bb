"""One small JSON for each (policy, task, seed): made from a finished graph, read back by anyone."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from maskpolicy import hardware, keys, learned, plugins, sources
from maskpolicy.config import WORLD, Experiment, PolicyBlock, TaskBlock, resolved
from maskpolicy.errors import DataError, StoreError
from maskpolicy.experiment import resolved_policy, resolved_task
from maskpolicy.graph import Outcome, Stage, topological
from maskpolicy.store import Store
from maskpolicy.types import Json

VERSION = 1
TRAININGS = ("general", "fit", "intermediate", "finetune")
EARLY, STEP = "steps", "intermediate_step"  # the folder of early cells, and their key of a config
_PART = ".part"
Cells = Mapping[tuple[str, str, int], Stage]
"""The stage of kind "evaluate" of each (policy label, task label, seed)."""


@dataclass(frozen=True)
class Result:
    """What became of one cell; nothing in it changes from run to run."""

    policy: str
    task: str
    seed: int
    group: str  # of the task
    config: Json  # all that the cell depends on, resolved
    stages: Mapping[str, str]  # name -> key of every stage behind the cell
    metrics: Json = None  # {"metric", "version", "score" (0..1), "n", ..}; None: failed
    work: Json = None  # of the intermediate stage: passages, hidden_tokens, ..
    error: str | None = None  # one line


@dataclass(frozen=True)
class Run:
    """The results of one folder, with the order that its experiment gave rows and columns."""

    folder: Path
    results: tuple[Result, ...]
    baseline: str
    policies: tuple[str, ...] = field(default=())
    tasks: tuple[str, ...] = field(default=())
    early: tuple[Result, ...] = field(default=())  # of models kept before the stage's end

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


def collect(
    experiment: Experiment,
    cells: Cells,
    outcomes: Mapping[str, Outcome],
    store: Store,
    out: Path,
    early: Mapping[tuple[str, str, int, int], Stage] | None = None,
) -> Run:
    """Write results/, predictions/ and experiment.json below `out`, each file atomically.

    `early` are the cells of models that were kept before the end of the intermediate stage, by step
    too: they go to steps/, which no leaderboard reads. Files of cells that the experiment no longer
    has are removed. Raises StoreError when `out` cannot be written.
    """
    policies = {block.label: block for block in experiment.policies}
    tasks = {block.label: block for block in experiment.tasks}
    wanted: set[Path] = set()

    def outcome(stage: Stage) -> Outcome:
        return outcomes.get(stage.key) or Outcome(stage, error="not run")

    def keep(path: Path, data: bytes) -> None:
        write(path, data)
        wanted.add(path)

    results, before = [], []
    for (policy, task, seed), stage in cells.items():
        found = outcome(stage)
        result = _result(experiment, policies[policy], tasks[task], seed, found, store)
        name = file_name(policy, task, seed)
        keep(out / "results" / f"{name}.json", _document(result))
        if found.artifact is not None and result.error is None:
            text = (found.artifact.path / "predictions.jsonl").read_bytes()
            keep(out / "predictions" / f"{name}.jsonl", text)
        results.append(result)
    for (policy, task, seed, step), stage in (early or {}).items():
        result = _result(experiment, policies[policy], tasks[task], seed, outcome(stage), store)
        result = replace(result, config={**result.config, STEP: step})
        keep(out / EARLY / f"{file_name(policy, task, seed)}--{step}.json", _document(result))
        before.append(result)
    _remove_others(out, wanted)
    write(out / "experiment.json", _bytes({"name": experiment.name, **resolved(experiment)}))
    rows, columns = tuple(policies), tuple(tasks)
    return Run(out, tuple(results), experiment.baseline, rows, columns, tuple(before))


def read(folder: Path) -> Run:
    """Return the results of a folder that `maskpolicy run` wrote; DataError names a bad file."""
    paths = sorted((folder / "results").glob("*.json"))
    if not paths:
        raise DataError(f"{folder}: no results/*.json: name a folder that `maskpolicy run` wrote")
    results = tuple(_read(path) for path in paths)
    early = tuple(_read(path) for path in sorted((folder / EARLY).glob("*.json")))
    if any(not isinstance(result.config.get(STEP), int) for result in early):
        raise DataError(f"{folder / EARLY}: a file tells no {STEP}: remove it and run again")
    about = folder / "experiment.json"
    config = parsed(about) if about.is_file() else {}
    try:
        return Run(
            folder,
            results,
            config.get("baseline", "none"),
            tuple(block["label"] for block in config.get("policies", ())),
            tuple(block["label"] for block in config.get("tasks", ())),
            early,
        )
    except (AttributeError, KeyError, TypeError):
        raise DataError(f"{about}: not written by `maskpolicy run`: remove it") from None


def file_name(policy: str, task: str, seed: int) -> str:
    """Return the name, without ending, of a cell's files."""
    return f"{slug(policy)}--{slug(task)}--{seed}"


def claim(folder: Path) -> None:
    """Make a folder for results before hours of work, not after; raises StoreError."""
    if folder.exists() and not folder.is_dir():
        raise StoreError(f"{folder}: is a file, not a folder: choose another --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"{folder}: cannot be made: {error.strerror}; choose another --out"
        ) from error
    if not os.access(folder, os.W_OK):
        raise StoreError(f"{folder}: cannot be written: choose another --out")


def write(path: Path, data: bytes, option: str = "--out") -> None:
    """Write a file whole or not at all, flushed to disk; StoreError names the `option` it is of."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}{_PART}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        reason = error.strerror or type(error).__name__
        raise StoreError(f"{path}: cannot be written: {reason}; choose another {option}") from error


def cell_config(experiment: Experiment, policy: PolicyBlock, task: TaskBlock, seed: int) -> Json:
    """Return every setting that one cell depends on, and none besides.

    So a `none` cell holds nothing of the intermediate stage, and is equal in runs that differ in
    it.
    """
    specs: dict[str, Any] = {
        name: hardware.resolve(getattr(experiment, name)) for name in TRAININGS
    }
    whole = resolved(replace(experiment, **specs))
    for name in TRAININGS:
        del whole[name]["checkpoint_every"]  # changes no result
    config = {
        "policy": _unlabelled(resolved_policy(policy)),
        "task": _unlabelled(resolved_task(task)),
        "model": whole["model"],
        "finetune": whole["finetune"],
    }
    if experiment.model.is_scratch:
        config["general"] = whole["general"]
    if WORLD in (task.data, experiment.corpus.name) or experiment.model.is_scratch:
        config["world"] = whole["world"]
    if policy.has_stage:
        names = ["corpus", "intermediate", "intermediate_seeds"]
        if learned.is_learned(policy):
            names.append("fit")
            tasks = learned.trained_on(experiment, policy)
            config["train_on"] = [_unlabelled(resolved_task(one)) for one in tasks]
        config |= {name: whole[name] for name in names}
        run = experiment.seeds.index(seed) % experiment.intermediate_seeds
        config["intermediate_seed"] = run
    return json.loads(keys.canonical(config))  # in the order in which it is read back


def _result(
    experiment: Experiment,
    policy: PolicyBlock,
    task: TaskBlock,
    seed: int,
    outcome: Outcome,
    store: Store,
) -> Result:
    behind = topological([outcome.stage])
    metrics = None
    if outcome.artifact is not None:
        metrics = parsed(outcome.artifact.path / "result.json")
    return Result(
        policy.label,
        task.label,
        seed,
        sources.facts(plugins.find("task", task.name)).group,
        cell_config(experiment, policy, task, seed),
        {stage.name: stage.key for stage in behind},
        metrics,
        _work(behind, store),
        outcome.error or (None if metrics is not None else "its artifact is not in the store"),
    )


def _work(behind: Iterable[Stage], store: Store) -> Json:
    """Return what the intermediate stage recorded of its work, if there is such a stage."""
    for stage in behind:
        path = store.path(stage.key) / "work.json"
        if stage.kind == "intermediate" and store.peek(stage.key) and path.is_file():
            return parsed(path)
    return None


def _read(path: Path) -> Result:
    values = parsed(path)
    try:
        if values.pop("version") != VERSION:
            raise DataError(f"{path}: of another version of maskpolicy: run its experiment again")
        result = Result(**values)
        if result.metrics is not None:
            _ = (result.metrics["metric"], float(result.metrics["score"]), result.metrics["n"])
        elif result.error is None:
            raise KeyError("metrics")
        return result
    except (AttributeError, KeyError, TypeError, ValueError):
        raise DataError(f"{path}: not a result that `maskpolicy run` wrote: remove it") from None


def parsed(path: Path) -> Json:
    """Return what a JSON file holds; raises DataError that names it."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise DataError(f"{path}: not JSON: {error}; remove it and run again") from error


def _document(result: Result) -> bytes:
    return _bytes({"version": VERSION, **asdict(result)})


def _bytes(value: Json) -> bytes:
    text = json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True, allow_nan=False)
    return f"{text}\n".encode()


def _remove_others(out: Path, wanted: set[Path]) -> None:
    """Remove the files of cells that are gone, and what a killed process was writing."""
    for folder, ending in (("results", "json"), ("predictions", "jsonl"), (EARLY, "json")):
        for path in (out / folder).glob(f"*--*--*.{ending}"):
            if path not in wanted:
                path.unlink(missing_ok=True)
        for path in (out / folder).glob(f".*{_PART}"):
            writer = path.name.removesuffix(_PART).rpartition(".")[2]
            if writer.isdecimal() and not _is_alive(int(writer)):
                path.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _unlabelled(block: Mapping[str, Json]) -> dict[str, Json]:
    return {key: value for key, value in block.items() if key != "label"}


def slug(label: str) -> str:
    """Return a label as part of a file name; one that had to be changed gets a digest."""
    made = re.sub(r"[^A-Za-z0-9._=-]+", "-", label)[:80]
    if made == label and "--" not in label and not label.startswith("."):
        return label
    return f"{made.strip('.-')}-{hashlib.sha256(label.encode()).hexdigest()[:8]}"
