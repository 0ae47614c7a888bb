"""The digests of a run's results: written with them, and compared by `maskpolicy verify`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from maskpolicy.core import keys, metrics, schema
from maskpolicy.core.errors import DataError, MaskpolicyError
from maskpolicy.core.files import json_bytes, json_or_none, read_json, sha256, write_file
from maskpolicy.core.types import Json
from maskpolicy.experiment.budgets import TRAININGS, Training
from maskpolicy.leaderboard.results import predictions
from maskpolicy.leaderboard.results.cell import (
    EARLY,
    STEP,
    Result,
    Run,
    absent,
    cell_name,
    current_files,
    read_result,
    result_bytes,
)
from maskpolicy.leaderboard.results.run_folder import check_whole
from maskpolicy.pipeline.stages.evaluation import PREDICTIONS, RESULT
from maskpolicy.pipeline.stages.params import EXAMPLES
from maskpolicy.pipeline.store import manifest
from maskpolicy.pipeline.store.artifacts import Store

STAGES = "stages.json"
_CLOSE = 1e-9  # a score is the same on every machine but for the order of sums
_CLAIMED = ("steps", "lr")  # of a training, which a result must state
_OF_STAGE = ("seed", "eval_every", "patience")  # of a training, which a stage may have on its own


def save(run: Run, store: Store) -> None:
    """Write stages.json: by key, the inputs of each stage that a result depends on.

    A key is the digest of the rest of its record; that of an evaluation also has the digests of its
    answers and scores, and of the results that have them. A stage that the store does not know
    keeps its record, or else is left out.
    """
    stored = json_or_none(run.folder / STAGES)
    known = stored.items() if isinstance(stored, dict) else ()
    before = {key: record for key, record in known if isinstance(record, dict)}
    used = sorted({key for one in (*run.results, *run.early) for key in one.stages.values()})
    found = {}
    for key in used:
        if (sealed := store.recall(key)) is not None:
            digests = {each["path"]: each["sha256"] for each in sealed["files"]}
            kept = {name: digests[name] for name in (PREDICTIONS, RESULT) if name in digests}
            record = {name: sealed["record"][name] for name in manifest.KEYED_BY}
            found[key] = record | {"files": kept}
        elif key in before:  # of a cell that another command computed in its store
            found[key] = before[key]
    for one in (*run.results, *run.early):
        files = found.get(one.stage_key("evaluate") or "", {}).get("files")
        if isinstance(files, dict):
            files[f"{_stem(one)}.json"] = hashlib.sha256(result_bytes(one)).hexdigest()
    write_file(run.folder / STAGES, json_bytes(found))


def faults(folder: Path, *, packed: bool) -> tuple[int, list[str]]:
    """Return how many results of a run are shown, and a line for each fault of their digests.

    A packed run has a manifest with the digests of all its files. Raises DataError for a folder
    without results.
    """
    paths = [*current_files(folder, "results"), *current_files(folder, EARLY)]
    if not paths:
        raise DataError(f"{folder}: no results/*.json: name a folder of `run` or `board`, or a zip")
    found = list[str]()
    try:
        check_whole(folder)
        found += _of_files(folder) if packed else []
        stages = schema.check(read_json(folder / STAGES), dict[str, dict[str, Any]], STAGES)
        for record in stages.values():
            schema.check(record.get("files"), dict[str, str], STAGES)
        found += (f"results/{name}.json: is missing" for name in absent(folder))
        unused = {*stages}
        for path in paths:
            name = path.relative_to(folder)
            try:
                result = read_result(path)
                unused -= {*result.stages.values()}
                found += (f"{name}: {line}" for line in _of_result(result, path, stages))
            except DataError as error:
                found.append(f"{name}: {str(error).replace(f'{path}: ', '')}")
        if unused and not found:
            found.append(f"{STAGES}: no result depends on some of its stages: results are missing")
    except MaskpolicyError as error:
        found.append(str(error).removeprefix(f"{folder}: "))
    return len(paths), [line.replace(f"{folder}/", "") for line in found]


def _of_files(folder: Path) -> Iterator[str]:
    """Yield a line for each file that is not as it was packed; raises Damaged."""
    sealed = manifest.parse(folder / manifest.NAME, **{manifest.RUN: folder.name})
    unlike = manifest.misfits(folder, sealed)
    for entry in sealed["files"]:
        path = entry["path"]
        if path not in unlike and sha256(folder / path) != entry["sha256"]:
            unlike.append(path)
    yield from (f"{path}: was changed, added or removed since it was packed" for path in unlike)


def _of_result(result: Result, path: Path, stages: Mapping[str, Json]) -> Iterator[str]:
    """Yield a line for each digest of a result that does not hold."""
    if path.stem != _stem(result):
        yield "is the file of another cell"
    if result.metrics is None:
        return
    for name, key in sorted(result.stages.items()):
        yield from _of_stage(name, key, stages, result.config)
    files = stages.get(result.stage_key("evaluate") or "", {"files": {}})["files"]
    if files.get(path.name, digest := sha256(path)) != digest:  # no earlier run has it
        yield "is not as `run` wrote it"
    score = json.dumps(result.metrics.to_json(), indent=1, sort_keys=True)
    if files.get(RESULT) != hashlib.sha256(score.encode()).hexdigest():
        yield "its score is not the one that its evaluation wrote"
    if STEP in result.config:  # its answers are in the store only
        return
    if not result.answers.is_file():
        yield "its predictions are missing"
        return
    if files.get(PREDICTIONS) != sha256(result.answers):
        yield "its predictions are not those that its evaluation wrote"
    yield from _of_answers(result)


def _stem(result: Result) -> str:
    """Return the name of a result's file, without .json."""
    return cell_name(result.policy, result.task, result.seed, result.config.get(STEP))


def _of_stage(
    name: str, key: str, stages: Mapping[str, Json], config: Mapping[str, Json]
) -> Iterator[str]:
    """Yield a line if a stage has another key than its record, or than the result's settings."""
    if key not in stages:
        yield f"{STAGES} has no record of its stage {name}"
        return
    record = stages[key]
    try:
        manifest.compare_key({"key": key, "record": record}, name)
        params, kind = record["params"], record["kind"]
        wrong = [
            each
            for recorded, claimed in _claims(kind, params, config)
            for each in recorded
            if (each in claimed or each in _CLAIMED)
            and not _agree(recorded[each], claimed.get(each))
        ]
        if name.split(" ")[0] != kind:
            wrong.append("kind")
    except (MaskpolicyError, AttributeError, KeyError, TypeError, ValueError):
        yield f"the key of its stage {name} is not the digest of its record"
        return
    for each in wrong:
        yield f"the {each} of its stage {name} is another one than in its settings"


def _claims(kind: str, params: Json, config: Mapping[str, Json]) -> Iterator[tuple[Json, Json]]:
    """Yield settings of a stage's record, each time with a block of a result that states them."""
    names = {each: config[each]["name"] for each in ("policy", "task", "model")}
    if kind in TRAININGS:
        spec = keys.plain(asdict(keys.from_json(Training, params["spec"])))
        yield (
            {key: value for key, value in spec.items() if key not in _OF_STAGE},
            config.get(kind) or {},
        )
    if kind == "intermediate":
        yield {"policy": params["policy"]}, names
        yield {**params["how"], **params["fields"]}, config["policy"]
    elif kind == "general":
        yield {"model": params["preset"]}, names
    elif kind in EXAMPLES.values():
        yield {"task": params["task"]["name"]}, names


def _agree(recorded: Json, claimed: Json) -> bool:
    """Return whether two values are equal, but for keys of blocks that only one of them has."""
    if isinstance(recorded, dict) and isinstance(claimed, dict):
        return all(_agree(recorded[key], claimed[key]) for key in recorded.keys() & claimed.keys())
    return bool(recorded == claimed)


def _of_answers(result: Result) -> Iterator[str]:
    """Yield a line if the score does not follow from the answers."""
    predictions.read_answers(result)  # raises DataError for other numbers or scores of answers
    total = result.metrics
    known = None if total is None else metrics.METRICS.get(total.metric)
    if total is None or known is None or known.short or known.version != total.version:
        return  # of a plugin, of another version, or of answers that the file does not have
    rows = list(predictions.rows(result.answers))
    try:
        answered = [(row["prediction"], [str(each) for each in row["targets"]]) for row in rows]
        again = metrics.total(total.metric, *zip(*answered, strict=True))
    except (IndexError, KeyError, TypeError, ValueError):
        yield "its predictions lack the answers that they are compared with"
        return
    pairs = zip(again.scores, (row["score"] for row in rows), strict=True)
    if any(abs(one - other) > _CLOSE for one, other in [*pairs, (again.score, total.score)]):
        yield f"{total.metric} of its predictions is {again.score:.6f}, not {total.score:.6f}"
