"""What a leaderboard was measured on: model, budgets, seeds, and the questions of each column."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from maskpolicy import keys
from maskpolicy.config.budgets import SCRATCH
from maskpolicy.config.experiment import HUB, SEQ2SEQ, WORLD, ModelBlock
from maskpolicy.leaderboard.board import Board, Row
from maskpolicy.results.cell import Result
from maskpolicy.types import Denoising, Json
from maskpolicy.world.settings import Settings

INVENTED = "invented data"
FILES = "files"
_STAGES = {
    "general": "general stage",
    "fit": "fit of learned policies",
    "intermediate": "intermediate stage",
    "finetune": "fine-tuning",
}


@dataclass(frozen=True)
class ColumnFacts:
    """The questions of one column."""

    task: str  # its label
    sources: tuple[str, ...]  # world, hub or files; more than one on a mixed board
    n: tuple[int, ...]  # test examples, likewise

    @property
    def is_invented(self) -> bool:
        """Whether the questions are about the embedded world."""
        return WORLD in self.sources

    @property
    def title(self) -> str:
        """The column's name, which does not claim a data set that was not used."""
        return f"{self.task} ({WORLD})" if self.is_invented else self.task

    @property
    def size(self) -> str:
        """The number of test examples, in words."""
        return f"n = {' or '.join(map(str, self.n))}" if self.n else ""


def column(board: Board, task: str) -> ColumnFacts:
    """Return what the scores of one column were measured on."""
    found = [cell for row in board.rows for (of, _), cell in row.cells.items() if of == task]
    sizes = {result.metrics.n for result in found if result.metrics is not None}
    return ColumnFacts(
        task, tuple(sorted({source(result) for result in found})), tuple(sorted(sizes))
    )


def title(board: Board, name: str) -> str:
    """Return what a form calls a column: a task's title, or the name of an average."""
    return column(board, name).title if name in board.tasks else name


def source(result: Result) -> str:
    """Return where the questions of a result come from: world, hub or files."""
    if result.origin:
        return result.origin
    data = result.config.get("task", {}).get("data", WORLD)
    return data if data in (WORLD, HUB) else FILES


def facts(board: Board) -> dict[str, str]:
    """Return, by name, what the rows of a board share, or which rows have which value."""
    found = {"model": _told(board, _model)}
    for name, title in _STAGES.items():
        found[title] = _told(board, partial(_stage, name), of_all=name == "general")
    found["corpus of the intermediate stage"] = _told(board, _corpus)
    found["masks of all rows"] = _how(board)
    found["embedded world"] = _told(board, _world)
    found["data"] = "; ".join(_data(board))
    found["seeds"] = _told(board, _seed)
    found["intermediate runs"] = _told(board, _run)
    found["general models"] = _told(board, _general_model)
    return {name: text for name, text in found.items() if text}


def of_row(row: Row, task: str) -> dict[str, str]:
    """Return the facts of a row's results on one task, for tables with a line for each."""
    found = [cell for (of, _), cell in row.cells.items() if of == task]
    if not found:
        return {}
    config = found[0].config
    return {
        "data": f"{WORLD}: {INVENTED}" if source(found[0]) == WORLD else source(found[0]),
        "model": _model(found[0]),
        **{name: stage(config, name) for name in _STAGES},
    }


def stage(config: Json, name: str) -> str:
    """Return the budget of one training of a result in words, "" where a row has no such stage."""
    block = config.get(name) or {}
    if "steps" not in block:
        return ""
    if not block["steps"]:
        return "none (0 steps)"
    what = "examples" if name == "finetune" else "passages"
    parts = [f"{block['steps']} steps"]
    parts += [f"of {block['batch_size']} {what}"] if "batch_size" in block else []
    text = " ".join(parts)
    return f"{text}, learning rate {block['lr']:g}" if "lr" in block else text


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
    if block.get("name") == WORLD:
        return f"the embedded world ({INVENTED})"
    if block.get("hub"):
        return str(block["hub"])
    return ", ".join(Path(name).name for name in block.get("files", ()))


def _world(result: Result) -> str:
    block = result.config.get("world") or {}
    changed = (key for key in _changed(block, Settings) if key != "seed")
    texts = [f"{key.replace('_', ' ')} {_plain(block[key])}" for key in changed]
    return ", ".join([f"seed {block['seed']}", *texts]) if "seed" in block else ""


def _changed(block: Json, schema: Any) -> list[str]:
    """Return the keys of a block, besides a name and a kind, that are not a schema's defaults."""
    usual = {field.name: keys.plain(field.default) for field in fields(schema) if _has(field)}
    return [key for key, value in block.items() if key in usual and value != usual[key]]


def _has(field: Field[Any]) -> bool:
    return field.default is not MISSING and field.name not in ("name", "kind", "revision")


def _how(board: Board) -> str:
    """Return the keys of How in which all rows with that stage share a value that is no default."""
    policies = [row.config for row in board.rows if row.config and row.config["name"] != "none"]
    shared = {
        key: usual
        for key, usual in asdict(Denoising()).items()
        if policies and all(policy.get(key, usual) != usual for policy in policies)
    }
    values = {key: {_plain(policy[key]) for policy in policies} for key in shared}
    return ", ".join(f"{key} {min(found)}" for key, found in values.items() if len(found) == 1)


def _data(board: Board) -> list[str]:
    """Return a text for each source of questions: the columns that are from there."""
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


def _told(board: Board, what: Callable[[Result], str], *, of_all: bool = False) -> str:
    """Return what all rows share, or each value with the rows that have it.

    A row in which results differ has all of their values; a row without a value is not named. If
    there is such a row, the others are named only for what is told `of_all` rows.
    """
    found: dict[str, list[str]] = {}
    for row in board.rows:
        texts = {what(cell) for cell in row.cells.values()} - {""}
        if texts:
            found.setdefault(", ".join(sorted(texts, key=_number)), []).append(row.label)
    lacking = len(board.rows) - sum(map(len, found.values()))
    if len(found) < 2 and not (of_all and lacking):
        return next(iter(found), "")
    return "; ".join(f"{text} ({', '.join(rows)})" for text, rows in found.items())


def _seed(result: Result) -> str:
    return str(result.seed)


def _run(result: Result) -> str:
    return str(result.config.get("intermediate_seed", ""))


def _general_model(result: Result) -> str:
    """Return the number of the general model, "" where an experiment has one for all seeds."""
    drawn = result.config.get("general_seeds", 1) > 1
    return str(result.config["general_seed"]) if drawn else ""


def _number(text: str) -> tuple[int, str]:
    return (int(text) if text.isdecimal() else 0), text


def _plain(value: Json) -> str:
    return "+".join(map(str, value)) if isinstance(value, list | tuple) else str(value).lower()
