"""Join the results of one or more runs into rows, and find differences that forbid one ranking."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from maskpolicy.core import keys
from maskpolicy.core.errors import ConfigError, listed
from maskpolicy.core.files import relative_paths
from maskpolicy.core.types import Json
from maskpolicy.experiment.policy_blocks import apart, is_automatic
from maskpolicy.leaderboard.results import compatibility
from maskpolicy.leaderboard.results.cell import Result, Run
from maskpolicy.leaderboard.results.compatibility import ComparedPart

ABSENT = "not in these results"


@dataclass(frozen=True)
class Gap:
    """A missing score; `seed` is None if the row has no score on the task at all."""

    task: str
    seed: int | None
    reason: str


@dataclass
class Draft:
    """A row to which the results of one or more runs are added."""

    label: str
    run: Run  # the first run with this row
    config: Json  # of its first result, without the task
    identity: str  # canonical JSON of `compatibility.identity`, equal for all results
    loose: dict[str, Json]  # `compatibility.loose`, equal for all results that state it
    rank: int  # of its label: 0 for a given one, see `_rank`
    cells: dict[tuple[str, int], Result] = field(default_factory=dict)  # by task and seed
    labels: list[tuple[Run, str]] = field(default_factory=list)  # its label in each run
    name: str = ""  # on the board

    def accepts(self, label: str, run: Run, identity: str, loose: Mapping[str, Json]) -> bool:
        """Whether a result of the row `label` of a run belongs to this row."""
        mine = self.identity == identity and all(
            other is not run or known == label for other, known in self.labels
        )
        return mine and all(self.loose.get(name, value) == value for name, value in loose.items())

    def is_called(self, label: str, run: Run | None = None) -> bool:
        """Whether the row has this label in `run`, by default in any run."""
        return label in (name for other, name in self.labels if run is None or run is other)

    def add_label(self, label: str, run: Run, rank: int) -> None:
        """Record the row's label in a run; the row is named by the label of the lowest rank."""
        if not self.is_called(label, run):
            self.labels.append((run, label))
        if rank < self.rank:
            self.label, self.rank = label, rank

    @property
    def seeds(self) -> set[int]:
        """The seeds of all cells."""
        return {seed for _, seed in self.cells}

    def of(self, task: str, more: Iterable[int] = ()) -> dict[int, Result | None]:
        """Return the cells of one task by seed, for the row's own seeds and `more` seeds."""
        return {seed: self.cells.get((task, seed)) for seed in sorted({*self.seeds, *more})}

    def gaps(self, tasks: Sequence[str], more: Iterable[int] = ()) -> list[Gap]:
        """Return the missing scores of the row's own seeds and `more` seeds."""
        gaps = []
        for task in tasks:
            cells = self.of(task, more)
            if not any(cells.values()):
                gaps.append(Gap(task, None, ABSENT))
                continue
            for seed, cell in cells.items():
                if cell is None or cell.metrics is None:
                    reason = cell and relative_paths(cell.error, cell.folder)
                    gaps.append(Gap(task, seed, reason or ABSENT))
        return gaps


def join_rows(runs: Sequence[Run]) -> list[Draft]:
    """Return the rows of all runs; rows of several runs with one configuration become one.

    Raises ConfigError if a cell has two different scores.
    """
    drafts: list[Draft] = []
    for run in runs:
        for label in run.rows:
            own = [
                (each, keys.canonical(compatibility.identity(each)), compatibility.loose(each))
                for each in run.results
                if each.policy == label
            ]
            # a row that agrees with one of another run only in part stays whole
            rows = [row for row in drafts if all(row.accepts(label, run, a, b) for _, a, b in own)]
            older = len(rows)
            for result, identity, loose in own:
                _add(_draft(rows, run, result, identity, loose), result, run)
            drafts += rows[older:]
    return drafts


def _draft(
    drafts: list[Draft], run: Run, result: Result, identity: str, loose: Mapping[str, Json]
) -> Draft:
    """Return the row that a result belongs to; append a new one to `drafts` if there is none."""
    label = result.policy
    candidates = [draft for draft in drafts if draft.accepts(label, run, identity, loose)]
    if not candidates:
        candidates = [Draft(label, run, row_config(result), identity, {}, _rank(result))]
        drafts += candidates
    draft = min(candidates, key=lambda draft: not draft.is_called(label))
    draft.loose |= loose
    draft.add_label(label, run, _rank(result))
    return draft


def _rank(result: Result) -> int:
    """Return 0 for a label that the user gave, 1 for policy and settings, 2 for a bare policy."""
    policy = result.config.get("policy", {}).get("name", "")
    if not is_automatic(result.policy, policy):
        return 0
    return 2 if result.policy == policy else 1


def _add(draft: Draft, result: Result, run: Run) -> None:
    known = draft.cells.get((result.task, result.seed))
    if known is None or known.metrics is None:
        draft.cells[result.task, result.seed] = result
    elif result.metrics is not None:
        where = f"{known.folder} and {run.folder}: {result.policy} on {result.task}, seed "
        numbers = [each.config.get("intermediate_seed") for each in (known, result)]
        if numbers[0] != numbers[1]:
            raise ConfigError(
                f"{where}{result.seed}, comes from intermediate run {numbers[0]} and from run "
                f"{numbers[1]}: use other seeds for other runs (intermediate_runs)"
            )
        if known.metrics != result.metrics:
            raise ConfigError(
                f"{where}{result.seed}, has two scores (data, versions or machines differ): rank "
                "only one of these folders"
            )


def row_config(result: Result) -> Json:
    """Return the settings of a result that say what its row is."""
    left_out = ("task", "intermediate_seed", "general_seed")
    return {key: value for key, value in result.config.items() if key not in left_out}


def unlike(drafts: Sequence[Draft]) -> dict[str, list[str]]:
    """Return the differences of each pair of rows from different runs that forbid one ranking.

    There is one line for each setting that is not in `compatibility.HARMLESS`. If the settings of
    a pair are equal, the lines name contents that differ (files, or code that read them).
    """
    every = [
        _KnownPart(name, part, own, cell)
        for draft in drafts
        for cell in draft.cells.values()
        for own in [compatibility.own_settings(cell)]
        for name, part in compatibility.parts(cell).items()
    ]
    by_name: dict[str, dict[Path, dict[tuple[str, frozenset[str]], _KnownPart]]] = {}
    for one in every:  # the parts by name and folder of their run, each once
        place = keys.canonical([one.part.settings, one.part.key]), one.own
        by_name.setdefault(one.name, {}).setdefault(one.cell.folder, {}).setdefault(place, one)
    stated: dict[str, dict[str, None]] = {}  # by pair of rows; a dict for the order of its keys
    unstated: dict[str, dict[str, None]] = {}
    for one in every:
        name, cell, part = one.name, one.cell, one.part
        (folder, first), mine = next(iter(by_name[name].items())), by_name[name][cell.folder]
        if folder == cell.folder:
            continue
        known = min(first.values(), key=lambda each: len(each.differences(one)))
        lines = known.differences(one)
        # Rows of one run may differ in their trainings: it is enough that each row of the first
        # run is like some row of the other.
        if lines and all(
            any(not own.differences(each) for own in mine.values()) for each in first.values()
        ):
            continue
        rows = f"{known.cell.policy} ({known.cell.folder}) and {cell.policy} ({cell.folder})"
        stated.setdefault(rows, {}).update(dict.fromkeys(lines))
        stated[rows] |= dict.fromkeys(compatibility.of_world(name, known.cell, cell))
        same = known.part.settings == part.settings  # else their labels name what differs
        lines = compatibility.contents(name, known.part, part) if same else []
        unstated.setdefault(rows, {}).update(dict.fromkeys(lines))
    differing = {rows: list(lines or unstated[rows]) for rows, lines in stated.items()}
    return {rows: lines for rows, lines in differing.items() if lines}


@dataclass(frozen=True)
class _KnownPart:
    """A part as a row of a run has it."""

    name: str
    part: ComparedPart
    own: frozenset[str]  # the settings of trainings that the row has for itself
    cell: Result

    def differences(self, other: _KnownPart) -> list[str]:
        """Return what differs in a row of another run, without what both labels name."""
        both = self.own & other.own
        mine, its = (compatibility.without(each.part, self.name, both) for each in (self, other))
        return compatibility.differences(self.name, mine, its)


def mixed(unlike: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the note of a board made with --mixed: each difference once, with its rows."""
    pairs: dict[str, list[str]] = {}
    for rows, lines in unlike.items():
        for line in lines:
            pairs.setdefault(line, []).append(rows)
    texts = [f"{line} ({listed(rows, most=1)})" for line, rows in pairs.items()]
    return [f"mixed: rows differ in {listed(texts, '; ')}"] if texts else []


def majority(runs: Sequence[Run]) -> tuple[dict[str, Json], list[str]]:
    """Return the majority guess of each task, and a note for each task on which runs disagree.

    A task has no guess if runs disagree, or if the store has none.
    """
    guesses: dict[str, dict[float, tuple[Json, Run]]] = {}
    for run in runs:
        for result in run.results:
            if result.majority is not None:
                scores = guesses.setdefault(result.task, {})
                scores.setdefault(result.majority["score"], (result.majority, run))
    notes = []
    for task, scores in guesses.items():
        if len(scores) > 1:
            texts = ", ".join(f"{100 * s:.1f} in {run.name}" for s, (_, run) in scores.items())
            notes.append(f"{task}: runs do not agree on majority ({texts}): data or metric differ")
    agreed = {task: scores for task, scores in guesses.items() if len(scores) == 1}
    return {task: next(iter(scores.values()))[0] for task, scores in agreed.items()}, notes


def clashes(drafts: Sequence[Draft]) -> list[str]:
    """Return a line for each pair of different policies to which users gave the same label."""
    lines = []
    given: dict[str, Draft] = {}
    for draft in (draft for draft in drafts if draft.rank == 0):
        first = given.setdefault(draft.label, draft)
        one, other = (json.loads(each.identity).get("policy") for each in (first, draft))
        differing = keys.differences(one, other, "policy")
        if differing:
            where = f"{first.run.folder} and {draft.run.folder}"
            lines.append(f"{where} call two rows {draft.label!r}, with {listed(differing, '; ')}")
    return lines


def renamed(drafts: Sequence[Draft]) -> list[str]:
    """Return a note for each label that a row has in a run but not on the board."""
    return [
        f"{draft.label}: called {label} in {run.name}"
        for draft in drafts
        for run, label in draft.labels
        if label != draft.label
    ]


def names(drafts: Sequence[Draft]) -> list[str]:
    """Return a distinct name for each row.

    If rows share an automatic label, the settings in which their policies differ are added. Names
    that are still equal, or that users gave, get the name of the run.
    """
    names = []
    shares_label = []
    for draft in drafts:
        rivals = [each for each in drafts if each.label == draft.label]
        policies = [each.config.get("policy", {}) for each in rivals]
        mine = draft.config.get("policy", {})
        names.append(apart(draft.label, mine, policies) if draft.rank else draft.label)
        shares_label.append(len(rivals) > 1)
    return [
        f"{name} ({draft.run.name})" if shares and names.count(name) > 1 else name
        for name, draft, shares in zip(names, drafts, shares_label, strict=True)
    ]
