"""Describe what a leaderboard was measured on: model, budgets, seeds, and data of each column."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from maskpolicy import keys
from maskpolicy.config import corpus_mix
from maskpolicy.config.experiment import HUB, SCRATCH, SEQ2SEQ, WORLD, ModelBlock
from maskpolicy.leaderboard import tuning_notes
from maskpolicy.leaderboard.board import Board, BoardRow, listed
from maskpolicy.results.cell import Result
from maskpolicy.types import Denoising, Json
from maskpolicy.world.settings import Settings

INVENTED = "invented data"
FILES = "files"
_NAMED = 3  # the most rows that a fact names
_STAGES = {
    "general": "general stage",
    "fit": "fit of learned policies",
    "intermediate": "intermediate stage",
    "finetune": "fine-tuning",
}


@dataclass(frozen=True)
class ColumnFacts:
    """The test examples of one column."""

    task: str  # its label
    sources: tuple[str, ...]  # world, hub or files; several only on a mixed board
    n: tuple[int, ...]  # number of test examples; several only on a mixed board

    @property
    def is_invented(self) -> bool:
        """Whether the questions are about the embedded world."""
        return WORLD in self.sources

    @property
    def title(self) -> str:
        """The column's title, marked if the questions are not the data set's own."""
        return f"{self.task} ({WORLD})" if self.is_invented else self.task

    @property
    def size(self) -> str:
        """The number of test examples, e.g. "n = 300"."""
        return f"n = {' or '.join(map(str, self.n))}" if self.n else ""


def column(board: Board, task: str) -> ColumnFacts:
    """Return where the test examples of a task come from, and their number."""
    cells = [cell for row in board.rows for (of, _), cell in row.cells.items() if of == task]
    sizes = {cell.metrics.n for cell in cells if cell.metrics is not None}
    return ColumnFacts(task, tuple(sorted(set(map(source, cells)))), tuple(sorted(sizes)))


def title(board: Board, name: str) -> str:
    """Return the title of a column, for a task or an average."""
    return column(board, name).title if name in board.tasks else name


def source(result: Result) -> str:
    """Return where the questions of a result come from: world, hub or files."""
    if result.origin:
        return result.origin
    data = result.config.get("task", {}).get("data", WORLD)
    return data if data in (WORLD, HUB) else FILES


def facts(board: Board, most: int | None = _NAMED) -> dict[str, str]:
    """Return model, budgets, data and seeds in words, by name.

    A value that rows do not share is followed by the labels of the rows that have it: of `most`
    rows, or of all.
    """

    def general_model(result: Result) -> str:  # "" if all seeds share one general model
        drawn = result.config.get("general_seeds", 1) > 1
        return str(result.config["general_seed"]) if drawn else ""

    by_row = partial(_by_row, board, most)
    texts = {"model": by_row(_model)}
    for name, title in _STAGES.items():
        texts[title] = by_row(partial(_stage, name), of_all=name == "general")
    texts[tuning_notes.CHOICE] = by_row(tuning_notes.choice)
    texts[tuning_notes.COST] = by_row(tuning_notes.cost)
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
        "data": f"{WORLD}: {INVENTED}" if source(first) == WORLD else source(first),
        "model": _model(first),
        **{name: stage(first.config, name) for name in _STAGES},
        "tuned": tuning_notes.choice(first),
        "tuning cost": tuning_notes.cost(first),
    }


def stage(config: Json, name: str) -> str:
    """Return the budget of one training in words, or "" if a result has no such stage."""
    block = config.get(name) or {}
    if "steps" not in block:
        return ""
    if not block["steps"]:
        return "none (0 steps)"
    what = "examples" if name == "finetune" else "passages"
    parts = [f"{block['steps']} steps"]
    parts += [f"of {block['batch_size']} {what}"] if "batch_size" in block else []
    text = " ".join(parts)
    parts = [text, *([f"learning rate {block['lr']:g}"] if "lr" in block else [])]
    policy = block.get("policy")
    return ", ".join([*parts, *([f"policy {_policy(policy)}"] if policy else [])])


def _policy(block: Json) -> str:
    """Return the policy of a general stage in words, with those that it draws."""
    name, members = block["name"], block.get("members", ())
    return f"{name} of {' and '.join(map(_policy, members))}" if members else str(name)


def _stage(name: str, result: Result) -> str:
    return stage(result.config, name)


def _model(result: Result) -> str:
    block = result.config.get("model") or {}
    name, kind = block.get("name", "not known"), block.get("kind", SEQ2SEQ)
    if name in SCRATCH.get(kind, ()):
        encoder = "" if kind == SEQ2SEQ else f" {kind}"
        texts = [
            f"{key.replace('_', ' ')} {_plain(block[key])}" for key in _changed(block, ModelBlock)
        ]
        shape = f" ({', '.join(texts)})" if texts else ""
        return f"{name}{encoder}{shape}, built from scratch on the embedded world"
    if Path(name).is_absolute():
        return f"{Path(name).name} (a local folder)"
    return f"{name} at {block['revision']}" if block.get("revision") else name


def _corpus(result: Result) -> str:
    block = result.config.get("corpus") or {}
    return corpus_mix.in_words(block, f"the embedded world ({INVENTED})")


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
    columns = [column(board, task) for task in board.tasks]
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
        if texts:
            rows_of.setdefault(", ".join(sorted(texts, key=_number)), []).append(row.label)
    without_value = len(board.rows) - sum(map(len, rows_of.values()))
    if len(rows_of) < 2 and not (of_all and without_value):
        return next(iter(rows_of), "")
    return "; ".join(
        f"{text} ({listed(rows, most=most or len(rows))})" for text, rows in rows_of.items()
    )


def _number(text: str) -> tuple[int, str]:
    return (int(text) if text.isdecimal() else 0), text


def _plain(value: Json) -> str:
    return "+".join(map(str, value)) if isinstance(value, list | tuple) else str(value).lower()
