"""Folders of results in the format of `maskpolicy run`, without the run."""

import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from maskpolicy.analyses import PAGE_FACTS
from maskpolicy.core.files import part_of, write_file
from maskpolicy.core.keys import digest
from maskpolicy.core.types import Json
from maskpolicy.data import world
from maskpolicy.data.taskfiles import sources
from maskpolicy.experiment.parse import load_experiment
from maskpolicy.experiment.world_settings import SUBJECT_KINDS
from maskpolicy.leaderboard.board import Board
from maskpolicy.leaderboard.build import build_leaderboard
from maskpolicy.leaderboard.results import predictions
from maskpolicy.leaderboard.results.cell import STEP, VERSION, Run, cell_name, read_run
from maskpolicy.leaderboard.results.collecting import collect
from maskpolicy.pipeline.stages import build
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.plugins import discovery, registry
from maskpolicy.plugins.discovery import find_plugin

GROUPS = {
    **dict.fromkeys(("triviaqa", "webquestions", "nq"), "closed-book"),
    **dict.fromkeys(("aidayago2", "zsre", "wow"), "knowledge-intensive"),
    **dict.fromkeys(("wiqa", "quartz", "ropes"), "multiple-choice"),
}
CELL_STAGES = ("finetune", "evaluate")
BUDGET = {"steps": 1000, "lr": 1e-3, "batch_size": 32, "precision": "bf16", "schedule": "linear"}
WORK = {"passages": 32000, "passages_without_span": 12, "hidden_tokens": 9, "target_tokens": 9}
VERSIONS = {"maskpolicy": "0.1.0", "python": "3.11.7", "torch": "2.13.0", "transformers": "5.23.0"}


def write(
    folder: Path,
    policies: Mapping[str, float],
    tasks: Sequence[str] = ("triviaqa", "zsre"),
    *,
    seeds: int = 3,
    runs: int | None = None,
    general_seeds: int = 1,
    first: int = 0,
    data: str = "world",
    n: int = 60,
    text: str = "an answer",
    majority: float | None = None,
    **changes: Any,
) -> Path:
    """Write results, predictions, questions, experiment.json and run.json; return the folder.

    `policies` gives each row its share of right answers; the first is the baseline and has no
    intermediate stage. Seeds share `runs` intermediate runs, by default each has its own; both are
    counted from `first`. They start from `general_seeds` general models. `data` is where the tasks
    lie, `majority` what a guess reaches on each of them. Three examples share a group. `changes` go
    to every cell's config.
    """
    runs = runs or seeds
    stages: dict[str, str] = {}
    for task in tasks:
        asked = [f'{{"id": "{task}-{i}", "source": "what of {task} {i}?"}}\n' for i in range(n)]
        write_file(predictions.questions_file(folder, task), "".join(asked).encode())
        for index, (policy, share) in enumerate(policies.items()):
            for number in range(seeds):
                seed, run = first + number, first + number % runs
                rng = np.random.default_rng([index, seed, *task.encode()])
                right = (rng.random(n) < share).tolist()
                config: dict[str, Json] = {
                    "policy": {"name": policy, "ratio": 0.15} if index else {"name": "none"},
                    "task": {"name": task, "data": data, "context": False},
                    **{"model": {"name": "mini"}, "finetune": BUDGET, "general": BUDGET},
                    **{"general_seeds": general_seeds, "general_seed": run % general_seeds},
                }
                names = [f"{kind} {policy}, {task}, seed {seed}" for kind in CELL_STAGES]
                names = ["general mini", *names]
                if index:
                    config |= {"intermediate": BUDGET, "corpus": {"name": "world"}}
                    config |= {"intermediate_seeds": runs, "intermediate_seed": run}
                    names.append(f"intermediate {policy}, run {run}")
                keys = {name: name.encode().hex().ljust(64, "0")[-64:] for name in names}
                stages |= {key: name for name, key in keys.items()}
                score = {"version": 1, "score": float(np.mean(right)), "n": n}
                cell = {
                    **{"version": VERSION, "policy": policy, "task": task, "seed": seed},
                    **{"group": GROUPS[task], "config": {**config, **changes}, "stages": keys},
                    "metrics": {"metric": "exact_match", **score},
                    **{"work": WORK if index else None, "error": None},
                    "origin": data if data in ("world", "hub") else "files",
                }
                if majority is not None:
                    cell["majority"] = {"rule": "relation", "score": majority, "n": n, "dev": {}}
                put(folder, cell, answers(task, right, text))
    about = {
        "baseline": next(iter(policies)),
        "policies": [{"label": policy} for policy in policies],
        "tasks": [{"label": task} for task in tasks],
    }
    write_file(folder / "experiment.json", json.dumps(about).encode())
    write_file(folder / "run.json", json.dumps(record(stages)).encode())
    return folder


def run_experiment(folder: Path, text: str, out: str = "run") -> Path:
    """Write tiny.yaml to a folder and run it, with store/ as its store; returns the folder."""
    from maskpolicy.app.commands import app

    (folder / "tiny.yaml").write_text(text)
    words = ["run", folder / "tiny.yaml", "--out", folder / out, "--store", folder / "store"]
    assert not app([str(word) for word in words], standalone_mode=False)
    return folder


def collect_without_store(folder: Path, out: str, place: Path) -> Path:
    """Copy a run of tiny.yaml to `place`, and collect it with an empty store and no cell run."""
    experiment, store = load_experiment(folder / "tiny.yaml"), Store(place / "empty")
    copied = shutil.copytree(folder / out, place / out)
    collect(experiment, build(experiment, store.hash_file), {}, store, copied)
    return copied


def board(*where: Path, **settings: Any) -> Board:
    """Return the leaderboard of folders of results."""
    return build_leaderboard([read_run(folder) for folder in where], **settings)


def with_checkpoints(run: Run, store: Store, *steps: int, answered: bool = True) -> Run:
    """Return a run whose checkpoints at `steps` gave the same answers as its final models.

    With `answered` false, their predictions are not in the store.
    """
    early = []
    for step, result in product(steps, run.results):
        name = cell_name(result.policy, result.task, result.seed)
        key = digest(f"{name} {step}")
        if answered:
            with store.write(key, {}) as out:
                text = (run.folder / "predictions" / f"{name}.jsonl").read_bytes()
                (out / "predictions.jsonl").write_bytes(text)
        stages = {f"evaluate {result.policy}, step {step}": key}
        early.append(replace(result, config={**result.config, STEP: step}, stages=stages))
    return replace(run, early=tuple(early))


def change(folder: Path, pattern: str, **changes: Json) -> None:
    """Put values into the results whose file names match; blocks are merged."""

    def merged(old: Json, new: Json) -> Json:
        if not (isinstance(old, dict) and isinstance(new, dict)):
            return new
        return {**old, **{key: merged(old.get(key), value) for key, value in new.items()}}

    for path in (folder / "results").glob(pattern):
        path.write_text(json.dumps(merged(json.loads(path.read_text()), changes)))


def edited(folder: Path, pattern: str = "*") -> Iterator[Any]:
    """Yield what each line of the JSON files that match holds, and write what becomes of it."""
    for path in folder.glob(pattern):
        values = [json.loads(line) for line in path.read_text().splitlines()]
        yield from values
        path.write_text("".join(f"{json.dumps(value)}\n" for value in values))


def contents(folder: Path, *without: str) -> dict[str, bytes]:
    """Return the bytes of all files below a folder, but for those with some names."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in without
    }


def put(folder: Path, result: Json, rows: Sequence[Json]) -> None:
    """Write one cell's two files."""
    name = cell_name(result["policy"], result["task"], result["seed"])
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    write_file(folder / "predictions" / f"{name}.jsonl", lines.encode())
    write_file(folder / "results" / f"{name}.json", json.dumps(result).encode())


def put_analysis(folder: Path, name: str, size: int = 0, **found: Json) -> Path:
    """Write an analysis as `maskpolicy analyze` does, with a plot of `size` bytes; return it."""
    place = folder / "analyses" / name
    place.mkdir(parents=True)
    discovery.load_builtin("analysis")
    own = registry.entry("analysis", name).facts if name in registry.names("analysis") else {}
    facts = {fact: own[fact] for fact in PAGE_FACTS if own}
    document = {"analysis": name, "rows": [{"policy": "random"}], **facts, **found}
    (place / f"{name}.json").write_text(json.dumps(document))
    if size:
        (place / f"{name}.svg").write_text(f"<svg>{' ' * size}</svg>")
        (place / f"{name}.png").write_bytes(b"p" * (size // 3))
    return place


def put_viewer(folder: Path, text: str = "Ada met Bob in Rome.", label: str = "random") -> Path:
    """Write findings of the viewer: a text with the masks of two rows, one of them `label`."""
    marks = [[0, 3, 1.0], [8, 11, 0.0]]
    first = {"kind": "marked", "label": f"{label} — passage 7-1", "text": text, "marks": marks}
    other = first | {"label": "salient-span", "marks": [[15, 19, 1.0]]}
    return put_analysis(folder, "viewer", plots=[first, other])


def answers(task: str, right: Sequence[bool], text: str = "an answer") -> list[Json]:
    """Return the rows of predictions/*.jsonl."""
    return [
        {
            "id": f"{task}-{index}",
            "group": f"page {index // 3}",
            "prediction": text if one else f"{text}, wrong",
            "targets": [text, f"the {text}"],
            "score": float(one),
            "slices": {},
        }
        for index, one in enumerate(right)
    ]


def record(stages: Mapping[str, str]) -> Json:
    """Return run.json of a run of these stages, named by key."""
    return {
        "finished": "2026-11-21T03:00:00+00:00",
        "seconds": 512.5,
        "hardware": "a processor",
        "versions": VERSIONS,
        "commit": "0" * 40,
        "machine": {"name": "secret-host", "system": "Linux"},
        "stages": [
            {"key": key, "label": name, "seconds": 1.25, "made_with": None}
            for key, name in stages.items()
        ],
    }


def half_written(path: Path, seconds: float) -> Path:
    """Write what a process that was killed `seconds` ago left, while it wrote a file."""
    part = part_of(path)
    part.parent.mkdir(parents=True, exist_ok=True)
    part.write_text("half")
    os.utime(part, (time.time() - seconds,) * 2)
    return part


def official(folder: Path) -> Path:
    """Write files of all tasks and a knowledge source as official ones lie; return their folder.

    GLUE's tasks that the world lacks have empty files: a plan reads none.
    """
    settings = {"people": 6, "general_people": 4, "writers": 4, "birds": 4, "salts": 4}
    world.write(world.make({**settings, "kinds": list(SUBJECT_KINDS)}), folder)
    discovery.load_builtin("task")
    for task in ("sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte"):
        facts = sources.facts(find_plugin("task", task))
        for name in facts.files.values():
            place = folder / "tasks" / "".join(facts.folders[:1])
            path = place / name.format(edition="".join(facts.editions[:1]))
            path.parent.mkdir(exist_ok=True)
            path.touch()
    return folder / "tasks"
