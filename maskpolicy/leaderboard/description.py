"""Describe what a leaderboard was measured on: model, budgets, seeds, and data of each column."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import MISSING, asdict, fields
from functools import partial
from pathlib import Path
from typing import Any

from maskpolicy.core import keys
from maskpolicy.core.errors import listed
from maskpolicy.core.types import Denoising, Json
from maskpolicy.experiment import model_and_corpus
from maskpolicy.experiment.definition import HUB, PRESETS, SEQ2SEQ, WORLD, ModelBlock, is_scratch
from maskpolicy.experiment.world_settings import Settings
from maskpolicy.leaderboard.board import Board, BoardRow, counted
from maskpolicy.leaderboard.results.cell import Result

INVENTED = "invented data"
FILES = "files"
_NAMED = 3  # the most rows that a fact names
_STAGES = {
    "general": "general stage",
    "fit": "fit of learned policies",
    "intermediate": "intermediate stage",
    "finetune": "fine-tuning",
}


def facts(board: Board, most: int | None = _NAMED) -> dict[str, str]:
    """Return model, budgets, data and seeds in words, by name.

    A value that rows do not share is followed by the labels of the rows that have it: of `most`
    rows, or of all.
    """

    drawn = {c.config.get("general_seed") for row in board.rows for c in row.cells.values()}

    def general_model(result: Result) -> str:  # "" if all seeds of all runs share one
        return str(result.config.get("general_seed", "")) if len(drawn) > 1 else ""

    by_row = partial(_by_row, board, most)
    if board.given is not None:
        return dict(board.given.facts)
    texts = {"model": by_row(model)}
    for name, title in _STAGES.items():
        told = partial(_stage, name)
        texts[title] = by_row(told, of_all=name == "general")
    texts[CHOICE] = by_row(choice)
    texts[COST] = by_row(cost)
    texts["corpus of the intermediate stage"] = by_row(_corpus)
    texts["masks of all rows"] = _shared_denoising(board)
    texts["embedded world"] = by_row(_world)
    texts["data"] = "; ".join(_data(board))
    texts["seeds"] = by_row(lambda result: str(result.seed))
    runs = by_row(lambda result: str(result.config.get("intermediate_seed", "")))
    texts["intermediate runs"] = f"one, number {runs}" if runs.isdecimal() else runs
    texts["general models"] = by_row(general_model)
    return {name: text for name, text in texts.items() if text}


def of_row(row: BoardRow, task: str) -> dict[str, str]:
    """Return data, model and budgets of a row's results on one task, for the CSV file."""
    first = next((cell for (of, _), cell in row.cells.items() if of == task), None)
    if first is None:
        return {}
    return {
        "data": f"{WORLD}: {INVENTED}" if first.origin == WORLD else first.origin,
        "model": model(first),
        **{name: _stage(name, first) for name in _STAGES},
        "tuned": choice(first),
        "tuning cost": cost(first),
    }


def _stage(name: str, result: Result) -> str:
    if name == "finetune" and not result.is_fine_tuned:
        return ""
    text = stage(result.config, name)
    own = name == "finetune" and result.config["task"].get("finetune")
    return f"{result.task} {text}" if own else text


def stage(config: Json, name: str) -> str:
    """Return the budget of one training in words, or "" if a result has no such stage."""
    block = config.get(name) or {}
    if "steps" not in block:
        return ""
    if not block["steps"]:
        return "none (0 steps)"
    what = "examples" if name == "finetune" else "passages"
    parts = [f"{'at most ' * bool(block.get('patience'))}{block['steps']} steps"]
    parts += [f"of {block['batch_size']} {what}"] if "batch_size" in block else []
    text = " ".join(parts)
    parts = [text, *([f"learning rate {block['lr']:g}"] if "lr" in block else [])]
    policy = block.get("policy")
    return ", ".join([*parts, *([f"policy {_policy(policy)}"] if policy else [])])


def _policy(block: Json) -> str:
    """Return the policy of a general stage in words, with those that it draws."""
    name, members = block["name"], block.get("members", ())
    return f"{name} of {' and '.join(map(_policy, members))}" if members else str(name)


def model(result: Result) -> str:
    """Return the model of a result in words."""
    block = result.config.get("model") or {}
    name, kind = block.get("name", "not known"), block.get("kind", SEQ2SEQ)
    if is_scratch(name, kind):
        encoder = "" if kind == SEQ2SEQ else f" {kind}"
        texts = [
            f"{key.replace('_', ' ')} {_plain(block[key])}" for key in _changed(block, ModelBlock)
        ]
        shape = f" ({', '.join(texts)})" if texts else ""
        world = " on the embedded world" if name in PRESETS[kind] else ""
        return f"{Path(name).name}{encoder}{shape}, built from scratch{world}"
    if Path(name).is_absolute():
        return f"{Path(name).name} (a local folder)"
    return f"{name} at {block['revision']}" if block.get("revision") else name


def _corpus(result: Result) -> str:
    block = result.config.get("corpus") or {}
    text = model_and_corpus.in_words(block, f"the embedded world ({INVENTED})")
    sizes = (f"{count:,} {unit}" for unit, count in sorted((result.text or {}).items()))
    return ", ".join([text, *sizes])


def _world(result: Result) -> str:
    block = result.config.get("world") or {}
    changed = (key for key in _changed(block, Settings) if key != "seed")
    texts = [f"{key.replace('_', ' ')} {_plain(block[key])}" for key in changed]
    return ", ".join([f"seed {block['seed']}", *texts]) if "seed" in block else ""


def _changed(block: Json, schema: Any) -> list[str]:
    """Return the keys of a block, besides name, kind and revision, that differ from defaults."""
    usual = {
        field.name: keys.plain(field.default)
        for field in fields(schema)
        if field.default is not MISSING and field.name not in ("name", "kind", "revision")
    }
    return [key for key, value in block.items() if key in usual and value != usual[key]]


def _shared_denoising(board: Board) -> str:
    """Return the settings of `Denoising` that differ from the default alike in all policies."""
    policies = [row.config for row in board.rows if row.config and row.config["name"] != "none"]
    texts = []
    for key, default in asdict(Denoising()).items():
        if policies and all(policy.get(key, default) != default for policy in policies):
            values = {_plain(policy[key]) for policy in policies}
            texts += [f"{key} {min(values)}"] if len(values) == 1 else []
    return ", ".join(texts)


def _data(board: Board) -> list[str]:
    """Return a text with the columns of each source of data."""
    columns = [board.column(task) for task in board.tasks]
    named = {
        WORLD: f"{INVENTED} (the embedded world, in the data sets' file formats)",
        HUB: "read from the Hub",
        FILES: "read from local files",
    }
    texts = []
    for name, text in named.items():
        tasks = [each.task for each in columns if name in each.sources]
        if tasks:
            texts.append(f"{', '.join(tasks)}: {text}")
    return texts


def _by_row(
    board: Board, most: int | None, describe: Callable[[Result], str], *, of_all: bool = False
) -> str:
    """Return the value that all rows share, or each value with the labels of its rows.

    A row whose results differ has all of their values. Rows without a value are not named; with
    `of_all`, a value that only some rows have is followed by their labels.
    """
    rows_of: dict[str, list[str]] = {}
    for row in board.rows:
        texts = {describe(cell) for cell in row.cells.values()} - {""}
        in_order = sorted(texts, key=lambda text: (int(text) if text.isdecimal() else 0, text))
        if texts:
            rows_of.setdefault(", ".join(in_order), []).append(row.label)
    without_value = len(board.rows) - sum(map(len, rows_of.values()))
    if len(rows_of) < 2 and not (of_all and without_value):
        return next(iter(rows_of), "")
    return "; ".join(
        f"{text} ({listed(rows, most=most or len(rows))})" for text, rows in rows_of.items()
    )


def _plain(value: Json) -> str:
    return "+".join(map(str, value)) if isinstance(value, list | tuple) else str(value).lower()


CHOICE, COST = "tuned on dev", "cost of tuning"  # names of facts
_TRAININGS = {
    "fit": "fits of learned policies",
    "intermediate": "intermediate trainings",
    "finetune-classifier": "fine-tunings of classifiers",
    "finetune": "fine-tunings",
}


def choice(result: Result) -> str:
    """Return what a cell's row chose, with the mean score on dev of each value; "" if nothing."""
    about = result.tuning
    if about is None:
        return ""
    tried = [", ".join(map(_value, values.values())) for values in about["tried"]]
    pairs = zip(tried, about["scores"], strict=True)
    scores = "; ".join(f"{values}: {100 * score:.1f}" for values, score in pairs)
    best = about["tried"][about["chosen"]]
    settings = ", ".join(f"{key}={_value(value)}" for key, value in best.items())
    task = f" for {result.task}" if about["by"] == "task" else ""
    equal = about["scores"].count(max(about["scores"]))
    first = f", the first of {equal} that are best" if equal > 1 else ""
    return f"{settings}{task} (mean scores: {scores}{first})"


def cost(result: Result) -> str:
    """Return what all candidates cost that a cell's row chose from; "" if there were none."""
    about = result.tuning
    if about is None:
        return ""
    parts = []
    for kind, words in _TRAININGS.items():
        known = about["cost"].get(kind)
        if known:
            tokens = sum(known[name] for name in known if name.endswith("_tokens"))
            more = f", {tokens:,} tokens" if tokens else ""
            parts.append(f"{known['trainings']} {words} of {known['steps']:,} steps in all{more}")
    evaluated = about["cost"].get("evaluate", {}).get("evaluations", 0)
    task = f"{result.task}: " if about["by"] == "task" else ""
    parts.append(f"{evaluated} evaluations on dev for {counted(about['seeds'])}")
    return f"{task}{' and '.join(parts)}"


def tuned_unlike(rows: Sequence[BoardRow]) -> list[str]:
    """Return a note on what rows chose from, unless all chose from the same values.

    A row without an intermediate stage need only have the same values of fine-tuning.
    """
    groups: dict[str, list[BoardRow]] = {}
    for row in sorted(rows, key=lambda row: not _has_stage(row)):
        values = {key: sorted(map(json.dumps, tried)) for key, tried in _tuned(row).items()}
        alike = not _has_stage(row) and values in map(_of_finetuning, groups)
        if not alike:
            groups.setdefault(json.dumps(values, sort_keys=True), []).append(row)
    if len(groups) < 2:
        return []
    texts = [
        f"{listed([row.label for row in alike])}: "
        + (", ".join(f"{key} of {_value(v)}" for key, v in _tuned(alike[0]).items()) or "nothing")
        for alike in groups.values()
    ]
    return [f"rows were not tuned alike, which is part of their differences ({'; '.join(texts)})"]


def _tuned(row: BoardRow) -> Json:
    tune: Json = next((cell.config.get("tune", {}) for cell in row.cells.values()), {})
    return {key: values for key, values in tune.items() if key != "on"}


def _of_finetuning(values: str) -> Json:
    return {key: v for key, v in json.loads(values).items() if key.startswith("finetune.")}


def _has_stage(row: BoardRow) -> bool:
    return any("intermediate" in cell.config for cell in row.cells.values())


def chosen_at_an_end(rows: Sequence[BoardRow]) -> list[str]:
    """Return notes on choices of the smallest or the largest of three or more numbers."""
    found: dict[str, dict[str, None]] = {}  # the labels of rows by setting
    for row in rows:
        for tuning in filter(None, (cell.tuning for cell in row.cells.values())):
            if len(set(tuning["scores"])) == 1:  # the candidates do not differ on dev
                continue
            for key, value in tuning["tried"][tuning["chosen"]].items():
                tried = [values[key] for values in tuning["tried"]]
                numbers = sorted({each for each in tried if type(each) in (int, float)})
                if len(numbers) > 2 and value in (numbers[0], numbers[-1]):
                    found.setdefault(f"{key}={value}", {})[row.label] = None
    return [
        f"{setting}, chosen for {listed(list(labels))}, is at an end of the values that were "
        "tried: a value beyond it may be better"
        for setting, labels in found.items()
    ]


def _value(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value)
