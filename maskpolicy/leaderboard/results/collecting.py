"""Write the results and predictions of a finished graph to the folder of its run."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from operator import getitem
from pathlib import Path
from types import MappingProxyType
from typing import Any

from maskpolicy.core import keys
from maskpolicy.core.errors import DataError
from maskpolicy.core.files import json_bytes, read_json, write_file
from maskpolicy.core.metrics import Total
from maskpolicy.core.types import Json
from maskpolicy.data.majority import FILE
from maskpolicy.data.taskfiles import sources
from maskpolicy.experiment import learned_policies
from maskpolicy.experiment.budgets import TRAININGS, settled
from maskpolicy.experiment.definition import (
    CONFIG_FILE,
    HUB,
    WORLD,
    Experiment,
    ModelBlock,
    PolicyBlock,
    TaskBlock,
    resolved,
    resolved_policy,
    resolved_task,
    untuned,
)
from maskpolicy.experiment.model_and_corpus import OF_WORLD
from maskpolicy.experiment.policy_blocks import compares_corpora
from maskpolicy.experiment.sweeps import DEV
from maskpolicy.experiment.world_settings import RECORD
from maskpolicy.leaderboard.results.cell import (
    EARLY,
    LEFT_OUT,
    SETTINGS,
    STEP,
    TOKENS,
    Result,
    Run,
    cell_name,
    dropped,
    read_result,
    result_bytes,
)
from maskpolicy.models import scratch
from maskpolicy.pipeline.graph import nodes
from maskpolicy.pipeline.graph.events import Outcome
from maskpolicy.pipeline.graph.nodes import Stage, topological
from maskpolicy.pipeline.stages import Graph
from maskpolicy.pipeline.stages.evaluation import AUDIT
from maskpolicy.pipeline.stages.model_training import WORK
from maskpolicy.pipeline.stages.params import (
    FinetuneParams,
    FitParams,
    GeneralParams,
    IntermediateParams,
    PolicyParams,
    ReaderParams,
)
from maskpolicy.pipeline.stages.preparation import SHARD_KINDS, SIZE_FACT
from maskpolicy.pipeline.stages.training_text import STEPS_FACT
from maskpolicy.pipeline.stages.tuned_rows import chosen_by, is_by_task, tunes_only_finetuning
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.plugins.discovery import find_plugin
from maskpolicy.plugins.registry import ROW_TRAININGS

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
    from the same stages, and so is that of a cell that failed. Other files in results/ stay, but
    `cell.read_run` ignores them. Raises StoreError if `out` cannot be written.
    """
    find = partial(_result, experiment, graph, outcomes, store)
    ended: dict[str, Result | None] = {}
    for cell, stage in graph.cells.items():
        name = cell_name(*cell)
        path = out / "results" / f"{name}.json"
        ended[name] = result = _written(find(cell, stage, path), path)
        outcome = outcomes.get(stage.key)
        if result and outcome and (outcome.error is None or result.metrics is None):
            _save_answers(result, stage, store, out / "predictions" / f"{name}.jsonl")
    before: dict[str, Result | None] = {}
    for (policy, task, seed, step), stage in graph.early.items():
        name = cell_name(policy, task, seed, step)
        path = out / EARLY / f"{name}.json"
        before[name] = _written(find((policy, task, seed), stage, path, {STEP: step}), path)
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
        dropped=dropped(out, filter(None, ended.values())),
    )
    if run.dropped:
        log.info("%s: %s; --out keeps runs apart", out, run.about_dropped)
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
    """Return the result of a cell; if it was not run, or failed, from the file at `path`.

    None if it was not run, and that file is damaged, missing or from other stages. `more` is added
    to its config.
    """
    policy = next(block for block in experiment.policies if block.label == cell[0])
    task = next(block for block in experiment.tasks if block.label == cell[1])
    block, behind, tuning = _chosen(experiment, policy, task, stage, store)
    general: Any = next((each.params for each in behind if each.kind == "general"), None)
    config = cell_config(experiment, block, task, cell[2], policy, general and general.config)
    result = Result(
        *cell,
        sources.facts(find_plugin("task", task.name)).group,
        {**config, **more},
        {each.name: each.key for each in behind if each.kind not in SHARD_KINDS},
        tuning=tuning,
        origin=_origin(task.data),
        code=_code(behind),
        majority=_output(graph.majority.get(task.label), FILE, store),
        audit=_output(graph.audits.get(task.label), AUDIT, store),
        shrunk=_shrunk(behind, store),
        weights=_weights(behind, store),
        text=_text(behind, store),
        folder=path.parent.parent,
    )
    outcome = outcomes.get(stage.key)
    if outcome is None or outcome.error is not None:
        known = None
        try:
            known = read_result(path) if path.is_file() else None
        except DataError as damage:
            log.warning("%s", damage)
        if known and known.metrics is not None and known.stages.get(stage.name) == stage.key:
            if known.tuning and not tuning:  # the store has lost which candidate was chosen
                return known
            names = ("majority", "audit", "shrunk", "weights", "text")
            kept: Json = {name: getattr(result, name) or getattr(known, name) for name in names}
            return replace(result, metrics=known.metrics, work=known.work, **kept)
    if outcome is None:
        return None
    # verified again, and fetched again from a bucket: other commands may prune local copies
    found = None if outcome.artifact is None else store.file(stage.key, "result.json")
    metrics = None if found is None else Total.from_json(read_json(found))
    error = outcome.error or (None if metrics is not None else "its artifact is not in the store")
    trained = next((each for each in behind if each.kind == "intermediate"), None)
    work = _output(trained, WORK, store)
    return replace(result, metrics=metrics, work=work, error=error)


def _output(stage: Stage | None, file: str, store: Store) -> Json:
    """Return a JSON file of a stage, or None without the stage or if the store lacks it."""
    path = None if stage is None else store.file(stage.key, file)
    return None if path is None else read_json(path)


def _origin(data: str) -> str:
    """Return world, hub or files; a folder written by `maskpolicy world` counts as world."""
    if data in (WORLD, HUB):
        return data
    written = any((folder / RECORD).is_file() for folder in (Path(data), Path(data).parent))
    return WORLD if written else "files"


def _code(behind: Sequence[Stage]) -> Json:
    """Return the versions of the stages in _CODE, and a digest of the policies' dependencies.

    These are the user's code and the results of `depends`, e.g. a pipeline's version, of the row's
    policy, or of its members, and of the policy of the general stage.
    """
    general = {each.key for one in behind if one.kind == "general" for each in topological([one])}
    versions: dict[str, int] = {}
    rests_on: dict[str, Json] = {"code": None, "depends": None}
    depends: dict[str, list[Json]] = {"depends": [], "general depends": []}
    for stage in (each for each in behind if each.kind in _CODE):
        params, versions[stage.kind] = stage.params, stage.version
        if isinstance(params, PolicyParams):
            own, of_members = params.code, params.member_code
            code = [own, of_members] if own and of_members else own or of_members
            if isinstance(params, GeneralParams) and code:
                rests_on["general"] = code
            elif isinstance(params, IntermediateParams):
                rests_on["code"] = code
            found = depends["general depends" if stage.key in general else "depends"]
            found += [params.depends] if params.depends and params.depends not in found else []
            if isinstance(params, ReaderParams) and stage.key not in general:
                rests_on["depends"] = params.depends
    for name, values in depends.items():
        rests_on |= {name: values[0] if len(values) == 1 else values} if values else {}
    return {
        "versions": versions,
        "policy": keys.digest(rests_on) if any(rests_on.values()) else None,
    }


def _weights(behind: Iterable[Stage], store: Store) -> str | None:
    """Return a digest of the general model's weights, or None if the store has no record of it."""
    base = next((stage for stage in behind if stage.kind in ("general", "pretrained")), None)
    known = None if base is None else store.recall(base.key)
    if known is None:
        return None
    files = {one["path"]: one["sha256"] for one in known["files"]}
    return keys.digest({name: files[name] for name in files if name.endswith(".safetensors")})


def _text(behind: Iterable[Stage], store: Store) -> Json:
    """Return the size of the intermediate stage's corpus, or None without a record."""
    corpus = next((each.inputs["corpus"] for each in behind if each.kind == "intermediate"), None)
    return None if corpus is None else _facts(corpus, store).get(SIZE_FACT)


def _shrunk(behind: Iterable[Stage], store: Store) -> Json:
    """Return how far micro-batches shrank in the trainings in which memory ran out, or None."""
    trainings = (stage for stage in behind if stage.kind in (*TRAININGS, "intermediate-part"))
    facts = {each.name: _facts(each, store) for each in trainings}
    return {name: own["shrunk"] for name, own in facts.items() if "shrunk" in own} or None


def _facts(stage: Stage, store: Store) -> dict[str, Json]:
    """Return what a computed stage told of itself; {} without a record."""
    return (store.recall(stage.key) or {"record": {}})["record"].get("facts") or {}


def _chosen(
    experiment: Experiment, block: PolicyBlock, task: TaskBlock, stage: Stage, store: Store
) -> tuple[PolicyBlock, list[Stage], Json]:
    """Return the row or its candidate that a cell comes from, the stages behind it, and `tuning`.

    `tuning` is None for a row that is not tuned, and before there is a choice. Else it has the
    values that were tried and their scores on dev, the index of the chosen ones and the label of
    their stages, the tasks and seeds that the scores are means over, and the cost of all
    candidates.
    """
    choice = stage.inputs[nodes.CHOICE] if block.candidates else None
    choice_made = _output(choice, nodes.FILE, store)
    if choice is None or choice_made is None:
        return block, topological([stage]), None
    index = int(choice_made["candidate"])
    shares_rest = tunes_only_finetuning(block)
    kinds = ("finetune",) if shares_rest else (*ROW_TRAININGS, "finetune-classifier")
    tuning = {
        "on": DEV,
        "by": "task" if is_by_task(block, task) else "row",
        "tried": [tuned_values(each, block.tune) for each in block.candidates],
        "scores": choice_made["scores"],
        "chosen": index,
        "label": block.candidates[index].label,
        "tasks": [each.label for each in chosen_by(block, task, experiment.tasks)],
        "seeds": list(experiment.seeds),
        "cost": _cost(choice, kinds, store),
    }
    evaluation = stage.inputs[choice_made["input"]]
    return block.candidates[index], [*topological([evaluation]), stage], tuning


def tuned_values(block: PolicyBlock, tune: Mapping[str, Any]) -> dict[str, Json]:
    """Return the values of the tuned keys in a candidate."""
    settings = keys.plain({**block.fields, **vars(block.denoising), **block.trainings})
    return {key: reduce(getitem, key.split("."), settings) for key in tune if key != "on"}


def _cost(choice: Stage, kinds: Collection[str], store: Store) -> dict[str, Json]:
    """Return trainings and steps behind a choice by kind, and tokens of the intermediate ones.

    All candidates count, and all tasks and seeds that the choice rests on.
    """
    found: dict[str, Counter[str]] = {}
    for stage in topological([choice]):
        if stage.kind == "evaluate":
            found.setdefault(stage.kind, Counter()).update(evaluations=1)
        params = stage.params
        if stage.kind in kinds and isinstance(
            params, FitParams | IntermediateParams | FinetuneParams
        ):
            known = found.setdefault(stage.kind, Counter())
            steps = _steps_taken(_facts(stage, store), params.spec.steps)
            known.update(trainings=1, steps=steps)
            work = _output(stage, WORK, store) or {}
            known.update({name: work[name] for name in TOKENS if name in work})
    return {kind: dict(about) for kind, about in found.items()}


def _steps_taken(facts: Json, steps: int) -> int:
    """Return the steps of a training by its facts, or by what a fit tells; else the budget's."""
    told = facts.get("training")
    told = {**facts, **(told if isinstance(told, dict) else {})}
    found = told.get(STEPS_FACT, told.get("batches"))
    return found if isinstance(found, int) else steps


def _model(model: ModelBlock, block: Json, config: Json) -> Json:
    """Return the block of a model with its configuration instead of the places of its files."""
    if not model.name.endswith(CONFIG_FILE):
        return block
    places = {key: block[key] and Path(block[key]).name for key in ("name", "tokenizer")}
    return {**block, **places, "config": config or scratch.config_of(model)}


def cell_config(
    experiment: Experiment,
    policy: PolicyBlock,
    task: TaskBlock,
    seed: int,
    row: PolicyBlock | None = None,
    config_of_model: Json = None,
) -> Json:
    """Return exactly the settings that one cell depends on.

    A `none` cell thus has no settings of the intermediate stage, and is equal in runs that differ
    only in that stage. A candidate has the budgets and tuned keys that its `row` states. A model
    that was built from a file has the configuration `config_of_model`; None: that of the file now.
    """
    row = row or policy
    specs: dict[str, Any] = {"general": experiment.general}
    specs |= {name: experiment.budget(name, policy, task) for name in ROW_TRAININGS}
    specs = {name: settled(spec, name, experiment.resources) for name, spec in specs.items()}
    corpus = experiment.corpus_of(policy)
    whole = resolved(replace(experiment, corpus=corpus, policies=(), tasks=(), **specs))
    for name in TRAININGS:
        del whole[name]["checkpoint_every"]  # does not affect results
    config = {
        "policy": _unlabelled(resolved_policy(policy)),
        "task": _unlabelled(resolved_task(task)),
        "model": _model(experiment.model, whole["model"], config_of_model),
        "finetune": whole["finetune"],
    }
    if row.trainings:
        config["trainings"] = untuned(row.trainings, row.tune)
    if row.tune:
        config["tune"] = row.tune
    sources = [task.data, corpus.name]
    if experiment.model.is_scratch:
        sources.append((experiment.general_text or OF_WORLD).name)
        config["general"] = whole["general"]
        config["general_seeds"] = experiment.general_seeds
        config["general_seed"] = experiment.general_of(experiment.run_of(seed))
    if policy.has_stage:
        names = ["corpus", "intermediate", "intermediate_seeds"]
        if compares_corpora(policy) and experiment.contrast_corpus is not None:
            names.append("contrast_corpus")
            sources.append(experiment.contrast_corpus.name)
        if learned_policies.is_learned(policy):
            names.append("fit")
            tasks = learned_policies.trained_on(experiment, policy)
            config["train_on"] = [_unlabelled(resolved_task(one)) for one in tasks]
            sources += [one.data for one in tasks]
        config |= {name: whole[name] for name in names}
        config["intermediate_seed"] = experiment.run_of(seed)
    if WORLD in sources:
        config["world"] = whole["world"]
    return json.loads(keys.canonical(config))  # the same types and order as read from a file


def _unlabelled(block: Mapping[str, Json]) -> dict[str, Json]:
    return {key: value for key, value in block.items() if key != "label"}
