"""The results of one or more runs, sorted into rows, and what keeps rows out of one ranking."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from maskpolicy import comparable, keys
from maskpolicy.comparable import Part
from maskpolicy.errors import ConfigError
from maskpolicy.results import Result, Run, file_name
from maskpolicy.types import Json

_SHOWN = 6  # differences in one message


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
    run: Run  # the first that has it
    config: Json  # of its first result, without the task
    identity: str  # canonical JSON of what its results share
    loose: dict[str, Json]  # what they share where they have it
    cells: dict[tuple[str, int], Cell] = field(default_factory=dict)

    def takes(self, label: str, run: Run, identity: str, loose: Mapping[str, Json]) -> bool:
        """Whether a result of the row `label` of a run belongs to this row."""
        same = all(self.loose.get(name, value) == value for name, value in loose.items())
        mine = self.label == label or all(cell.run is not run for cell in self.cells.values())
        return same and mine and self.identity == identity

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
    """Return one draft for each row; rows of several runs that have one configuration are one."""
    drafts: list[Draft] = []
    for run in runs:
        by_label = {
            label: [result for result in run.results if result.policy == label]
            for label in order([run.policies], (result.policy for result in run.results))
        }
        for label, results in by_label.items():
            for result in results:
                _add(_draft(drafts, label, run, result), result, run)
    return drafts


def _draft(drafts: list[Draft], label: str, run: Run, result: Result) -> Draft:
    """Return the row that a result belongs to; a new one is put at the end of `drafts`."""
    identity = keys.canonical(comparable.identity(result))
    loose = comparable.loose(result)
    able = [draft for draft in drafts if draft.takes(label, run, identity, loose)]
    if not able:
        able = [Draft(label, run, row_config(result), identity, {})]
        drafts += able
    found = min(able, key=lambda draft: draft.label != label)
    found.loose |= loose
    return found


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
    """Return one line for each two rows of different runs that cannot be ranked together.

    A line names the settings in which they differ and that `comparable` does not call harmless.
    """
    first: dict[str, tuple[Part, Draft, Cell]] = {}
    stated: dict[str, dict[str, None]] = {}  # by pair of rows; a dict for the order of its keys
    unstated: dict[str, dict[str, None]] = {}
    for draft in drafts:
        for cell in draft.cells.values():
            for name, part in comparable.parts(cell.result).items():
                known, other, of = first.setdefault(name, (part, draft, cell))
                if of.run is not cell.run:
                    rows = f"{_place(other, of)} and {_place(draft, cell)}"
                    lines = comparable.differences(name, known, part)
                    stated.setdefault(rows, {}).update(dict.fromkeys(lines))
                    lines = comparable.contents(name, known, part)
                    unstated.setdefault(rows, {}).update(dict.fromkeys(lines))
    found = {rows: list(lines or unstated[rows]) for rows, lines in stated.items()}
    return [f"{rows} differ in {_shortened(lines)}" for rows, lines in found.items() if lines]


def _place(draft: Draft, cell: Cell) -> str:
    return f"{draft.label} ({cell.run.folder})"


def _shortened(lines: Sequence[str]) -> str:
    more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return "; ".join([*lines[:_SHOWN], *more])


def majority(runs: Sequence[Run]) -> tuple[dict[str, Json], list[str]]:
    """Return, by task, what a guess without a model reaches, and a note for each disagreement.

    Results that an earlier version wrote hold none. Where runs disagree, there is no figure.
    """
    found: dict[str, dict[float, tuple[Json, Run]]] = {}
    for run in runs:
        for result in run.results:
            if result.majority is not None:
                scores = found.setdefault(result.task, {})
                scores.setdefault(result.majority["score"], (result.majority, run))
    notes = []
    for task, scores in found.items():
        if len(scores) > 1:
            shown = ", ".join(f"{100 * s:.1f} in {run.folder}" for s, (_, run) in scores.items())
            notes.append(f"{task}: runs do not agree on majority ({shown}): their data differ")
    agreed = {task: scores for task, scores in found.items() if len(scores) == 1}
    return {task: next(iter(scores.values()))[0] for task, scores in agreed.items()}, notes


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
