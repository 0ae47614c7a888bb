"""The result of one (policy, task, seed) and its JSON file; `collecting` writes the files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from maskpolicy.core import schema
from maskpolicy.core.errors import ConfigError, DataError, listed
from maskpolicy.core.files import json_bytes, json_or_none, read_json, slug
from maskpolicy.core.metrics import Total
from maskpolicy.core.types import Json
from maskpolicy.data.taskfiles import audit
from maskpolicy.experiment.budgets import TRAININGS
from maskpolicy.experiment.definition import ModelKind
from maskpolicy.experiment.model_and_corpus import in_words
from maskpolicy.experiment.yaml_file import CONTROLS
from maskpolicy.leaderboard.results.run_folder import check_whole
from maskpolicy.pipeline.stages.params import EXAMPLES

VERSION = 1
SETTINGS = "experiment.json"  # all resolved settings
LEFT_OUT = "left_out"  # key of SETTINGS with the cells that --only left out
_CORPUS = "corpus intermediate "  # begins the names of a row's corpora, with a blank at the end
# the types of what a stranger, or another version, may have written
_CONFIG: Mapping[str, Any] = {
    **dict.fromkeys(("policy", "task", "model", "world", "corpus", "contrast_corpus"), dict),
    "tune": dict[str, list[Any] | str],
    **dict.fromkeys(TRAININGS, dict),
    **{f"{name}_{end}": int for name in ("general", "intermediate") for end in ("seed", "seeds")},
    "trainings": dict[str, dict[str, Any]],
}
_MODEL: Mapping[str, Any] = {"name": str, "kind": ModelKind}
_TRAINING: Mapping[str, Any] = {"steps": int, "lr": float, "policy": dict | None}
_TUNING: Mapping[str, Any] = {
    **dict.fromkeys(("by", "label"), str),
    **{"tried": list[dict[str, Any]], "scores": list[float], "chosen": int, "tasks": list[str]},
    **{"seeds": list[int], "cost": dict[str, dict[str, int]]},
}
_SETTINGS: Mapping[str, Any] = {"baseline": str, LEFT_OUT: list[str]}
TOKENS = ("source_tokens", "target_tokens", "feedback_tokens")  # of a result's work
EARLY, STEP = "steps", "intermediate_step"  # folder of early cells, and the config key of the step


@dataclass(frozen=True)
class Result:
    """The result of one cell (policy, task, seed); identical if the run is repeated.

    A file is checked for the types of the fields.
    """

    policy: str
    task: str
    seed: int
    group: str  # of the task
    config: dict[str, Json]  # all resolved settings that the cell depends on
    stages: Mapping[str, str]  # name -> key of every stage that the cell depends on
    metrics: Total | None = None  # None if the cell failed
    work: Mapping[str, float] | None = None  # of the intermediate stage: hidden_tokens, ..
    error: str | None = None  # one line, if the cell failed
    origin: str = ""  # of the questions: world, hub or files
    # {"versions": of the stages' code, "policy": digest}; None if unknown
    code: dict[str, Json] | None = None
    majority: dict[str, Json] | None = None  # a guess without a model: rule, score (0..1), ..
    audit: dict[str, Json] | None = None  # of the task's data: test examples in train, cut texts
    tuning: dict[str, Json] | None = None  # of a tuned row: what was tried, chosen, and spent
    shrunk: dict[str, Json] | None = None  # by training, where memory ran out: micro_tokens, step
    weights: str | None = None  # digest of the general model's weights; None if not in the store
    # passages, words and tokens of the intermediate stage's corpus; None if not in the store
    text: Mapping[str, int] | None = None
    folder: Path = Path()  # of its run; not in the file

    def __hash__(self) -> int:
        """Hash the names of the cell and its folder."""
        return hash((self.policy, self.task, self.seed, self.folder))

    @property
    def percent(self) -> float | None:
        """The score in percent; None if the cell failed."""
        return None if self.metrics is None else 100 * self.metrics.score

    def stage_key(self, name: str) -> str | None:
        """Return the key of the first stage with this name (kind and label) or kind, if any."""
        keys = (key for known, key in self.stages.items() if name in (known, known.split(" ")[0]))
        return next(keys, None)

    def fitted(self) -> dict[str, str]:
        """Return the keys of the row's fitted policies, its own or its members', by label.

        Policies from which these start are left out.
        """
        end, found = f", run {self.config.get('intermediate_seed', 0)}", {}
        for stage, key in self.stages.items():
            learned = stage.removeprefix("fit ").removesuffix(end)
            is_member = learned.startswith(f"{self.trained_as}, member ") and learned.endswith(")")
            if stage == f"fit {learned}{end}" and (learned == self.trained_as or is_member):
                found[learned.replace(self.trained_as, self.policy, 1)] = key
        return found

    def examples_key(self, split: str) -> str | None:
        """Return the key of the stage that read a split of the task, if any."""
        return self.stages.get(f"{EXAMPLES[split]} {self.task}")

    @property
    def corpus_key(self) -> str | None:
        """The key of the corpus that the row's intermediate stage reads; None without one.

        The name of a corpus into which texts are mixed is that of the one without them, and more.
        If the general stage reads the same corpus, the stage has that name alone.
        """
        found = [name for name in self.stages if f"{name} ".startswith(_CORPUS)]
        if not found and "intermediate" in self.config:
            return self.stage_key("corpus general")
        return self.stages[max(found, key=len)] if found else None

    @property
    def chosen(self) -> dict[str, Json] | None:
        """The values that a tuned row chose, by key; None for other rows."""
        if self.tuning is None:
            return None
        return self.tuning["tried"][self.tuning["chosen"]]

    @property
    def is_fine_tuned(self) -> bool:
        """Whether the model was fine-tuned on the task; True if the stages are unknown."""
        return not self.stages or self.stage_key("finetune") is not None

    @property
    def trained_as(self) -> str:
        """The row's label in the names of its stages: for a tuned row, that of its candidate."""
        return self.policy if self.tuning is None else str(self.tuning["label"])

    @property
    def answers(self) -> Path:
        """The file with the cell's predictions, in the folder of its run."""
        name = cell_name(self.policy, self.task, self.seed)
        return self.folder / "predictions" / f"{name}.jsonl"

    def to_json(self) -> dict[str, Json]:
        """Return the contents of the cell's file, without the version."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        del values["folder"]
        for name in ("tuning", "shrunk", "weights", "text"):
            if values[name] is None:
                del values[name]
        return {**values, "metrics": self.metrics and self.metrics.to_json()}


_FORMS: Mapping[str, Any] = {**get_type_hints(Result), "metrics": dict | None}


@dataclass(frozen=True)
class Run:
    """The results in one folder, with rows and columns in the order of its experiment."""

    folder: Path
    results: tuple[Result, ...]
    baseline: str
    policies: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    early: tuple[Result, ...] = ()  # of checkpoints of the intermediate stage
    experiment: str = ""  # its name, "" if unknown
    left_out: tuple[str, ...] = ()  # file names of cells that --only left out
    dropped: tuple[str, ...] = ()  # file names of cells that the experiment no longer has
    alias: str = ""  # its name among several runs, as `named_apart` gives it

    @property
    def name(self) -> str:
        """The name of the folder; among several runs, one that no other run has."""
        return self.alias or self.folder.resolve().name

    @property
    def about_dropped(self) -> str:
        """A note with the stored results that the experiment no longer has, or ""."""
        if not self.dropped:
            return ""
        count = len(self.dropped)
        cells = "result of a cell" if count == 1 else "results of cells"
        return (
            f"not on this board, but kept in results/: {count} {cells} that the experiment no "
            f"longer has ({listed(self.dropped)})"
        )

    @property
    def tuned(self) -> list[Json]:
        """What each tuned row chose, once for each choice."""
        choices: dict[tuple[str, ...], Json] = {}
        for one in self.results:
            if one.tuning is not None:
                about = {"row": one.policy, "values": one.chosen, **one.tuning}
                choices[one.policy, one.tuning["by"], *one.tuning["tasks"]] = about
        return list(choices.values())

    @property
    def rows(self) -> list[str]:
        """The labels of all rows: those of the experiment, then others found in results."""
        return list(dict.fromkeys([*self.policies, *(one.policy for one in self.results)]))

    @property
    def columns(self) -> list[str]:
        """The labels of all columns: those of the experiment, then others found in results."""
        return list(dict.fromkeys([*self.tasks, *(one.task for one in self.results)]))


def read_run(folder: Path) -> Run:
    """Read the results of a folder that `maskpolicy run` wrote; raises DataError."""
    check_whole(folder)
    paths = current_files(folder, "results")
    if not paths:
        near, is_there = _run_near(folder), folder.exists()
        raise DataError(
            f"{folder}: {'no results/*.json' if is_there else 'no such folder'}: name a folder "
            "that `maskpolicy run` wrote"
            f"{f', such as {near}' if near else ''}"
        )
    results = tuple(read_result(path) for path in paths)
    early = tuple(read_result(path) for path in current_files(folder, EARLY))
    if any(not isinstance(result.config.get(STEP), int) for result in early):
        raise DataError(f"{folder / EARLY}: a file has no {STEP}: remove it and run again")
    config = read_settings(folder)
    try:
        cells = _cells(folder) or ()
        return Run(
            folder=folder,
            results=results,
            baseline=config.get("baseline", "none"),
            policies=_labels(config.get("policies", ())),
            tasks=_labels(config.get("tasks", ())),
            early=early,
            experiment=str(config.get("name", "")),
            left_out=tuple(name for name in config.get(LEFT_OUT, ()) if name in cells),
            dropped=dropped(folder, results),
        )
    except (AttributeError, KeyError, TypeError):
        raise _foreign(folder) from None


def _run_near(path: Path) -> Path | None:
    """Return a run in a folder, around it, or of its name below runs/; None if there is none."""
    inside = sorted(path.iterdir()) if path.is_dir() else []
    near = (*inside, path.parent, Path("runs") / path)
    return next((each for each in near if each != path and (each / "results").is_dir()), None)


def _labels(blocks: Json) -> tuple[str, ...]:
    """Return the labels of rows or columns; raises TypeError for one that is not text."""
    labels = tuple(block["label"] for block in blocks)
    if not all(isinstance(label, str) for label in labels):
        raise TypeError("label")
    return labels


def read_settings(folder: Path) -> dict[str, Json]:
    """Return a run's resolved settings, or {} if the folder has none; raises DataError."""
    path = folder / SETTINGS
    found = read_json(path) if path.is_file() else {}
    if not isinstance(found, dict):
        raise _foreign(folder)
    _check(found, _SETTINGS, path)
    return found


def plugin_files(folder: Path) -> list[str]:
    """Return the plugin files named by a run's settings; for messages only, never load them."""
    named = read_settings(folder).get("plugins") or []
    return [name for name in named if isinstance(name, str)] if isinstance(named, list) else []


def dropped(folder: Path, shown: Iterable[Result]) -> tuple[str, ...]:
    """Return the names of stored results whose cells the experiment no longer has.

    Results that are among those `shown`, under the label of another row, are left out.
    """
    cells, keys = _cells(folder), {one.stage_key("evaluate") for one in shown if one.metrics}
    if cells is None:
        return ()
    names = []
    for path in sorted((folder / "results").glob("*.json")):
        with suppress(DataError):  # a damaged file is named
            if path.stem in cells or read_result(path).stage_key("evaluate") in keys:
                continue
        names.append(path.stem)
    return tuple(names)


def absent(folder: Path) -> list[str]:
    """Return the names of the cells of a folder's experiment that have no result and should."""
    left_out = read_settings(folder).get(LEFT_OUT, ())
    there = {path.stem for path in (folder / "results").glob("*.json")}
    return sorted((_cells(folder) or set()) - {*left_out, *there})


def current_files(folder: Path, kind: str) -> list[Path]:
    """Return the files of results of the experiment's cells that were not left out."""
    known = _cells(folder, early=kind == EARLY)
    left_out = read_settings(folder).get(LEFT_OUT, ())
    return [
        path
        for path in sorted((folder / kind).glob("*.json"))
        if known is None or (path.stem in known and path.stem not in left_out)
    ]


def _cells(folder: Path, early: bool = False) -> set[str] | None:
    """Return the names of the cells of a folder's experiment, or None if they are unknown.

    `early` selects the cells of checkpoints of the intermediate stage.
    """
    config = read_settings(folder)
    if not {"policies", "tasks", "seeds"} <= config.keys():
        return None
    try:
        cells = [
            (row["label"], task["label"], seed)
            for row in config["policies"]
            for task in config["tasks"]
            for seed in config["seeds"]
        ]
        steps = config.get("checkpoint_steps", ()) if early else (None,)
        return {cell_name(*cell, step) for cell in cells for step in steps}
    except (KeyError, TypeError):
        raise _foreign(folder) from None


def _foreign(folder: Path) -> DataError:
    return DataError(f"{folder / SETTINGS}: not written by `maskpolicy run`: remove it")


def cell_name(policy: str, task: str, seed: int, step: int | None = None) -> str:
    """Return the name of a cell's files, without extension; that of an early cell has its step."""
    name = f"{slug(policy)}--{slug(task)}--{seed}"
    return name if step is None else f"{name}--{step}"


def fingerprint(folder: Path) -> str:
    """Return a digest of a run's results, those of checkpoints included, and its baseline."""
    files = [*current_files(folder, "results"), *current_files(folder, EARLY)]
    settings = json_or_none(folder / SETTINGS)
    baseline = settings.get("baseline") if isinstance(settings, dict) else None
    parts = [path.read_bytes() for path in files] + [str(baseline).encode()]
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def read_result(path: Path) -> Result:
    """Read the result in a file of a run's folder, results/*.json; raises DataError."""
    values = read_json(path)
    try:
        if values.pop("version") != VERSION:
            raise DataError(
                f"{path}: written by another version of maskpolicy: run its experiment again"
            )
        _check(values, _FORMS, path)
        _check(values["config"], _CONFIG, path, "config.")
        for name in TRAININGS:
            _check(values["config"].get(name, {}), _TRAINING, path, f"config.{name}.")
        _check(values["config"].get("model", {}), _MODEL, path, "config.model.")
        _check(values.get("metrics") or {}, get_type_hints(Total), path, "metrics.")
        _check(values.get("code") or {}, {"versions": dict[str, int]}, path, "code.")
        _check(values.get("tuning") or {}, _TUNING, path, "tuning.")
        metrics = values.pop("metrics", None)
        total = None if metrics is None else Total.from_json(metrics)
        result = Result(**values, metrics=total, folder=path.parent.parent)
        if result.metrics is None and result.error is None:
            raise KeyError("metrics")
        if result.metrics is not None and not abs(result.metrics.score) <= 1:
            raise ValueError("score")
        json.dumps(result.config, allow_nan=False)  # raises an error for an infinite number
        in_words(result.config.get("corpus", {}))  # and this without a list of files
        general = result.config.get("general", {}).get("policy") or {"name": ""}
        named = (result.config["policy"], result.config["task"], general)
        names = [result.policy, result.task, *(block["name"] for block in named)]
        if CONTROLS.search("".join(names)):
            raise ValueError("labels")
        if result.tuning is not None:
            _ = (result.chosen, [result.tuning[name] for name in _TUNING])
        if result.audit is not None:
            _ = audit.notes(result.task, result.audit)
        if result.majority is not None:
            _ = (result.majority["rule"], float(result.majority["score"]))
        _ = [(int(one["micro_tokens"]), int(one["step"])) for one in (result.shrunk or {}).values()]
        return result
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        raise DataError(f"{path}: not a result that `maskpolicy run` wrote: remove it") from None


def _check(values: Json, forms: Mapping[str, Any], path: Path, place: str = "") -> None:
    """Raise DataError for a value that has another type than in a run's file."""
    for name, form in forms.items():
        try:
            if name in values:
                schema.check(values[name], form, f"{place}{name}")
        except ConfigError as error:
            raise DataError(f"{path}: {error}; remove the file, or run again") from None


def result_bytes(result: Result) -> bytes:
    """Return the contents of a result's file."""
    return json_bytes({"version": VERSION, **result.to_json()})


def named_apart(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Return the runs with names of their own, such as paper/zsre and findings/zsre."""
    names = names_of([run.folder for run in runs])
    return tuple(replace(run, alias=name) for run, name in zip(runs, names, strict=True))


def names_of(folders: Sequence[Path]) -> list[str]:
    """Return for each folder its name, and as much before it as only that folder has."""
    resolved = [folder.resolve() for folder in folders]
    return [_ending(folder, {*resolved} - {folder}) for folder in resolved]


def _ending(folder: Path, others: Collection[Path]) -> str:
    parts = folder.parts
    counts = range(1, len(parts))
    endings = (parts[-count:] for count in counts)
    own = (each for each in endings if all(other.parts[-len(each) :] != each for other in others))
    return Path(*next(own, parts)).as_posix()
