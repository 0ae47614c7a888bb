"""The results of one or more runs, sorted into rows, and what keeps rows out of one ranking."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from maskpolicy import keys
from maskpolicy.errors import ConfigError
from maskpolicy.results import Result, Run, file_name
from maskpolicy.types import Json

BUDGET = ("model", "world", "corpus", "general", "intermediate", "finetune")
EXECUTION = ("precision", "attention", "compile", "micro_tokens", "seed")  # no part of a budget
_SHOWN = 3  # differences in one message


@dataclass(frozen=True, eq=False)
class Cell:
    """One result and the run it was read from."""

    result: Result
    run: Run

    @property
    def predictions(self) -> Path:
        """Where its answers lie."""
        name = file_name(self.result.policy, self.result.task, self.result.seed)
        return self.run.folder / "predictions" / f"{name}.jsonl"


@dataclass(frozen=True)
class Gap:
    """A score that is not there; `seed` is None where a row has nothing of a task."""

    task: str
    seed: int | None
    reason: str


@dataclass
class Draft:
    """A row while the results of one or more runs are gathered for it."""

    label: str
    run: Run
    config: Json  # what its results share: the cell's config without the task
    cells: dict[tuple[str, int], Cell] = field(default_factory=dict)

    @property
    def has_stage(self) -> bool:
        """Whether the row has an intermediate stage."""
        return "intermediate" in self.config

    def of(self, task: str) -> dict[int, Cell | None]:
        """Return the row's cells of one task, for every seed that the row has anywhere."""
        return {seed: self.cells.get((task, seed)) for seed in sorted({s for _, s in self.cells})}

    def gaps(self, tasks: Sequence[str]) -> list[Gap]:
        """Return what is missing of the row, each with its reason."""
        found = []
        for task in tasks:
            cells = self.of(task)
            if not any(cells.values()):
                found.append(Gap(task, None, "not in these results"))
                continue
            for seed, cell in cells.items():
                if cell is None or cell.result.metrics is None:
                    reason = (cell and cell.result.error) or "not in these results"
                    found.append(Gap(task, seed, reason))
        return found


def gather(runs: Sequence[Run]) -> list[Draft]:
    """Return one draft for each row; equal rows of several runs are one."""
    drafts: dict[tuple[str, str], Draft] = {}
    for run in runs:
        by_label = {
            label: [result for result in run.results if result.policy == label]
            for label in order([run.policies], (result.policy for result in run.results))
        }
        for label, results in by_label.items():
            for result in results:
                config = row_config(result)
                key = (label, keys.canonical(config))
                _add(drafts.setdefault(key, Draft(label, run, config)), result, run)
    return list(drafts.values())


def _add(draft: Draft, result: Result, run: Run) -> None:
    known = draft.cells.get((result.task, result.seed))
    if known is None or known.result.metrics is None:
        draft.cells[result.task, result.seed] = Cell(result, run)
    elif result.metrics is not None and known.result.metrics != result.metrics:
        raise ConfigError(
            f"{draft.run.folder} and {run.folder}: {result.policy} on {result.task}, seed "
            f"{result.seed}, has two scores (other data, or another version): rank one of them"
        )


def row_config(result: Result) -> Json:
    """Return what the cells of one row share."""
    left_out = ("task", "intermediate_seed")
    return {key: value for key, value in result.config.items() if key not in left_out}


def unlike(drafts: Sequence[Draft]) -> list[str]:
    """Return one line for each pair of rows that cannot be ranked together."""
    lines = []
    staged = [draft for draft in drafts if draft.has_stage]
    for draft in staged[1:]:
        lines += _difference(_budget(staged[0]), _budget(draft), staged[0], draft)
    first: dict[str, tuple[Json, Draft]] = {}
    for draft in drafts:
        for task, data in _data(draft).items():
            known, other = first.setdefault(task, (data, draft))
            lines += _difference(known, data, other, draft, f"{task}.")
    return lines


def _difference(old: Json, new: Json, first: Draft, second: Draft, prefix: str = "") -> list[str]:
    found = keys.differences(old, new, "")
    if not found:
        return []
    more = [f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    places = "; ".join([*(prefix + line.lstrip(".") for line in found[:_SHOWN]), *more])
    rows = f"{first.label} ({first.run.folder}) and {second.label} ({second.run.folder})"
    return [f"{rows} differ in {places}"]


def _budget(draft: Draft) -> Json:
    parts = {name: draft.config.get(name) or {} for name in BUDGET}
    return {
        name: {key: value for key, value in part.items() if key not in EXECUTION}
        for name, part in parts.items()
    }


def _data(draft: Draft) -> dict[str, Json]:
    """Return what each task's scores of a row rest on: the questions and the metric."""
    return {
        task: {
            "task": cell.result.config["task"],
            "metric": cell.result.metrics["metric"],
            "metric version": cell.result.metrics.get("version"),
            "n": cell.result.metrics["n"],
        }
        for (task, _), cell in draft.cells.items()
        if cell.result.metrics is not None
    }


def names(drafts: Sequence[Draft]) -> list[str]:
    """Return a label for each row; rows of several runs that share one name their run."""
    labels = [draft.label for draft in drafts]
    return [
        label if labels.count(label) == 1 else f"{label} ({draft.run.name})"
        for label, draft in zip(labels, drafts, strict=True)
    ]


def order(stated: Iterable[Sequence[str]], present: Iterable[str]) -> list[str]:
    """Return the names that are present: first in the stated order, then as they come."""
    found = list(dict.fromkeys(present))
    known = dict.fromkeys(name for names in stated for name in names if name in found)
    return list(dict.fromkeys([*known, *found]))
