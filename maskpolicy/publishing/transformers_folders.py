"""Export checkpoints of finished runs as Transformers folders with model cards."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

from maskpolicy.errors import ConfigError, DataError, StoreError, unknown
from maskpolicy.graph.nodes import params_of
from maskpolicy.keys import to_json
from maskpolicy.leaderboard import description, tuning_notes
from maskpolicy.models.loading import is_relative, refuse_code
from maskpolicy.publishing import cards
from maskpolicy.publishing.cards import CardScore, ModelHistory
from maskpolicy.publishing.own_text import architecture, place
from maskpolicy.results.cell import Result, Run
from maskpolicy.stages.params import (
    CorpusParams,
    FinetuneParams,
    IntermediateParams,
    PretrainedParams,
)
from maskpolicy.store.artifacts import Store, available
from maskpolicy.types import Json

_KINDS = ("tokenizer", "pretrained", "intermediate", "finetune")  # stages described in a card


def export_model(
    run: Run,
    policy: str,
    store: Store,
    out: Path,
    task: str | None = None,
    seed: int | None = None,
    *,
    command: str,
    name: str = "",
) -> None:
    """Write the model of a row to the folder `out`: pre-trained, or fine-tuned on `task`.

    `command` is shown in the card, with the model's `name` on the Hub if it is to have one. `seed`
    selects a fine-tuning seed, and with it the intermediate run. Raises ConfigError if the run does
    not have the row, task or seed, and StoreError if the store does not have the model any more.
    """
    cells = _cells(run, policy, task, seed)
    cell = cells[0]
    keys = {kind: cell.stage_key(kind) for kind in _KINDS}
    key = keys["finetune" if task is not None else "intermediate"]
    if key is None:
        raise ConfigError(
            f"{run.folder}: {policy} has no intermediate stage: name a task to export it fine-tuned"
        )
    if task is not None:
        _check_kept(store, key, f"{run.folder}: the model of {policy} fine-tuned on {task}")
    model = available(store, key, f"the model of {policy}")
    if keys["tokenizer"] is None:
        raise DataError(f"{run.folder}: {policy} has no tokenizer: run its experiment again")
    tokenizer = available(store, keys["tokenizer"], f"the tokenizer of {run.folder}")
    if keys["intermediate"] is not None:
        available(store, keys["intermediate"], f"the intermediate stage of {policy}")
    found = {kind: store.peek(key) for kind, key in keys.items() if key is not None}
    stage = found.get("intermediate")
    if stage is not None:
        found["corpus"] = store.recall(stage["record"]["inputs"]["corpus"])  # for the card alone
    about = replace(
        _about(run, cells, found, out, task, command),
        **architecture(model.path, cells[0].config["model"]["kind"]),
        is_relative=is_relative(str(model.path)),
        name=name or out.name,
    )
    for part in (tokenizer.path, model.path):
        refuse_code(str(part))  # a store that came with the run may contain any file
    record = _record(about, cell, model.key)
    place(out, (tokenizer.path, model.path), cards.card(about), record, about.limits[0])


def _check_kept(store: Store, key: str, what: str) -> None:
    """Raise StoreError if a fine-tuned model was dropped after its evaluation."""
    if store.peek(key) is None and store.recall(key) is not None:
        raise StoreError(
            f"{what} was not kept: add keep_models: [finetune] to the experiment and run it again"
        )


def _record(about: ModelHistory, cell: Result, key: str) -> Json:
    """Return the content of maskpolicy.json for the model with an artifact's key."""
    return {
        "version": 1,
        "stage": key,
        "stages": dict(cell.stages),
        "intermediate": about.intermediate and to_json(about.intermediate),
        "corpus": about.corpus and to_json(about.corpus),
        **({"mix": [to_json(each) for each in about.mix]} if about.mix else {}),
        "finetune": about.finetune and to_json(about.finetune),
        "scores": [asdict(score) for score in about.scores],
        "work": cell.work,
    }


def _cells(run: Run, policy: str, task: str | None, seed: int | None) -> list[Result]:
    """Return the cell of a task, or without a task all cells that share the model."""
    own = [result for result in run.results if result.policy == policy]
    if not own:
        labels = [result.policy for result in run.results]
        raise ConfigError(f"{run.folder}: {unknown('row', policy, labels)}")
    if task is not None:
        own = [result for result in own if result.task == task]
        if not own:
            tasks = [result.task for result in run.results]
            raise ConfigError(f"{run.folder}: {unknown('task', task, tasks)}")
    chosen = min(result.seed for result in own) if seed is None else seed
    first = [result for result in own if result.seed == chosen]
    if not first:
        seeds = ", ".join(str(n) for n in sorted({result.seed for result in own}))
        raise ConfigError(f"{run.folder}: {policy} has no seed {chosen} (it has: {seeds})")
    if task is not None:
        return first
    same = [result for result in own if _model(result) == _model(first[0])]
    return sorted(same, key=lambda result: result.seed != chosen)


def _model(result: Result) -> tuple[int | None, int]:
    """Return the numbers of the intermediate run and the general model of a cell."""
    config = result.config
    return config.get("intermediate_seed"), config.get("general_seed", 0)


def _about(
    run: Run,
    cells: list[Result],
    manifests: Mapping[str, Json],
    out: Path,
    task: str | None,
    command: str,
) -> ModelHistory:
    config = cells[0].config
    stage, tuned = manifests.get("intermediate"), manifests.get("finetune")
    corpus = manifests.get("corpus") if stage else None  # of the intermediate stage, not general
    read = params_of(corpus["record"], CorpusParams) if corpus else None
    finetune = None
    if task is not None and tuned is not None:
        finetune = params_of(tuned["record"], FinetuneParams)
    return ModelHistory(
        name=out.name,
        model=config["model"]["name"],
        revision=_commit(manifests, config),
        command=command,
        manifest=tuned if task is not None else stage,
        kind=config["model"]["kind"],
        head=finetune.head if finetune else None,
        policy=config["policy"]["name"] if stage else None,
        intermediate=params_of(stage["record"], IntermediateParams) if stage else None,
        corpus=read.corpus if read else None,
        mix=read.mix if read else (),
        work=cells[0].work,
        task=task,
        finetune=finetune,
        scores=_scores(run, cells),
        tuned_with=description.stage(config, "finetune"),
        choices=tuple(dict.fromkeys(_choice(cell) for cell in cells if cell.tuning is not None)),
    )


def _choice(cell: Result) -> str:
    return f"{tuning_notes.choice(cell)}; {tuning_notes.cost(cell)}"


def _commit(manifests: Mapping[str, Json], config: Json) -> str | None:
    """Return the commit of the Hub's model, as recorded by its stage."""
    base = manifests.get("pretrained")
    own = params_of(base["record"], PretrainedParams).revision if base else None
    revision: str | None = own or config["model"]["revision"]
    return revision


def _scores(run: Run, cells: list[Result]) -> list[CardScore]:
    scores = []
    for task in run.columns:
        found = [cell for cell in cells if cell.task == task and cell.metrics]
        totals = [cell.metrics for cell in found if cell.metrics]
        if totals:
            values = [total.score for total in totals]
            metric, n = totals[0].metric, totals[0].n
            seeds = tuple(cell.seed for cell in found)
            std = statistics.stdev(values) if len(values) > 1 else None
            mean, source = statistics.fmean(values), description.source(found[0])
            scores.append(CardScore(task, metric, mean, n, seeds, std, source))
    return scores
