"""What the tuned rows of a leaderboard chose, from what, and what it cost, in words."""

from __future__ import annotations

import json
from collections.abc import Sequence

from maskpolicy.leaderboard.board import BoardRow, listed
from maskpolicy.results.cell import Result
from maskpolicy.types import Json

CHOICE, COST = "tuned on dev", "cost of tuning"  # names of facts
_TRAININGS = {
    "fit": "fits of learned policies",
    "intermediate": "intermediate trainings",
    "finetune": "fine-tunings",
}


def choice(result: Result) -> str:
    """Return what a cell's row chose, with the mean score on dev of each value; "" if nothing."""
    about = result.tuning
    if about is None:
        return ""
    tried = [", ".join(map(_plain, values.values())) for values in about["tried"]]
    pairs = zip(tried, about["scores"], strict=True)
    scores = "; ".join(f"{values}: {100 * score:.1f}" for values, score in pairs)
    taken = about["tried"][about["chosen"]]
    settings = ", ".join(f"{key}={_plain(value)}" for key, value in taken.items())
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
            tokens = known.get("source_tokens", 0) + known.get("target_tokens", 0)
            more = f", {tokens:,} tokens" if tokens else ""
            parts.append(f"{known['trainings']} {words} of {known['steps']:,} steps in all{more}")
    evaluated = about["cost"].get("evaluate", {}).get("evaluations", 0)
    task = f"{result.task}: " if about["by"] == "task" else ""
    return f"{task}{' and '.join([*parts, f'{evaluated} evaluations on dev'])}"


def notes(rows: Sequence[BoardRow]) -> list[str]:
    """Return notes on comparisons that tuning makes unequal, and on values at an end of a list."""
    return [*_unequal(rows), *_at_an_end(rows)]


def _unequal(rows: Sequence[BoardRow]) -> list[str]:
    """Name what rows chose from, if they did not choose from the same values.

    A row without an intermediate stage need only have the same values of fine-tuning.
    """
    groups: dict[str, list[str]] = {}
    for row in sorted(rows, key=lambda row: not _has_stage(row)):
        tune = json.dumps(_tune(row), sort_keys=True)
        alike = not _has_stage(row) and tune in map(_of_finetuning, groups)
        if not alike:
            groups.setdefault(tune, []).append(row.label)
    if len(groups) < 2:
        return []
    texts = [f"{listed(labels)}: {_listed(json.loads(v))}" for v, labels in groups.items()]
    return [f"rows were not tuned alike, which is part of their differences ({'; '.join(texts)})"]


def _of_finetuning(tune: str) -> str:
    found = {k: v for k, v in json.loads(tune).items() if k.startswith("finetune.") or k == "on"}
    return json.dumps(found if len(found) > 1 else {}, sort_keys=True)


def _has_stage(row: BoardRow) -> bool:
    return any("intermediate" in cell.config for cell in row.cells.values())


def _at_an_end(rows: Sequence[BoardRow]) -> list[str]:
    """Say where the best of three or more numbers is the smallest or the largest one."""
    found: dict[str, list[str]] = {}
    for row in rows:
        for cell in row.cells.values():
            scores = (cell.tuning or {}).get("scores", ())
            if len(set(scores)) == 1:  # the candidates do not differ on dev
                continue
            for key, value in (cell.chosen or {}).items():
                tried = [values[key] for values in (cell.tuning or {})["tried"]]
                numbers = sorted({each for each in tried if _is_number(each)})
                if len(numbers) > 2 and value in (numbers[0], numbers[-1]):
                    labels = found.setdefault(f"{key}={value}", [])
                    labels += [] if row.label in labels else [row.label]
    return [
        f"{setting}, chosen for {listed(labels)}, is at an end of the values that were tried: a "
        "value beyond it may be better"
        for setting, labels in found.items()
    ]


def _tune(row: BoardRow) -> Json:
    cell = next(iter(row.cells.values()), None)
    return {} if cell is None else cell.config.get("tune", {})


def _listed(tune: Json) -> str:
    """Return the keys of a `tune` with the number of their values."""
    keys = [f"{key} of {len(values)} values" for key, values in tune.items() if key != "on"]
    return ", ".join(keys) or "nothing"


def _plain(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
