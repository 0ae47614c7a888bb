"""Folders for Transformers with model cards, written atomically or exported from finished runs."""

from __future__ import annotations

import json
import shutil
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from maskpolicy.app import cards
from maskpolicy.app.arguments import as_typed, public
from maskpolicy.app.cards import CardScore, ModelHistory
from maskpolicy.core.errors import ConfigError, DataError, StoreError, unknown
from maskpolicy.core.files import (
    check_folder,
    claim_folder,
    json_bytes,
    json_or_none,
    locked,
    part_of,
    parts_of,
    read_json,
    sync,
    writing_to,
)
from maskpolicy.core.keys import to_json
from maskpolicy.core.markdown import plain
from maskpolicy.core.types import Json
from maskpolicy.data.corpus.passages import Passages
from maskpolicy.experiment.definition import ENCODER, RELATIVE, ModelKind
from maskpolicy.experiment.task_kinds import TEXT, kind_of
from maskpolicy.experiment.verbatim import WRITTEN
from maskpolicy.leaderboard import description
from maskpolicy.leaderboard.results.cell import STEP, Result, Run
from maskpolicy.models.encoders import masked_lm_class
from maskpolicy.models.families import limits, reads_types
from maskpolicy.models.loading import is_relative, load_config, load_tokenizer, refuse_code
from maskpolicy.models.model_kinds import MODEL_KINDS
from maskpolicy.models.training.specials import Specials
from maskpolicy.pipeline.graph.nodes import params_of
from maskpolicy.pipeline.stages.model_training import WORK
from maskpolicy.pipeline.stages.params import (
    CorpusParams,
    FinetuneParams,
    IntermediateParams,
    PretrainedParams,
)
from maskpolicy.pipeline.store import manifest
from maskpolicy.pipeline.store.artifacts import Artifact, Store, available
from maskpolicy.plugins.discovery import plugin_of_run

T = TypeVar("T")
_MODULES = "modules.json"  # of sentence-transformers
RECORD = "maskpolicy.json"  # all settings of a folder that we wrote
CARD = "README.md"
_TYPES = "token_type_ids"
TOKENIZER, LONGEST = "tokenizer_config.json", "model_max_length"  # names of Transformers
PRETRAIN, EXPORT = "pretrain", "export"  # the commands that write such folders
_KINDS = ("tokenizer", "pretrained", "intermediate", "finetune")  # stages described in a card


def check_out(out: Path, verb: str = PRETRAIN) -> None:
    """Raise StoreError for an --out that cannot be used, before any work.

    A folder that the same command wrote can be used, and is replaced at the end.
    """
    check_folder(out)
    if out.is_dir() and any(out.iterdir()) and _verb(out) != verb:
        raise StoreError(
            f"{out}: is not empty and was not made by `maskpolicy {verb}`: choose another --out"
        )
    check_folder(out.parent)


def command(
    run: str | Path,
    policy: str,
    out: Path,
    task: str | None,
    seed: int | None,
    more: Sequence[str | Path] = (),
) -> str:
    """Return the commands that run an experiment and export a model of it, for a model card."""
    words: list[str | Path] = [EXPORT, run, policy, *(["--task", task] if task else [])]
    words += ["--seed", str(seed)] if seed is not None else []
    exports = as_typed(*words, *more, "--out", out)
    if not (Path(run) / WRITTEN).is_file():
        return exports
    return f"{as_typed('run', Path(public(str(run))) / WRITTEN)}\n{exports}"


def record_of(out: Path) -> dict[str, Any]:
    """Return the RECORD of a folder, or {} if we did not write the folder."""
    record = json_or_none(out / RECORD)
    return record if isinstance(record, dict) else {}


def _verb(out: Path) -> str:
    """Return the command that wrote a folder, or "" if we did not write it."""
    record = record_of(out)
    verb = EXPORT if "stages" in record else PRETRAIN  # `export` records the stages of a run
    return verb if record else ""


def architecture(folder: Path, kind: ModelKind) -> dict[str, Any]:
    """Return what a model card says about the architecture: family, limits of texts and so on."""
    config = load_config(folder)
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
    about: ModelHistory,
    record: Json,
    inside: Mapping[str, Sequence[Path]] | None = None,
) -> None:
    """Write the files of artifacts, a model card and the record to the folder `out`, atomically.

    Lowers the tokenizer's maximum length to the model's positions, copies what
    sentence-transformers added to the folder of the model, and replaces a folder that the same
    command wrote. `inside` has the parts of folders within it, by name. Raises StoreError.
    """
    card, base = cards.card(about), Path(about.model)
    claim_folder(out.absolute().parent)
    with locked(out.absolute().parent), _replacing(out) as folder:
        for name, own in {"": parts, **(inside or {})}.items():
            _copy(own, folder / name, about.limits[0])
        for name in _of_sentences(base):
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(base / name, folder / name)
        (folder / CARD).write_text(card, encoding="utf-8")
        (folder / RECORD).write_bytes(json_bytes(record))


def _copy(parts: Sequence[Path], folder: Path, positions: int | None) -> None:
    """Copy the files of a model and its tokenizer to a folder."""
    folder.mkdir(exist_ok=True)
    for part in parts:
        for path in part.iterdir():
            if path.name not in (manifest.NAME, WORK):
                shutil.copyfile(path, folder / path.name)
    _settle(folder, positions)


def _of_sentences(base: Path) -> Iterator[str]:
    """Yield the files that sentence-transformers added to a folder, such as its pooling's."""
    modules = json_or_none(base / _MODULES) if base.is_absolute() else None
    if isinstance(modules, list):
        yield from (path.name for path in (base / _MODULES, *sorted(base.glob("*sentence*.json"))))
        names = [str(module.get("path")) for module in modules if isinstance(module, dict)]
        for folder in (base / name for name in names if name == Path(name).name not in ("", "..")):
            for path in sorted(folder.glob("*")):
                if path.suffix in (".json", ".safetensors", ".bin"):
                    yield f"{folder.name}/{path.name}"


def _settle(folder: Path, positions: int | None) -> None:
    """Lower a tokenizer's maximum length to `positions`; let Transformers 4 read it as 5 does.

    BabyLM's pipeline has version 4, which has other names for two settings of version 5, and adds
    no blank before a text unless the settings say so. Version 5 writes no token types for ALBERT,
    although its tokenizer knows them, unless the settings say so.
    """
    path = folder / TOKENIZER
    settings = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    made, longest = dict(settings), settings.get(LONGEST)
    if positions is not None and (not isinstance(longest, int | float) or longest > positions):
        made[LONGEST] = positions
    if isinstance(made.get("extra_special_tokens"), list):
        made["additional_special_tokens"] = made.pop("extra_special_tokens")
    if made.get("tokenizer_class") == "TokenizersBackend":
        made["tokenizer_class"] = "PreTrainedTokenizerFast"
        before = read_json(folder / "tokenizer.json").get("pre_tokenizer") or {}
        made["add_prefix_space"] = bool(before.get("add_prefix_space"))
    if settings and reads_types(load_config(folder)):
        read = load_tokenizer(str(folder))
        if Specials.of_encoder(read).has_types and _TYPES not in read.model_input_names:
            made["model_input_names"] = [*read.model_input_names, _TYPES]
    if made != settings:
        path.write_bytes(json_bytes(made))


@contextmanager
def _replacing(out: Path) -> Iterator[Path]:
    """Yield a new folder next to `out`; on success, flush it to disk and replace `out` by it."""
    out = out.absolute()
    for left in parts_of(out):
        shutil.rmtree(left, ignore_errors=True)
    folder, away = part_of(out), part_of(out)
    try:
        with writing_to(out):
            folder.mkdir()
            yield folder
            for path in (*folder.rglob("*"), folder):
                sync(path)
            check_out(out, _verb(folder))  # again: it may have changed during hours of training
            if out.exists():
                out.rename(away)
            folder.rename(out)
            sync(out.parent)
    finally:
        if away.exists() and not out.exists():  # the new folder could not be renamed
            with suppress(OSError):
                away.rename(out)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(away, ignore_errors=True)


def export_model(
    run: Run,
    policy: str,
    store: Store,
    out: Path,
    task: str | None,
    seed: int | None,
    *,
    command: str,
    name: str,
    checkpoints: bool,
) -> list[str]:
    """Write the model of a row to the folder `out`: pre-trained, or fine-tuned on `task`.

    The card shows `command` and the model's `name` on the Hub, if there is one. `seed` selects a
    fine-tuning seed, and with it the intermediate run. With `checkpoints`, the models of
    `checkpoint_steps` and the last one are written to folders in `out` too; returns the names of
    these folders (see `checkpoint_name`). Raises ConfigError if the run lacks the row, task, seed
    or checkpoints, and StoreError if the store lacks a model.
    """
    cells = cells_of(run, policy, task, seed)
    tokenizer, model, manifests = _artifacts(run, cells[0], store, task)
    kept = _early(run, cells[0], store) if checkpoints else {}
    for part in (tokenizer, model.path, *kept.values()):
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
        "work": about.work,
    }
    inside = {name: (tokenizer, path) for name, path in kept.items()}
    place(out, (tokenizer, model.path), about, record, inside)
    return list(inside)


def _artifacts(
    run: Run, cell: Result, store: Store, task: str | None
) -> tuple[Path, Artifact, dict[str, Json]]:
    """Return the tokenizer and the model of a cell, and the manifests of its stages by kind.

    With a `task`, the model is the fine-tuned one. A manifest that the store lacks is None.
    """
    keys = {kind: key for kind in _KINDS if (key := cell.stage_key(kind)) is not None}
    key = keys.get("intermediate" if task is None else "finetune")
    if key is None:
        if task is not None:
            raise ConfigError(f"--task {task}: is answered without fine-tuning: leave it out")
        raise ConfigError(
            f"{run.folder}: {cell.policy} has no intermediate stage: name a task to export it "
            "fine-tuned"
        )
    if task is not None and store.peek(key) is None and store.recall(key) is not None:
        raise StoreError(
            f"{run.folder}: the model of {cell.policy} fine-tuned on {task} was not kept: add "
            "keep_models: [finetune] to the experiment and run it again"
        )
    model = available(store, key, f"the model of {cell.policy}")
    if "tokenizer" not in keys:
        raise DataError(f"{run.folder}: {cell.policy} has no tokenizer: run its experiment again")
    tokenizer = available(store, keys["tokenizer"], f"the tokenizer of {run.folder}")
    if "intermediate" in keys:
        available(store, keys["intermediate"], f"the intermediate stage of {cell.policy}")
    manifests = {kind: store.peek(key) for kind, key in keys.items()}
    if stage := manifests.get("intermediate"):  # its corpus, for the card alone
        manifests["corpus"] = store.recall(stage["record"]["inputs"]["corpus"])
    return tokenizer.path, model, manifests


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
    own = list(run.results)
    for field, name in (("policy", policy), ("task", task)):
        if name is not None:
            labels = [getattr(result, field) for result in own]
            own = [result for result in own if getattr(result, field) == name]
            if not own:
                what = "row" if field == "policy" else field
                raise ConfigError(f"{run.folder}: {unknown(what, name, labels)}")
    seeds = sorted({result.seed for result in own})
    chosen = seeds[0] if seed is None else seed
    if chosen not in seeds:
        there = ", ".join(map(str, seeds))
        raise ConfigError(f"{run.folder}: {policy} has no seed {chosen} (it has: {there})")
    first = [result for result in own if result.seed == chosen]
    if task is not None:
        return first
    same = [result for result in own if _trained(result) == _trained(first[0])]
    return sorted(same, key=lambda result: result.seed != chosen)


def _trained(cell: Result) -> tuple[int | None, int]:
    """Return the numbers of the intermediate run and the general model of a cell."""
    return cell.config.get("intermediate_seed"), cell.config.get("general_seed", 0)


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

    def params(kind: str, of: type[T]) -> T | None:
        return params_of(manifests[kind]["record"], of) if manifests.get(kind) else None

    stage, base = manifests.get("intermediate"), params("pretrained", PretrainedParams)
    corpus = params("corpus", CorpusParams)
    finetune = params("finetune", FinetuneParams) if task is not None else None
    chosen = [cell for cell in cells if cell.tuning is not None]
    return ModelHistory(
        name=name,
        model=config["model"]["name"],
        # the stage of a model of the Hub recorded the commit
        revision=(base and base.revision) or config["model"]["revision"],
        command=command,
        manifest=manifests["intermediate" if task is None else "finetune"],
        kind=config["model"]["kind"],
        **architecture(model, config["model"]["kind"]),
        head=finetune.head if finetune else None,
        policy=config["policy"]["name"] if stage else None,
        intermediate=params("intermediate", IntermediateParams),
        corpus=corpus.corpus if corpus else None,
        mix=corpus.mix if corpus else (),
        work=cells[0].work,
        task=task,
        finetune=finetune,
        scores=_scores(run, cells),
        tuned_with=budgets(cells),
        choices=tuple(
            dict.fromkeys(f"{description.choice(c)}; {description.cost(c)}" for c in chosen)
        ),
    )


def budgets(cells: Sequence[Result]) -> str:
    """Return the fine-tuning of scored cells in words, by task if it differs; "" if none has it."""
    tasks: dict[str, dict[str, None]] = {}
    for cell in (cell for cell in cells if cell.metrics):
        text = description.stage(cell.config, "finetune") if cell.is_fine_tuned else "none"
        tasks.setdefault(text, {})[plain(cell.task)] = None
    if len(tasks) < 2:
        return "".join(tasks.keys() - {"none"})
    return "; ".join(f"{', '.join(named)}: {text}" for text, named in tasks.items())


def _scores(run: Run, cells: list[Result]) -> list[CardScore]:
    """Return the mean score of each task on which a cell has one, in the order of the run."""
    scores = []
    for task in run.columns:
        scored = [cell for cell in cells if cell.task == task and cell.metrics]
        totals = {cell.seed: cell.metrics for cell in scored if cell.metrics}
        if not totals:
            continue
        first, values = next(iter(totals.values())), [total.score for total in totals.values()]
        scores.append(
            CardScore(
                task,
                first.metric,
                statistics.fmean(values),
                first.n,
                tuple(totals),
                statistics.stdev(values) if len(values) > 1 else None,
                scored[0].origin,
                _kind(scored[0].config["task"]["name"]),
            )
        )
    return scores


def _kind(task: str) -> str:
    """Return the kind of a task; the usual kind if its plugin is not loaded."""
    try:
        return kind_of(plugin_of_run("task", task))
    except ConfigError:
        return TEXT
