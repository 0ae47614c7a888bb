"""What a run leaves behind: results and predictions of its cells, made from a finished graph."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from maskpolicy import hardware, keys, learned, plugins, sources
from maskpolicy.comparable import TRAININGS
from maskpolicy.config import HUB, WORLD, Experiment, PolicyBlock, TaskBlock, resolved
from maskpolicy.experiment import resolved_policy, resolved_task
from maskpolicy.graph import Outcome, Stage, topological
from maskpolicy.majority import FILE
from maskpolicy.results import (
    EARLY,
    PART,
    SETTINGS,
    STEP,
    Result,
    Run,
    document,
    file_name,
    json_file,
    parsed,
    write,
)
from maskpolicy.store import Store
from maskpolicy.types import Json

log = logging.getLogger(__name__)
_CODE = (*TRAININGS, "annotate", "evaluate")  # stages whose version a result tells
WRITTEN = "world.json"  # beside the tasks of a written world
Cells = Mapping[tuple[str, str, int], Stage]
"""The stage of kind "evaluate" of each (policy label, task label, seed)."""


def collect(
    experiment: Experiment,
    cells: Cells,
    outcomes: Mapping[str, Outcome],
    store: Store,
    out: Path,
    early: Mapping[tuple[str, str, int, int], Stage] | None = None,
    majority: Mapping[str, Stage] | None = None,
) -> Run:
    """Write results/, predictions/ and experiment.json below `out`, each file atomically.

    `early` are the cells of models that were kept before the end of the intermediate stage, by step
    too: they go to steps/, which no leaderboard reads. `majority` are the stages that guess each
    task's answers: every cell of a task repeats what they give. Files of cells that the experiment
    no longer has are removed. Raises StoreError when `out` cannot be written.
    """
    policies = {block.label: block for block in experiment.policies}
    tasks = {block.label: block for block in experiment.tasks}
    guessed = {task: _guessed(outcomes.get(stage.key)) for task, stage in (majority or {}).items()}

    def result(policy: str, task: str, seed: int, stage: Stage) -> Result:
        outcome = outcomes.get(stage.key) or Outcome(stage, error="not run")
        made = _result(experiment, policies[policy], tasks[task], seed, outcome, store)
        return replace(made, majority=guessed.get(task))

    ended, before, written = [], [], set()
    for cell, stage in cells.items():
        ended.append(result(*cell, stage))
        written |= _save(ended[-1], out, outcomes.get(stage.key))
    for (policy, task, seed, step), stage in (early or {}).items():
        made = result(policy, task, seed, stage)
        before.append(replace(made, config={**made.config, STEP: step}))
        written.add(path := out / EARLY / f"{file_name(policy, task, seed)}--{step}.json")
        write(path, document(before[-1]))
    _remove_others(out, written)
    write(out / SETTINGS, json_file({"name": experiment.name, **resolved(experiment)}))
    return Run(
        out,
        tuple(ended),
        experiment.baseline,
        tuple(policies),
        tuple(tasks),
        tuple(before),
        experiment.name,
    )


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
        config["intermediate_seed"] = experiment.run_of(seed)
    return json.loads(keys.canonical(config))  # in the order in which it is read back


def _save(result: Result, out: Path, outcome: Outcome | None) -> set[Path]:
    """Write a cell's result and, unless it failed, its predictions; return their paths."""
    name = file_name(result.policy, result.task, result.seed)
    write(about := out / "results" / f"{name}.json", document(result))
    if result.error is not None or outcome is None or outcome.artifact is None:
        return {about}
    text = (outcome.artifact.path / "predictions.jsonl").read_bytes()
    write(answers := out / "predictions" / f"{name}.jsonl", text)
    return {about, answers}


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
        _origin(task.data),
        _code(behind),
    )


def _origin(data: str) -> str:
    """Return world, hub or files; a folder that the world was written to holds the world."""
    if data in (WORLD, HUB):
        return data
    written = any((folder / WRITTEN).is_file() for folder in (Path(data), Path(data).parent))
    return WORLD if written else "files"


def _code(behind: Iterable[Stage]) -> Json:
    """Return the versions of what trains and answers, and a digest of a user's policy."""
    found = {stage.kind: stage for stage in behind if stage.kind in _CODE}
    stage = found.get("intermediate")
    files = stage.params.get("code") if stage is not None else None
    versions = {kind: stage.version for kind, stage in found.items()}
    return {"versions": versions, "policy": keys.digest(files) if files else None}


def _guessed(outcome: Outcome | None) -> Json:
    """Return what a stage that guesses answers has found, None where it failed."""
    if outcome is None or outcome.artifact is None:
        return None
    return parsed(outcome.artifact.path / FILE)


def _work(behind: Iterable[Stage], store: Store) -> Json:
    """Return what the intermediate stage recorded of its work, if there is such a stage."""
    for stage in behind:
        path = store.path(stage.key) / "work.json"
        if stage.kind == "intermediate" and store.peek(stage.key) and path.is_file():
            return parsed(path)
    return None


def _remove_others(out: Path, wanted: set[Path]) -> None:
    """Remove the files of cells that are gone, and what a killed process was writing."""
    gone = 0
    for folder, ending in (("results", "json"), ("predictions", "jsonl"), (EARLY, "json")):
        for path in (out / folder).glob(f"*--*--*.{ending}"):
            if path not in wanted:
                path.unlink(missing_ok=True)
                gone += folder == "results"
        for path in (out / folder).glob(f".*{PART}"):
            writer = path.name.removesuffix(PART).rpartition(".")[2]
            if writer.isdecimal() and not _is_alive(int(writer)):
                path.unlink(missing_ok=True)
    if gone:
        log.info(
            f"{out}: removed {gone} results of an earlier run, which this one does not have; "
            "--out keeps runs apart"
        )


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
