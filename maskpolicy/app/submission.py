"""Write a row's answers as BabyLM's evaluation pipeline of 2025 does, for an entry to it."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

from maskpolicy.app.transformers_folders import cells_of, checkpoint_names, early
from maskpolicy.core.errors import ConfigError, DataError, StoreError
from maskpolicy.core.files import json_bytes, write_file
from maskpolicy.core.types import Json
from maskpolicy.data.taskfiles import sources
from maskpolicy.experiment.definition import ENCODER, WORLD, TaskBlock
from maskpolicy.leaderboard.results import predictions
from maskpolicy.leaderboard.results.cell import STEP, Result, Run
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.plugins.discovery import find_plugin

ZERO_SHOT = {  # our task -> its benchmark in an entry, and the folder and the data it is read from
    "blimp": ("blimp", "blimp", "blimp"),
    "blimp-supplement": ("blimp_supplement", "blimp", "supplement"),
    "ewok": ("ewok", "ewok", "ewok"),
}
GLUE = ("boolq", "mnli", "mrpc", "multirc", "qqp", "rte", "wsc")
OTHERS = ("entity_tracking", "wug_adj", "wug_past", "comps", "reading", "aoa")
FAST_OTHERS = ("entity_tracking", "wug_adj", "wug_past", "reading")
MAIN, FAST = "main", "fast_eval_results"
log = logging.getLogger(__name__)


def write(
    runs: Sequence[Run], row: str, seed: int | None, store: Store, out: Path
) -> tuple[Path, list[str]]:
    """Write the predictions of a row below `out`, and the JSON of an entry.

    A run with checkpoints has answered the fast sets; each checkpoint has a folder. A run without
    has answered the full sets; its folder is "main". Returns the path of the JSON, and the
    benchmarks that it lacks, or parts of them as "glue/rte". Raises ConfigError if no run has the
    row or a task of the pipeline, or if the answers are not those of one model to whole tasks, and
    DataError if a folder with BLiMP's data is missing.
    """
    entry: dict[str, Any] = defaultdict(dict)
    fast: dict[str, list[Json]] = defaultdict(list)
    cells = [(run, cell) for run in runs for cell in _cells(run, row, seed)]
    backend = _checked_backend(cells)
    owners: dict[Path, str] = {}  # the run and task of each folder of answers
    files: dict[Path, bytes] = {}
    for run, cell in cells:
        task, where = cell.config["task"]["name"], f"{cell.task} of {run.folder}"
        for revision, path in _answers(run, cell, store):
            answered = _answered(cell, path, is_fast=revision != MAIN)
            place, benchmark = _place(task, backend, is_fast=revision != MAIN)
            folder = out / revision / place
            if (owner := owners.setdefault(folder, where)) != where:
                raise ConfigError(f"{where}: {owner} has the same task: run one of the two")
            content = {
                name: {
                    "predictions": [
                        {"id": f"{name}_{number}", "pred": answer}
                        for number, (answer, _) in enumerate(answers)
                    ]
                }
                for name, answers in answered.items()
            }
            files[folder / "predictions.json"] = json_bytes(content)
            if revision == MAIN:
                entry[benchmark] |= content
            elif task in ZERO_SHOT:
                shares = {name: fmean(s for _, s in each) for name, each in answered.items()}
                fast[benchmark].append(shares)
    if not entry and not fast:
        tasks = ", ".join((*ZERO_SHOT, *GLUE))
        raise ConfigError(f"{runs[0].folder}: has no task of BabyLM's pipeline: {tasks}")
    benchmarks = [benchmark for benchmark, _, _ in ZERO_SHOT.values()]
    whole = {**entry, **({FAST: fast} if fast else {})}
    lacking = [name for name in (*benchmarks, "glue", *OTHERS, FAST) if name not in whole]
    for name, parts in (("glue", GLUE), (FAST, (*benchmarks, *FAST_OTHERS))):
        lacking += [f"{name}/{part}" for part in parts if part not in whole.get(name, parts)]
    path = out / f"all_full_preds_and_fast_scores_{backend or 'mlm'}.json"
    for file, data in (files | {path: json_bytes(whole)}).items():
        write_file(file, data)
    return path, lacking


def _cells(run: Run, row: str, seed: int | None) -> Iterator[Result]:
    """Yield the cells of a row and of one seed on the pipeline's tasks."""
    cells = cells_of(run, row, None, seed)
    for cell in cells:
        is_known = cell.config["task"]["name"] in (*ZERO_SHOT, *GLUE)
        if cell.seed == cells[0].seed and is_known and cell.metrics is not None:
            if cell.config["task"].get("choose") == "within_word_l2r":
                log.warning("%s: left out, as the pipeline does not score so", cell.task)
            else:
                yield cell


def _answers(run: Run, cell: Result, store: Store) -> Iterator[tuple[str, Path]]:
    """Yield the revisions of a cell's model, each with the file of its predictions."""
    if not run.early:
        yield MAIN, cell.answers
        return
    names = checkpoint_names(run, cell, store)
    last = cell.config["intermediate"]["steps"]
    for step, name in names.items():
        own = [
            result.stage_key("evaluate") or ""
            for result in early(run, cell)
            if (result.task, result.seed, result.config[STEP]) == (cell.task, cell.seed, step)
        ]
        if not own and step == last:
            yield name, cell.answers
        elif path := next((store.file(key, "predictions.jsonl") for key in own), None):
            yield name, path
        else:
            advice = f"not in the store {store.place}: name the store of that run with --store"
            raise StoreError(
                f"{run.folder}: the answers of {cell.policy} to {cell.task} at step {step} are "
                f"{advice if own else 'not in this run: run its experiment again'}"
            )


def _checked_backend(cells: Sequence[tuple[Run, Result]]) -> str:
    """Return the pipeline's name of the way in which the model of all cells scores sentences.

    It is "" if no task scores sentences. Raises ConfigError if the cells are of several models,
    score in several ways, or have a limit.
    """
    backend = ""
    models: dict[tuple[str | None, ...], str] = {}
    for run, cell in cells:
        block, where = cell.config["task"], f"{cell.task} of {run.folder}"
        limit = block.get("limit") or {}
        if limit.get("test") or limit.get("group"):
            raise ConfigError(f"{where}: an entry needs all examples: run it without `limit`")
        stages = ("intermediate", "general", "pretrained")
        models.setdefault(tuple(cell.stage_key(kind) for kind in stages), where)
        if len(models) > 1:
            raise ConfigError(f"{where}: is of another model than {next(iter(models.values()))}")
        if block["name"] in ZERO_SHOT:
            choose = block.get("choose", "auto")
            own = "enc_dec_mask" if choose == "auto" else choose
            own = "mlm" if cell.config["model"]["kind"] == ENCODER else own
            if backend not in ("", own):
                raise ConfigError(f"{where}: has choose: {own}, and an entry has one: {backend}")
            backend = own
    return backend


def _place(task: str, backend: str, *, is_fast: bool) -> tuple[str, str]:
    """Return the folder of a task's predictions in a revision's folder, and its benchmark."""
    if task not in ZERO_SHOT:
        return f"finetune/{task}", "glue"
    benchmark, folder, data = ZERO_SHOT[task]
    return f"zero_shot/{backend}/{folder}/{data}_{'fast' if is_fast else 'filtered'}", benchmark


Answered: TypeAlias = Mapping[str, Sequence[tuple[Json, float]]]
"""By paradigm, domain or task: the answer to each example, and its score."""


def _answered(cell: Result, path: Path, *, is_fast: bool) -> Answered:
    """Return the answers in a file: sentences, or numbers of labels."""
    task = cell.config["task"]["name"]
    labels = sources.facts(find_plugin("task", task)).labels
    answers: dict[str, list[tuple[Json, float]]] = defaultdict(list)
    for row in predictions.rows(path):
        name, said = row["group"] if task in ZERO_SHOT else task, row["prediction"]
        answers[name].append((said if task in ZERO_SHOT else labels.index(said), row["score"]))
    for name, place, sentence in _equal(cell, "fast" if is_fast else "filtered"):
        answers[name].insert(place, (sentence, 1.0))
    return answers


def _equal(cell: Result, edition: str) -> Iterator[tuple[str, int, str]]:
    """Yield paradigm, place and sentence of BLiMP's rows with two equal sentences.

    The run left them out, but the pipeline needs an answer, and counts any as right.
    """
    block = cell.config["task"]
    if block["name"] not in ("blimp", "blimp-supplement") or block["data"] == WORLD:
        return
    folder = Path(block["data"])
    if not folder.is_dir():
        raise DataError(
            f"{cell.task}: the folder {folder} is missing: put the run's data there, because the "
            "entry needs its pairs of equal sentences"
        )
    task = sources.task(TaskBlock(block["name"], block["name"], {}, data=block["data"]))
    counts: Counter[str] = Counter()
    source = sources.find_split(task, "test", folder)
    wanted = f"{ZERO_SHOT[block['name']][2]}_{edition}"
    if wanted not in (found := source.files[0].parent.name, folder.name):
        log.warning("%s: was read from %s, but numbers are those of %s", cell.task, found, wanted)
    for row in source.rows:
        if not row.error:
            name = row.value.get("UID") or row.file
            good, bad = (row.value.get(key) for key in ("sentence_good", "sentence_bad"))
            if good == bad:
                yield name, counts[name], good
            counts[name] += 1
