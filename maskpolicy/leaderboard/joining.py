"""The results of one or more runs, sorted into rows, and what keeps rows out of one ranking."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from maskpolicy import keys
from maskpolicy.config import row_names
from maskpolicy.errors import ConfigError
from maskpolicy.results import compatibility
from maskpolicy.results.cell import Result, Run
from maskpolicy.results.compatibility import ComparedPart
from maskpolicy.types import Json

ABSENT = "not in these results"
_SHOWN = 6  # differences in one message


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
    rank: int  # of its label: a given one comes first
    cells: dict[tuple[str, int], Result] = field(default_factory=dict)
    labels: list[tuple[Run, str]] = field(default_factory=list)  # what each run calls it

    def takes(self, label: str, run: Run, identity: str, loose: Mapping[str, Json]) -> bool:
        """Whether a result of the row `label` of a run belongs to this row."""
        same = all(self.loose.get(name, value) == value for name, value in loose.items())
        mine = all(other is not run or known == label for other, known in self.labels)
        return same and mine and self.identity == identity

    def is_called(self, label: str, run: Run | None = None) -> bool:
        """Whether a run, or any of them, calls the row so."""
        known = (name for other, name in self.labels if run is None or run is other)
        return label in known

    def call(self, label: str, run: Run, rank: int) -> None:
        """Note what a run calls the row; the row takes the name of the best rank."""
        if not self.is_called(label, run):
            self.labels.append((run, label))
        if rank < self.rank:
            self.label, self.rank = label, rank

    @property
    def seeds(self) -> set[int]:
        """Every seed that the row has anywhere."""
        return {seed for _, seed in self.cells}

    def of(self, task: str, more: Iterable[int] = ()) -> dict[int, Result | None]:
        """Return the row's cells of one task, for every seed of the row and for `more` seeds."""
        return {seed: self.cells.get((task, seed)) for seed in sorted({*self.seeds, *more})}

    def gaps(self, tasks: Sequence[str], more: Iterable[int] = ()) -> list[Gap]:
        """Return what is missing of the row, each with its reason; it should have `more` seeds."""
        found = []
        for task in tasks:
            cells = self.of(task, more)
            if not any(cells.values()):
                found.append(Gap(task, None, ABSENT))
                continue
            for seed, cell in cells.items():
                if cell is None or cell.metrics is None:
                    found.append(Gap(task, seed, (cell and cell.error) or ABSENT))
        return found


def join_rows(runs: Sequence[Run]) -> list[Draft]:
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
    identity = keys.canonical(compatibility.identity(result))
    loose = compatibility.loose(result)
    able = [draft for draft in drafts if draft.takes(label, run, identity, loose)]
    if not able:
        able = [Draft(label, run, row_config(result), identity, {}, _rank(result))]
        drafts += able
    found = min(able, key=lambda draft: not draft.is_called(label))
    found.loose |= loose
    found.call(label, run, _rank(result))
    return found


def _rank(result: Result) -> int:
    """Return 0 for a name that was given, 1 for one that tells settings, 2 for a policy's alone."""
    policy = result.config.get("policy", {}).get("name", "")
    if not row_names.is_automatic(result.policy, policy):
        return 0
    return 2 if result.policy == policy else 1


def _add(draft: Draft, result: Result, run: Run) -> None:
    known = draft.cells.get((result.task, result.seed))
    if known is None or known.metrics is None:
        draft.cells[result.task, result.seed] = replace(result, folder=run.folder)
    elif result.metrics is not None:
        where = f"{known.folder} and {run.folder}: {result.policy} on {result.task}, seed "
        runs = [each.config.get("intermediate_seed") for each in (known, result)]
        if runs[0] != runs[1]:
            raise ConfigError(
                f"{where}{result.seed}, is of intermediate run {runs[0]} and of run {runs[1]}: "
                "compute other runs (intermediate_runs) with other seeds"
            )
        if known.metrics != result.metrics:
            raise ConfigError(
                f"{where}{result.seed}, has two scores (other data, or another version): rank one "
                "of them"
            )


def row_config(result: Result) -> Json:
    """Return what the cells of one row share."""
    left_out = ("task", "intermediate_seed", "general_seed")
    return {key: value for key, value in result.config.items() if key not in left_out}


def unlike(drafts: Sequence[Draft]) -> dict[str, list[str]]:
    """Return for each two rows of different runs that cannot be ranked together what differs.

    That is one text for each setting that `comparable` does not call harmless.
    """
    first: dict[str, tuple[ComparedPart, Draft, Result]] = {}
    stated: dict[str, dict[str, None]] = {}  # by pair of rows; a dict for the order of its keys
    unstated: dict[str, dict[str, None]] = {}
    for draft in drafts:
        for cell in draft.cells.values():
            for name, part in compatibility.parts(cell).items():
                known, other, of = first.setdefault(name, (part, draft, cell))
                if of.folder != cell.folder:
                    rows = f"{_place(other, of)} and {_place(draft, cell)}"
                    lines = compatibility.differences(name, known, part)
                    stated.setdefault(rows, {}).update(dict.fromkeys(lines))
                    lines = compatibility.of_world(name, of, cell)
                    stated[rows] |= dict.fromkeys(lines)
                    lines = compatibility.contents(name, known, part)
                    unstated.setdefault(rows, {}).update(dict.fromkeys(lines))
    found = {rows: list(lines or unstated[rows]) for rows, lines in stated.items()}
    return {rows: lines for rows, lines in found.items() if lines}


def _place(draft: Draft, cell: Result) -> str:
    return f"{draft.label} ({cell.folder})"


def mixed(unlike: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the note of a board whose rows are `unlike`: each difference once, with its rows."""
    pairs: dict[str, list[str]] = {}
    for rows, lines in unlike.items():
        for line in lines:
            pairs.setdefault(line, []).append(rows)
    more = {line: len(rows) - 1 for line, rows in pairs.items()}
    told = [
        f"{line} ({rows[0]}{f', and {more[line]} more' * bool(more[line])})"
        for line, rows in pairs.items()
    ]
    return [f"mixed: rows differ in {shortened(told)}"] if told else []


def shortened(lines: Sequence[str]) -> str:
    """Return the first differences in one line, and how many more there are."""
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


def clashes(drafts: Sequence[Draft]) -> list[str]:
    """Return a line for each two rows of different policies that were given one name."""
    lines = []
    given: dict[str, Draft] = {}
    for draft in (draft for draft in drafts if draft.rank == 0):
        first = given.setdefault(draft.label, draft)
        one, other = (json.loads(each.identity).get("policy") for each in (first, draft))
        found = keys.differences(one, other, "policy")
        if found:
            where = f"{first.run.folder} and {draft.run.folder}"
            lines.append(f"{where} call two rows {draft.label!r}, with {shortened(found)}")
    return lines


def renamed(drafts: Sequence[Draft]) -> list[str]:
    """Return a note for each name that a run calls a row by and that it does not have here."""
    return [
        f"{draft.label}: called {label} in {run.folder}"
        for draft in drafts
        for run, label in draft.labels
        if label != draft.label
    ]


def names(drafts: Sequence[Draft]) -> list[str]:
    """Return a label for each row.

    Rows of several runs that share a name tell the settings in which their policies differ, unless
    that name was given, else their run.
    """
    found = []
    for draft in drafts:
        rivals = [each for each in drafts if each.label == draft.label]
        policies = [each.config.get("policy", {}) for each in rivals]
        mine = draft.config.get("policy", {})
        told = row_names.apart(draft.label, mine, policies) if draft.rank else draft.label
        found.append((told, draft.run.name, len(rivals)))
    names = [told for told, _, _ in found]
    return [
        told if rivals == 1 or names.count(told) == 1 else f"{told} ({run})"
        for told, run, rivals in found
    ]


def order(stated: Iterable[Sequence[str]], present: Iterable[str]) -> list[str]:
    """Return the names that are present: first in the stated order, then as they come."""
    found = list(dict.fromkeys(present))
    known = dict.fromkeys(name for names in stated for name in names if name in found)
    return list(dict.fromkeys([*known, *found]))
