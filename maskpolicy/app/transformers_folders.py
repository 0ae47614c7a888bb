"""Folders for Transformers with model cards, written atomically or exported from finished runs."""

from __future__ import annotations

import glob
import json
import shutil
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import uuid4

from maskpolicy.app import cards
from maskpolicy.app.cards import CardScore, ModelHistory
from maskpolicy.core.errors import ConfigError, DataError, StoreError, unknown
from maskpolicy.core.files import check_folder, claim_folder, locked, sync
from maskpolicy.core.keys import to_json
from maskpolicy.core.types import Json
from maskpolicy.data.corpus.passages import Passages
from maskpolicy.experiment.definition import ENCODER, RELATIVE, ModelKind
from maskpolicy.experiment.task_kinds import TEXT, kind_of
from maskpolicy.leaderboard import description
from maskpolicy.leaderboard.results.cell import STEP, Result, Run
from maskpolicy.models.encoders import masked_lm_class
from maskpolicy.models.families import limits
from maskpolicy.models.loading import is_relative, load_weights, refuse_code
from maskpolicy.models.model_kinds import MODEL_KINDS
from maskpolicy.pipeline.graph.nodes import params_of
from maskpolicy.pipeline.stages.model_training import WORK
from maskpolicy.pipeline.stages.params import (
    CorpusParams,
    FinetuneParams,
    IntermediateParams,
    PretrainedParams,
)
from maskpolicy.pipeline.store import manifest
from maskpolicy.pipeline.store.artifacts import Store, available
from maskpolicy.plugins.discovery import plugin_of_run

_MODULES = "modules.json"  # of sentence-transformers
RECORD = "maskpolicy.json"  # all settings of a folder that we wrote
CARD = "README.md"
TOKENIZER, LONGEST = "tokenizer_config.json", "model_max_length"  # names of Transformers
PRETRAIN, EXPORT = "pretrain", "export"  # the commands that write such folders
_KINDS = ("tokenizer", "pretrained", "intermediate", "finetune")  # stages described in a card


def check_out(out: Path, verb: str = PRETRAIN, model: str | None = None) -> None:
    """Raise StoreError for an --out that cannot be used, before any work.

    A folder that the same command wrote earlier can be used; it is replaced at the end. That of
    the `model` cannot.
    """
    if model is not None and Path(model).is_dir() and Path(model).resolve() == out:
        raise StoreError(
            f"{out}: --out is the folder of --model, which would be lost: choose another --out"
        )
    if out.exists() and not out.is_dir():
        raise StoreError(f"{out}: is a file, not a folder: choose another --out")
    if out.is_dir() and any(out.iterdir()) and _verb(record_of(out)) != verb:
        raise StoreError(
            f"{out}: is not empty and was not made by `maskpolicy {verb}`: choose another --out"
        )
    check_folder(out.parent)


def record_of(out: Path) -> dict[str, Any]:
    """Return the RECORD of a folder, or {} if we did not write the folder."""
    record = _content(out / RECORD)
    return record if isinstance(record, dict) else {}


def _content(path: Path) -> Json:
    """Return the value of a JSON file; None for one that cannot be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _verb(record: Mapping[str, Json]) -> str:
    """Return the command that wrote a record, or "" for an empty one."""
    of_run = EXPORT if "stages" in record else PRETRAIN  # `export` records the stages of a run
    return of_run if record else ""


def architecture(folder: Path, kind: ModelKind) -> dict[str, Any]:
    """Return what a model card says of the architecture: family, limits of texts and so on."""
    from transformers import AutoConfig

    config = load_weights(AutoConfig, str(folder))
    name = MODEL_KINDS[kind].family.lower() if config.model_type == RELATIVE else config.model_type
    has_head = kind == ENCODER and masked_lm_class(config) in (config.architectures or ())
    return {
        "family": name,
        "limits": limits(config),
        "auto_class": cards.MASKED_LM if has_head else "",
        "is_relative": is_relative(str(folder)),
    }


def place(
    out: Path,
    parts: Sequence[Path],
    card: str,
    record: Json,
    positions: int | None = None,
    base: str = "",
    inside: Mapping[str, Sequence[Path]] | None = None,
) -> None:
    """Write the files of artifacts, a model card and the record to the folder `out`, atomically.

    The tokenizer's maximum length is lowered to the model's `positions`. What sentence-transformers
    added to a folder `base` is copied. `inside` has the parts of folders within it, by name. A
    folder that the same command wrote is replaced. Raises StoreError.
    """
    claim_folder(out.absolute().parent)
    with locked(out.absolute().parent), _replacing(out, _verb(record)) as folder:
        for name, own in {"": parts, **(inside or {})}.items():
            _copy(own, folder / name, positions)
        for name in _of_sentences(Path(base)):
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(Path(base, name), folder / name)
        (folder / CARD).write_text(card, encoding="utf-8")
        (folder / RECORD).write_text(_json(record), encoding="utf-8")


def _copy(parts: Sequence[Path], folder: Path, positions: int | None) -> None:
    """Copy the files of a model and its tokenizer to a folder."""
    folder.mkdir(exist_ok=True)
    for part in parts:
        for path in part.iterdir():
            if path.name not in (manifest.NAME, WORK):
                shutil.copyfile(path, folder / path.name)
    if positions is not None:
        _bound(folder / TOKENIZER, positions)


def _of_sentences(base: Path) -> Iterator[str]:
    """Yield the files that sentence-transformers added to a folder, such as its pooling's."""
    modules = _content(base / _MODULES) if base.is_absolute() else None
    if isinstance(modules, list):
        yield from (path.name for path in (base / _MODULES, *sorted(base.glob("*sentence*.json"))))
        names = [str(module.get("path")) for module in modules if isinstance(module, dict)]
        for folder in (base / name for name in names if name == Path(name).name not in ("", "..")):
            for path in sorted(folder.glob("*")):
                if path.suffix in (".json", ".safetensors"):
                    yield f"{folder.name}/{path.name}"


def _bound(path: Path, positions: int) -> None:
    """Lower the maximum length in a tokenizer's configuration to `positions`."""
    settings = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    longest = settings.get(LONGEST)
    if not isinstance(longest, int | float) or longest > positions:
        path.write_text(_json({**settings, LONGEST: positions}), encoding="utf-8")


@contextmanager
def _replacing(out: Path, verb: str) -> Iterator[Path]:
    """Yield a new folder next to `out`; on success, flush it to disk and replace `out` by it."""
    out = out.absolute()
    for left in out.parent.glob(f".{glob.escape(out.name)}.{'[0-9a-f]' * 12}.part"):
        shutil.rmtree(left, ignore_errors=True)
    folder = out.parent / f".{out.name}.{uuid4().hex[:12]}.part"
    away = out.parent / f".{out.name}.{uuid4().hex[:12]}.part"
    try:
        folder.mkdir()
        yield folder
        for path in (*folder.rglob("*"), folder):
            sync(path)
        check_out(out, verb)  # again: it may have changed during hours of training
        if out.exists():
            out.rename(away)
        folder.rename(out)
        sync(out.parent)
    except OSError as error:
        if away.exists() and not out.exists():
            with suppress(OSError):
                away.rename(out)
        reason = error.strerror or type(error).__name__
        raise StoreError(f"{out}: cannot be written: {reason}; choose another --out") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(away, ignore_errors=True)


def _json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


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
    checkpoints: bool = False,
) -> list[str]:
    """Write the model of a row to the folder `out`: pre-trained, or fine-tuned on `task`.

    `command` is shown in the card, with the model's `name` on the Hub if it is to have one. `seed`
    selects a fine-tuning seed, and with it the intermediate run. With `checkpoints`, the models of
    `checkpoint_steps` and the last one are written to folders in `out` as well, named after the
    words that they have read, and these names are returned. Raises ConfigError
    if the run does not have the row, task, seed or checkpoints, and StoreError if the store does
    not have a model any more.
    """
    cells = cells_of(run, policy, task, seed)
    keys = {kind: cells[0].stage_key(kind) for kind in _KINDS}
    key = keys["finetune" if task is not None else "intermediate"]
    if key is None:
        raise ConfigError(
            f"{run.folder}: {policy} has no intermediate stage: name a task to export it fine-tuned"
        )
    if task is not None and store.peek(key) is None and store.recall(key) is not None:
        raise StoreError(
            f"{run.folder}: the model of {policy} fine-tuned on {task} was not kept: add "
            "keep_models: [finetune] to the experiment and run it again"
        )
    model = available(store, key, f"the model of {policy}")
    if keys["tokenizer"] is None:
        raise DataError(f"{run.folder}: {policy} has no tokenizer: run its experiment again")
    tokenizer = available(store, keys["tokenizer"], f"the tokenizer of {run.folder}")
    if keys["intermediate"] is not None:
        available(store, keys["intermediate"], f"the intermediate stage of {policy}")
    manifests = {kind: store.peek(key) for kind, key in keys.items() if key is not None}
    stage = manifests.get("intermediate")
    if stage is not None:  # its corpus, for the card alone
        manifests["corpus"] = store.recall(stage["record"]["inputs"]["corpus"])
    parts = (tokenizer.path, model.path)
    kept = _early(run, cells[0], store) if checkpoints else {}
    for part in (*parts, *kept.values()):
        refuse_code(str(part))  # a store that came with the run may contain any file
    about = _about(run, cells, manifests, task, model.path, command, name or out.name)
    record = {
        "version": 1,
        "stage": model.key,
        "stages": dict(cells[0].stages),
        "intermediate": about.intermediate and to_json(about.intermediate),
        "corpus": about.corpus and to_json(about.corpus),
        **({"mix": [to_json(share) for share in about.mix]} if about.mix else {}),
        "finetune": about.finetune and to_json(about.finetune),
        "scores": [asdict(score) for score in about.scores],
        "work": cells[0].work,
    }
    inside = {name: (tokenizer.path, path) for name, path in kept.items()}
    place(out, parts, cards.card(about), record, about.limits[0], about.model, inside)
    return list(inside)


def _early(run: Run, cell: Result, store: Store) -> dict[str, Path]:
    """Return the models of the checkpoints of a cell's intermediate run and its last, by name."""
    names, label = checkpoint_names(run, cell, store), f"the model of {cell.policy} at step"
    keys = {result.config[STEP]: result.stage_key("intermediate") for result in early(run, cell)}
    keys[cell.config["intermediate"]["steps"]] = cell.stage_key("intermediate")
    return {
        name: available(store, str(keys[step]), f"{label} {step}").path
        for step, name in names.items()
    }


def early(run: Run, cell: Result) -> list[Result]:
    """Return the results of the checkpoints of a cell's intermediate run, on any task."""
    number = cell.config.get("intermediate_seed")
    return [
        result
        for result in run.early
        if result.policy == cell.policy and result.config.get("intermediate_seed") == number
    ]


def checkpoint_names(run: Run, cell: Result, store: Store) -> dict[int, str]:
    """Return the names of the checkpoints of a cell's intermediate run and its last, by step.

    Raises ConfigError if the run kept none, and StoreError if the store lacks model or corpus.
    """
    steps = {result.config[STEP] for result in early(run, cell)}
    if not steps:
        raise ConfigError(
            f"{run.folder}: {cell.policy} has no checkpoints: set checkpoint_words or "
            "checkpoint_steps in the experiment and run it again"
        )
    budget = cell.config["intermediate"]
    stage = available(store, str(cell.stage_key("intermediate")), f"the model of {cell.policy}")
    read = (store.recall(stage.key) or {})["record"]["inputs"]["corpus"]
    corpus = available(store, read, f"the corpus of {cell.policy}")
    passages = Passages.open(corpus.path)
    words = passages.count_words() * budget["batch_size"] / len(passages)  # of a step
    return {step: checkpoint_name(step, words) for step in sorted({*steps, budget["steps"]})}


def checkpoint_name(step: int, words: float) -> str:
    """Return the name of a checkpoint in BabyLM's challenge, such as chck_10M.

    It has the roundest number of words that the checkpoint's last step reaches; a step reads
    `words` on average.
    """
    end = round(step * words, 3)
    rounded = (int(end // 10**digits) * 10**digits for digits in range(len(str(int(end))), -1, -1))
    number = next(one for one in rounded if one > end - words or one == int(end))
    return f"chck_{f'{number / 1e6:.6f}'.rstrip('0').rstrip('.')}M"


def cells_of(run: Run, policy: str, task: str | None, seed: int | None) -> list[Result]:
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
    trained = [  # the numbers of the intermediate run and the general model of each cell
        (result.config.get("intermediate_seed"), result.config.get("general_seed", 0))
        for result in (first[0], *own)
    ]
    same = [result for result, of in zip(own, trained[1:], strict=True) if of == trained[0]]
    return sorted(same, key=lambda result: result.seed != chosen)


def _about(
    run: Run,
    cells: list[Result],
    manifests: Mapping[str, Json],
    task: str | None,
    model: Path,
    command: str,
    name: str,
) -> ModelHistory:
    """Return the history of a model from the results and the manifests of its stages."""
    config = cells[0].config
    stage, tuned = manifests.get("intermediate"), manifests.get("finetune")
    corpus = manifests.get("corpus")
    read = params_of(corpus["record"], CorpusParams) if corpus else None
    finetune = None
    if task is not None and tuned is not None:
        finetune = params_of(tuned["record"], FinetuneParams)
    base = manifests.get("pretrained")  # a model of the Hub, whose stage recorded the commit
    revision = params_of(base["record"], PretrainedParams).revision if base else None
    chosen = [cell for cell in cells if cell.tuning is not None]
    return ModelHistory(
        name=name,
        model=config["model"]["name"],
        revision=revision or config["model"]["revision"],
        command=command,
        manifest=tuned if task is not None else stage,
        kind=config["model"]["kind"],
        **architecture(model, config["model"]["kind"]),
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
        choices=tuple(
            dict.fromkeys(f"{description.choice(c)}; {description.cost(c)}" for c in chosen)
        ),
    )


def _scores(run: Run, cells: list[Result]) -> list[CardScore]:
    scores = []
    for task in run.columns:
        of_task = [cell for cell in cells if cell.task == task and cell.metrics]
        totals = [cell.metrics for cell in of_task if cell.metrics]
        if totals:
            values = [total.score for total in totals]
            score = CardScore(
                task,
                totals[0].metric,
                statistics.fmean(values),
                totals[0].n,
                tuple(cell.seed for cell in of_task),
                statistics.stdev(values) if len(values) > 1 else None,
                of_task[0].origin,
                _kind(of_task[0].config["task"]["name"]),
            )
            scores.append(score)
    return scores


def _kind(task: str) -> str:
    """Return the kind of a task; the usual kind if its plugin is not loaded."""
    try:
        return kind_of(plugin_of_run("task", task))
    except ConfigError:
        return TEXT
