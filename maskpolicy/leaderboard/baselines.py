"""Which row each row is compared with, if several rows have the name of the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from maskpolicy.core.types import Json
from maskpolicy.leaderboard.results.cell import Run
from maskpolicy.plugins.registry import DENOISING_KEYS

Row: TypeAlias = tuple[Sequence[str], Json]  # its labels, and the settings of one of its cells


def candidates(name: str, rows: Sequence[Row]) -> list[int]:
    """Return the indices of the rows that `name` names.

    If no row has this label, it may be a policy, or what the labels begin with, as long as these
    rows differ in their trainings and objective alone.
    """
    called = [index for index, (labels, _) in enumerate(rows) if name in labels]
    if called:
        return called
    of_policy = [i for i, (labels, row) in enumerate(rows) if labels and _policy(row) == name]
    begin_so = [
        index
        for index, (labels, _) in enumerate(rows)
        if any(label.startswith(f"{name} ") for label in labels)
    ]
    found = of_policy or begin_so
    fields = [
        {key: value for key, value in rows[index][1]["policy"].items() if key not in DENOISING_KEYS}
        for index in found
    ]
    return found if all(each == fields[0] for each in fields) else []


def nearest(name: str, rows: Sequence[Row], to: Json) -> int | None:
    """Return the index of the row named `name` that is most like a row with the settings `to`.

    The first of several rows with the very label `name` is that row; None if there is none.
    """
    found = candidates(name, rows)
    if not found or name in rows[found[0]][0]:
        return next(iter(found), None)
    return max(found, key=lambda index: _likeness(rows[index][1], to))


def baseline_of(run: Run, label: str) -> str:
    """Return the label of the row of a run that the row `label` is compared with.

    It is the name in the run's settings if no row has this name.
    """
    configs = {result.policy: result.config for result in reversed(run.results)}
    if label not in configs:
        return run.baseline
    known = [row for row in run.rows if row in configs]
    place = nearest(run.baseline, [([row], configs[row]) for row in known], configs[label])
    return run.baseline if place is None else known[place]


def baselines_of(runs: Sequence[Run]) -> dict[tuple[str, str], str]:
    """Return by the name of a run and the label of a row what `baseline_of` says of them."""
    return {(run.name, row): baseline_of(run, row) for run in runs for row in run.rows}


def _policy(row: Json) -> str:
    return str(row.get("policy", {}).get("name"))


def _likeness(base: Json, row: Json) -> int:
    """Return how many of the settings that distinguish a baseline a row has, less the others."""
    same = [
        row.get(stage, {}).get(key) == value
        for stage, values in base.get("trainings", {}).items()
        for key, value in values.items()
    ]
    mine, other = (each.get("policy", {}) for each in (base, row))
    same += [mine.get(key) == other.get(key) for key in DENOISING_KEYS]
    return sum(1 if equal else -1 for equal in same)
