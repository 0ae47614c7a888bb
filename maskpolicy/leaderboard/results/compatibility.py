"""Rules for the settings that may differ between results of one leaderboard."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from maskpolicy.core import keys
from maskpolicy.core.types import Json
from maskpolicy.data.taskfiles.sources import SPLITS
from maskpolicy.experiment.budgets import TRAININGS
from maskpolicy.experiment.definition import WORLD, untuned
from maskpolicy.leaderboard.results.cell import Result

_EXECUTION = {  # of each training
    "precision": "differs only in rounding, like another seed; a board notes it",
    "attention": "the same arithmetic in another order",
    "compile": "the same arithmetic in another order",
    "micro_tokens": "splits a batch differently; its loss is still the mean over all its tokens",
    "checkpoint_every": "how often the state of a training is saved",
}
HARMLESS: Mapping[str, str] = {
    **{f"{name}.{key}": why for name in TRAININGS for key, why in _EXECUTION.items()},
    "finetune.seed": "not used: fine-tuning takes `seeds`",
    "intermediate.seed": "other draws of the same runs; such rows are not joined into one",
    "fit.seed": "other draws of the same fits; such rows are not joined into one",
    "policy": "what a board compares; the row's name has the settings that are not defaults",
    "policies": "the rows of a board",
    "trainings": "what a row has instead of the file's budgets and corpus, named in its label; "
    "the budgets and the corpus themselves are compared",
    "grid": "rows written in short",
    "zip": "rows written in short",
    "tune": "a row uses the best of these values; rows with other values are other rows",
    "tasks": "the columns of a board; the data of each is compared as TASK.task",
    "data": "the default of task.data, which is compared",
    "task.metrics": "the metric that ranks is compared; the others are reported",
    "seeds": "results of other seeds are joined; differences are paired by seed",
    "intermediate_seeds": "the number of runs of one experiment",
    "intermediate_runs": "the numbers of these runs",
    "intermediate_seed": "the run of one result; a test counts the runs",
    "general_seeds": "the number of general models of one experiment",
    "general_seed": "the general model of one result; compared for each seed",
    "baseline": "the row with which others are compared; a board names it",
    "plugins": "the files of plugins; other code of a policy makes another row",
    "keep_models": "which models stay in the store",
    "checkpoint_steps": "checkpoints, which leaderboards do not read",
    "checkpoint_words": "becomes checkpoint_steps",
    "annotate": "which passages a policy annotates; those that are read have the same columns",
    "tracker": "writes loss curves",
    "resources": "processes and devices of stages; in no result",
    "slurm": "jobs of a cluster; in no result",
}
"""Settings that may differ within one leaderboard, and why; other differences raise an error."""

_OF_STEPS = ("eval_every", "patience")  # are 0 where they have no effect
_MERGED = (
    "finetune.seed",
    *(f"{name}.{key}" for name in TRAININGS for key in _EXECUTION),
)
"""Harmless settings that may differ even within one row, e.g. between machines."""

_READS = {
    "world": "world",
    "contrast_corpus": "corpus contrast",
    "model": "pretrained",
}
"""The stage that reads the contents of a section: if its keys are equal, so are the contents."""

_CORPORA = ("corpus", "contrast_corpus")
_GENERAL_TEXT = "general.corpus"
_NUMBERS = ("seed", "seeds")  # suffixes: the run or model of a result, and their number


@dataclass(frozen=True)
class ComparedPart:
    """One dependency of a result; two parts are compared by key if both have one."""

    settings: Json
    key: str | None = None  # of the stage that reads its contents, if there is such a stage

    @property
    def identity(self) -> Json:
        """A value that is equal for equal parts, independent of the location of files."""
        return self.key or self.settings


def parts(result: Result) -> dict[str, ComparedPart]:
    """Return the dependencies of a result by name, without harmless settings.

    A row without an intermediate stage has no part for that stage.
    """
    config, left_out = result.config, {*HARMLESS, _GENERAL_TEXT}
    found = {
        name: ComparedPart(_settings(name, config[name], left_out), _reads(result, name))
        for name in ("model", "world", "general", *_CORPORA, "fit", "intermediate")
        if name in config
    }
    if "finetune" in config and result.is_fine_tuned:
        shared, own = _finetuning(result, HARMLESS)
        found["finetune"] = ComparedPart(shared)
        found |= {f"{result.task}.finetune": ComparedPart(own)} if own else {}
    found["tokenizer"] = ComparedPart({}, result.stage_key("tokenizer"))
    if "general" in config:  # differences are paired by seed, and so by general model
        found[f"seed {result.seed}"] = ComparedPart({"general_seed": config.get("general_seed", 0)})
        text = config["general"].get("corpus")
        found[_GENERAL_TEXT] = ComparedPart(text, result.stage_key("corpus general"))
    for kind, version in (result.code or {}).get("versions", {}).items():
        found[f"version of {kind}"] = ComparedPart(version)
    return {**found, **_questions(result), **_learned_from(result)}


def identity(result: Result) -> dict[str, Json]:
    """Return what all results of one row have in common, besides its label.

    Fine-tuning is left out, because some tasks have none. What a row chooses on dev is left out:
    each task may have another choice, and a cell that failed has none.
    """
    numbers = [f"{stage}_{end}" for stage in ("general", "intermediate") for end in _NUMBERS]
    harmless = {*_MERGED, _GENERAL_TEXT, *result.config.get("tune", {})}
    left_out = ("task", "world", "train_on", "trainings", "finetune", *numbers)
    found: dict[str, Json] = {
        name: ComparedPart(_settings(name, block, harmless), _reads(result, name)).identity
        for name, block in result.config.items()
        if name not in left_out
    }
    if tune := result.config.get("tune"):
        found["policy"] = untuned(result.config["policy"], tune)
    found["tokenizer"] = result.stage_key("tokenizer")
    found |= {name: part.identity for name, part in _learned_from(result).items()}
    return {name: value for name, value in found.items() if value is not None}


def loose(result: Result) -> dict[str, Json]:
    """Return what the results of one row have in common if they state it at all.

    This is the world, which not all columns read; fine-tuning, which pairs do without; the
    questions and the metric of each column; and versions and code.
    """
    shared = identity(result)
    found = {name: part.identity for name, part in parts(result).items() if name not in shared}
    if "finetune" in found:
        shared_by_columns, _ = _finetuning(result, {*_MERGED, *tuned_keys(result)})
        del found["finetune"]  # a column may have some of the settings for itself
        found |= {f"finetune.{key}": value for key, value in shared_by_columns.items()}
    code = (result.code or {}).get("policy")
    found |= {} if code is None else {"code": code}
    if result.chosen is not None:
        found[f"choice of {result.task}"] = result.chosen
    return found


def tuned_keys(result: Result) -> dict[str, None]:
    """Return the settings that tuning chose for a result, or that depend on those that it chose."""
    tuned = dict.fromkeys(result.config.get("tune", {}))
    if {"finetune.steps", "finetune.eval_every"} & {*tuned}:
        tuned |= {f"finetune.{name}": None for name in _OF_STEPS}
    return tuned


def differences(name: str, one: ComparedPart, other: ComparedPart) -> list[str]:
    """Return "key: value -> value" for each setting in which two parts of one name differ."""
    if one.key and one.key == other.key:
        return []
    return keys.differences(one.settings, other.settings, name)


def own_settings(result: Result) -> frozenset[str]:
    """Return the settings of trainings that a result's label names, or that its row chose.

    With steps, the label names the default warm-up, which depends on them.
    """
    trainings = result.config.get("trainings", {})
    names = {f"{stage}.{key}" for stage, values in trainings.items() for key in values}
    own = {name for name in names if re.search(rf" {re.escape(name)}[.=]", result.policy)}
    warmups = {f"{name.removesuffix('steps')}warmup" for name in own if name.endswith(".steps")}
    return frozenset([*own, *(warmups & names), *result.config.get("tune", {})])


def without(part: ComparedPart, name: str, left_out: Container[str]) -> ComparedPart:
    """Return the part of that name without the settings in `left_out`.

    A column's own fine-tuning is a part COLUMN.finetune.
    """
    section = "finetune" if name.endswith(".finetune") else name
    return ComparedPart(_settings(section, part.settings, left_out), part.key)


def contents(name: str, one: ComparedPart, other: ComparedPart) -> list[str]:
    """Return a line if two parts have the same settings but different contents."""
    if not (one.key and other.key) or one.key == other.key:
        return []
    about = f"{name} (the same settings, but other files, or read by other code)"
    return keys.differences(one.key, other.key, about)


def of_world(name: str, one: Result, other: Result) -> list[str]:
    """Return the settings of the world that explain why the contents of a part differ."""
    mine, theirs = parts(one), parts(other)
    if not contents(name, mine[name], theirs[name]):
        return []
    if not (_is_of_world(name, one) and _is_of_world(name, other)):
        return []
    return differences("world", mine["world"], theirs["world"])


def _is_of_world(name: str, result: Result) -> bool:
    """Whether the contents of a part are generated from the embedded world."""
    config = result.config
    if "world" not in config:
        return False
    if name in _CORPORA:
        return bool(config[name].get("name") == WORLD)
    if name == f"{result.task}.task":
        return bool(config["task"].get("data") == WORLD)
    return name in ("model", "tokenizer", _GENERAL_TEXT) and "general" in config


def notes(results: Sequence[Result]) -> list[str]:
    """Return a note for each training whose precision differs between results."""
    lines = []
    for name in TRAININGS:
        blocks = [result.config.get(name, {}) for result in results]
        values = sorted({str(block["precision"]) for block in blocks if "precision" in block})
        if len(values) > 1:
            why = HARMLESS[f"{name}.precision"].partition(";")[0]
            lines.append(f"{name}.precision is {' and '.join(values)}: {why}")
    return lines


def _finetuning(result: Result, left_out: Container[str]) -> tuple[Json, Json]:
    """Return the settings of a result's fine-tuning that all columns share, and its column's own.

    A setting that the row has for itself is not its column's own, except for `_OF_STEPS`, which
    depend on other settings of a column.
    """
    settings = _settings("finetune", result.config["finetune"], left_out)
    of_task = result.config.get("task", {}).get("finetune")
    stated = set(of_task if isinstance(of_task, Mapping) else ())
    stated -= set(result.config.get("trainings", {}).get("finetune", ()))
    stated |= set(_OF_STEPS if stated & {"steps", "eval_every"} else ())
    own = {key: value for key, value in settings.items() if key in stated}
    return {key: settings[key] for key in settings.keys() - own.keys()}, own


def _questions(result: Result) -> dict[str, ComparedPart]:
    """Return the parts of a result's column: the questions, and how answers are scored."""
    task = _settings("task", result.config.get("task", {}), HARMLESS)
    read = [result.examples_key(split) for split in SPLITS]
    key = keys.digest(read) if read[-1] else None  # pairs are only in test
    found = {f"{result.task}.task": ComparedPart(task, key)}
    if result.metrics is not None:
        scored = {
            "metric": result.metrics.metric,
            "metric version": result.metrics.version,
            "n": result.metrics.n,
        }
        found[result.task] = ComparedPart(scored)
    return found


def _learned_from(result: Result) -> dict[str, ComparedPart]:
    """Return the tasks that a learned policy was fitted on, by their names in `train_on`.

    The names are a field of the policy and may differ; the data of each name may not.
    """
    blocks = result.config.get("train_on", ())
    policy = result.config.get("policy", {})
    named = list(policy.get("train_on") or ()) if isinstance(policy, Mapping) else []
    names = [*named, *(block["name"] for block in blocks[len(named) :])]
    return {
        f"train_on.{name}": ComparedPart(
            _settings("task", block, HARMLESS), result.stage_key(f"contexts {name}")
        )
        for name, block in zip(names, blocks, strict=False)
    }


def _settings(name: str, block: Json, left_out: Container[str]) -> Json:
    """Return a section without the settings in `left_out`."""
    if not isinstance(block, Mapping):
        return block
    return {key: value for key, value in block.items() if f"{name}.{key}" not in left_out}


def _reads(result: Result, name: str) -> str | None:
    """Return the key of the stage that reads the contents of a section."""
    if name == "corpus":
        return result.corpus_key
    return result.stage_key(_READS[name]) if name in _READS else None
