"""Write the results and predictions of a finished graph to the folder of its run."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

from maskpolicy import keys
from maskpolicy.config.budgets import TRAININGS
from maskpolicy.config.experiment import (
    HUB,
    WORLD,
    Experiment,
    resolved,
)
from maskpolicy.files import json_bytes, read_json, remove_parts, write_file
from maskpolicy.formats import sources
from maskpolicy.graph.nodes import Stage, topological
from maskpolicy.graph.outcomes import Outcome
from maskpolicy.majority import FILE
from maskpolicy.metrics import Total
from maskpolicy.plugins.discovery import find_plugin
from maskpolicy.results import run_notes, tuned_cells
from maskpolicy.results.cell import (
    EARLY,
    LEFT_OUT,
    SETTINGS,
    STEP,
    Result,
    Run,
    cell_name,
    dropped,
    early_cell_name,
    read_result,
    result_bytes,
)
from maskpolicy.results.cell_config import candidate_config, cell_config
from maskpolicy.stages import Graph
from maskpolicy.stages.evaluation import AUDIT
from maskpolicy.stages.params import (
    AnnotateParams,
    CondenseParams,
    FeedbackParams,
    GeneralParams,
    IntermediateParams,
)
from maskpolicy.stages.preparation import SHARD_KINDS
from maskpolicy.store.artifacts import Store
from maskpolicy.types import Json
from maskpolicy.world.settings import RECORD

log = logging.getLogger(__name__)
_CODE = (  # stages whose version a result records
    *(*TRAININGS, "intermediate-part", "intermediate-feedback"),
    *("annotate", "count", "condense", "evaluate"),
)


def collect(
    experiment: Experiment,
    graph: Graph,
    outcomes: Mapping[str, Outcome],
    store: Store,
    out: Path,
) -> Run:
    """Write results/, predictions/ and experiment.json below `out`, each file atomically.

    Cells of checkpoints of the intermediate stage go to steps/, which leaderboards do not read.
    Cells without an outcome were left out by --only: their file in `out` is reused if it comes
    from the same stages. Other files in results/ stay, but `cell.read_run` ignores them. Raises
    StoreError if `out` cannot be written.
    """
    find = partial(_result, experiment, graph, outcomes, store)
    ended: dict[str, Result | None] = {}
    for cell, stage in graph.cells.items():
        name = cell_name(*cell)
        path = out / "results" / f"{name}.json"
        ended[name] = result = _written(find(cell, stage, path), path)
        if result is not None and stage.key in outcomes:
            _save_answers(result, stage, store, out / "predictions" / f"{name}.jsonl")
    before: dict[str, Result | None] = {}
    for (policy, task, seed, step), stage in graph.early.items():
        name = early_cell_name(policy, task, seed, step)
        path = out / EARLY / f"{name}.json"
        before[name] = _written(find((policy, task, seed), stage, path, {STEP: step}), path)
    _remove_broken(out)
    about = {"name": experiment.name, **resolved(experiment)}
    left_out = [name for name, result in [*ended.items(), *before.items()] if result is None]
    write_file(out / SETTINGS, json_bytes(about | ({LEFT_OUT: left_out} if left_out else {})))
    run = Run(
        folder=out,
        results=tuple(filter(None, ended.values())),
        baseline=experiment.baseline,
        policies=tuple(block.label for block in experiment.policies),
        tasks=tuple(block.label for block in experiment.tasks),
        early=tuple(filter(None, before.values())),
        experiment=experiment.name,
        left_out=tuple(name for name in left_out if name in ended),
        dropped=dropped(out),
    )
    if run.dropped:
        log.info("%s: %s; --out keeps runs apart", out, run_notes.dropped(run))
    return run


def _written(result: Result | None, path: Path) -> Result | None:
    """Write a result, if there is one, to its file, and return it."""
    if result is not None:
        write_file(path, result_bytes(result))
    return result


def _save_answers(result: Result, stage: Stage, store: Store, path: Path) -> None:
    """Write the predictions of a cell, or remove them if it failed."""
    answers = None if result.error is not None else store.file(stage.key, "predictions.jsonl")
    if answers is None:
        path.unlink(missing_ok=True)
    else:
        write_file(path, answers.read_bytes())


def _result(
    experiment: Experiment,
    graph: Graph,
    outcomes: Mapping[str, Outcome],
    store: Store,
    cell: tuple[str, str, int],
    stage: Stage,
    path: Path,
    more: Mapping[str, Json] = MappingProxyType({}),
) -> Result | None:
    """Return the result of a cell; if it was not run, from the file at `path`.

    None if that file does not exist or comes from other stages. `more` is added to its config.
    """
    policy = next(block for block in experiment.policies if block.label == cell[0])
    task = next(block for block in experiment.tasks if block.label == cell[1])
    taken = tuned_cells.chosen(experiment, policy, task, stage, store)
    behind = topological([stage]) if taken is None else [*topological([taken.stage]), stage]
    config = cell_config(experiment, policy if taken is None else taken.block, task, cell[2])
    result = Result(
        *cell,
        sources.facts(find_plugin("task", task.name)).group,
        {**(config if taken is None else candidate_config(policy, config)), **more},
        {each.name: each.key for each in behind if each.kind not in SHARD_KINDS},
        tuning=None if taken is None else taken.tuning,
        origin=_origin(task.data),
        code=_code(behind),
        majority=_about_task(graph.majority.get(task.label), FILE, store),
        audit=_about_task(graph.audits.get(task.label), AUDIT, store),
        shrunk=_shrunk(behind, store),
    )
    outcome = outcomes.get(stage.key)
    if outcome is None:
        known = read_result(path) if path.is_file() else None
        if known is None or known.metrics is None or known.stages.get(stage.name) != stage.key:
            return None
        return replace(
            result,
            metrics=known.metrics,
            work=known.work,
            tuning=result.tuning or known.tuning,
            majority=result.majority or known.majority,
            audit=result.audit or known.audit,
            shrunk=result.shrunk or known.shrunk,
        )
    # verified again, and fetched again from a bucket: other commands may prune local copies
    found = None if outcome.artifact is None else store.file(stage.key, "result.json")
    metrics = None if found is None else Total.from_json(read_json(found))
    error = outcome.error or (None if metrics is not None else "its artifact is not in the store")
    return replace(result, metrics=metrics, work=_work(behind, store), error=error)


def _about_task(stage: Stage | None, file: str, store: Store) -> Json:
    """Return the output of a task's majority or audit stage, or None if it is not in the store."""
    path = None if stage is None else store.file(stage.key, file)
    return None if path is None else read_json(path)


def _origin(data: str) -> str:
    """Return world, hub or files; a folder written by `maskpolicy world` counts as world."""
    if data in (WORLD, HUB):
        return data
    written = any((folder / RECORD).is_file() for folder in (Path(data), Path(data).parent))
    return WORLD if written else "files"


def _code(behind: Sequence[Stage]) -> Json:
    """Return the versions of the stages in _CODE, and a digest of the policy's dependencies.

    These are the user's code and the result of the policy's `depends`, e.g. a pipeline's version.
    """
    found = {stage.kind: stage for stage in behind if stage.kind in _CODE}
    rests_on: dict[str, Json] = {"code": None, "depends": None}
    below = {each.key for one in behind if one.kind == "general" for each in topological([one])}
    for stage in found.values():
        if isinstance(stage.params, GeneralParams):
            if code := stage.params.code or stage.params.member_code:
                rests_on["general"] = code
        elif stage.key in below:
            continue  # what the policy of the general stage rests on; all rows share it
        elif isinstance(stage.params, IntermediateParams):
            rests_on["code"] = stage.params.code
        elif isinstance(stage.params, AnnotateParams | CondenseParams | FeedbackParams):
            rests_on["depends"] = stage.params.depends
    versions = {kind: stage.version for kind, stage in found.items()}
    return {
        "versions": versions,
        "policy": keys.digest(rests_on) if any(rests_on.values()) else None,
    }


def _work(behind: Iterable[Stage], store: Store) -> Json:
    """Return work.json of the intermediate stage, or None without such a stage."""
    for stage in behind:
        if stage.kind == "intermediate" and (path := store.file(stage.key, "work.json")):
            return read_json(path)
    return None


def _shrunk(behind: Iterable[Stage], store: Store) -> Json:
    """Return how far micro-batches shrank in the trainings in which memory ran out, or None."""
    trainings = (stage for stage in behind if stage.kind in (*TRAININGS, "intermediate-part"))
    records = {each.name: store.recall(each.key) or {"record": {}} for each in trainings}
    facts = {name: known["record"].get("facts") or {} for name, known in records.items()}
    return {name: each["shrunk"] for name, each in facts.items() if "shrunk" in each} or None


def _remove_broken(out: Path) -> None:
    """Remove what processes that have ended left half written in a run's folder."""
    for folder in (out, *(path for path in out.iterdir() if path.is_dir())):
        remove_parts(folder)
