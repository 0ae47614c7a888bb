"""The leaderboard: a view of stored results, policies x tasks, compared with a baseline."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from maskpolicy import keys
from maskpolicy.errors import ConfigError, unknown
from maskpolicy.results import Result, Run
from maskpolicy.types import Json

VERSION = 1
BUDGET = ("model", "world", "corpus", "general", "intermediate", "finetune")
EXECUTION = ("precision", "attention", "compile", "micro_tokens", "seed")  # no part of a budget
WORK = ("passages", "passages_without_span", "hidden_tokens", "target_tokens")
_SHOWN = 3  # differences in one message


@dataclass(frozen=True)
class Score:
    """One row's score on one task, in percent; `seeds` holds None for a seed that failed."""

    metric: str
    seeds: Mapping[int, float | None]
    n: int  # test examples
    delta: float | None = None  # difference of the means to the baseline's

    @property
    def values(self) -> list[float]:
        """The scores that are there."""
        return [value for value in self.seeds.values() if value is not None]

    @property
    def mean(self) -> float:
        """The mean over the seeds that are there."""
        return statistics.fmean(self.values)

    @property
    def std(self) -> float | None:
        """The standard deviation over seeds with n - 1; None for a single one."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    @property
    def is_complete(self) -> bool:
        """Whether no seed failed."""
        return len(self.values) == len(self.seeds)


@dataclass(frozen=True)
class Row:
    """One policy as one experiment used it."""

    label: str
    config: Json  # the policy's block
    scores: Mapping[str, Score | None]  # by task; None: there is none
    work: Json = None


@dataclass(frozen=True)
class Board:
    """A whole leaderboard; `groups` are tasks whose scores may be averaged."""

    baseline: str
    tasks: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def average(self, row: Row, group: str) -> float | None:
        """Return the mean over a group's tasks, or None unless the row is complete there."""
        scores = [row.scores.get(task) for task in self.groups[group]]
        if any(score is None or not score.is_complete for score in scores):
            return None
        return statistics.fmean(score.mean for score in scores if score is not None)


@dataclass
class _Draft:
    """A row while the results of one or more runs are gathered for it."""

    label: str
    run: Run
    config: Json  # what its results share: the cell's config without the task
    cells: dict[tuple[str, int], Result] = field(default_factory=dict)

    @property
    def has_stage(self) -> bool:
        return "intermediate" in self.config


def build(runs: Sequence[Run], *, baseline: str | None = None, mixed: bool = False) -> Board:
    """Rank the results of one or more runs.

    Raises ConfigError for rows whose data, metric version or intermediate budget differ, unless
    `mixed` asks for them; a row without an intermediate stage has no such budget.
    """
    drafts = _gather(runs)
    unlike = _unlike(drafts)
    if unlike and not mixed:
        raise ConfigError(f"{unlike[0]}: not one ranking; --mixed ranks them all the same")
    label = baseline or runs[0].baseline
    if label not in [draft.label for draft in drafts]:
        raise ConfigError(
            f"baseline: {unknown('row', label, (d.label for d in drafts))}; name one as --baseline"
        )
    names = _names(drafts)
    tasks = _order((run.tasks for run in runs), (task for d in drafts for task, _ in d.cells))
    means = [_scores(draft, tasks) for draft in drafts]
    rows = []
    for draft, name, scores in zip(drafts, names, means, strict=True):
        base = means[_baseline(drafts, label, draft)]
        deltas = {task: _with_delta(scores[task], base[task]) for task in tasks}
        rows.append(Row(name, draft.config["policy"], deltas, _work(draft)))
    chosen = names[_baseline(drafts, label, drafts[0])]
    notes = [*_gaps(drafts, names, tasks), *_luck(drafts), *(f"mixed: {line}" for line in unlike)]
    return Board(chosen, tuple(tasks), tuple(rows), tuple(notes), _groups(drafts, tasks))


def _gather(runs: Sequence[Run]) -> list[_Draft]:
    """Return one draft for each row; equal rows of several runs are one."""
    drafts: dict[tuple[str, str], _Draft] = {}
    for run in runs:
        by_label = {
            label: [result for result in run.results if result.policy == label]
            for label in _order([run.policies], (result.policy for result in run.results))
        }
        for label, results in by_label.items():
            for result in results:
                config = _row_config(result)
                key = (label, keys.canonical(config))
                _add(drafts.setdefault(key, _Draft(label, run, config)), result, run)
    return list(drafts.values())


def _add(draft: _Draft, result: Result, run: Run) -> None:
    known = draft.cells.get((result.task, result.seed))
    if known is None or known.metrics is None:
        draft.cells[result.task, result.seed] = result
    elif result.metrics is not None and known.metrics != result.metrics:
        raise ConfigError(
            f"{draft.run.folder} and {run.folder}: {result.policy} on {result.task}, seed "
            f"{result.seed}, has two scores (other data, or another version): rank one of them"
        )


def _row_config(result: Result) -> Json:
    left_out = ("task", "intermediate_seed")
    return {key: value for key, value in result.config.items() if key not in left_out}


def _unlike(drafts: Sequence[_Draft]) -> list[str]:
    """Return one line for each pair of rows that cannot be ranked together."""
    lines = []
    staged = [draft for draft in drafts if draft.has_stage]
    for draft in staged[1:]:
        lines += _difference(_budget(staged[0]), _budget(draft), staged[0], draft)
    first: dict[str, tuple[Json, _Draft]] = {}
    for draft in drafts:
        for task, data in _data(draft).items():
            known, other = first.setdefault(task, (data, draft))
            lines += _difference(known, data, other, draft, f"{task}.")
    return lines


def _difference(old: Json, new: Json, first: _Draft, second: _Draft, prefix: str = "") -> list[str]:
    found = keys.differences(old, new, "")
    if not found:
        return []
    more = [f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    places = "; ".join([*(prefix + line.lstrip(".") for line in found[:_SHOWN]), *more])
    rows = f"{first.label} ({first.run.folder}) and {second.label} ({second.run.folder})"
    return [f"{rows} differ in {places}"]


def _budget(draft: _Draft) -> Json:
    parts = {name: draft.config.get(name) or {} for name in BUDGET}
    return {
        name: {key: value for key, value in part.items() if key not in EXECUTION}
        for name, part in parts.items()
    }


def _data(draft: _Draft) -> dict[str, Json]:
    """Return what each task's scores of a row rest on: the questions and the metric."""
    return {
        task: {
            "task": result.config["task"],
            "metric": result.metrics["metric"],
            "metric version": result.metrics.get("version"),
            "n": result.metrics["n"],
        }
        for (task, _), result in draft.cells.items()
        if result.metrics is not None
    }


def _names(drafts: Sequence[_Draft]) -> list[str]:
    """Return a label for each row; rows of several runs that share one name their run."""
    labels = [draft.label for draft in drafts]
    return [
        label if labels.count(label) == 1 else f"{label} ({draft.run.name})"
        for label, draft in zip(labels, drafts, strict=True)
    ]


def _order(stated: Iterable[Sequence[str]], present: Iterable[str]) -> list[str]:
    """Return the names that are present: first in the stated order, then as they come."""
    found = list(dict.fromkeys(present))
    known = dict.fromkeys(name for names in stated for name in names if name in found)
    return list(dict.fromkeys([*known, *found]))


def _scores(draft: _Draft, tasks: Sequence[str]) -> dict[str, Score | None]:
    seeds = sorted({seed for _, seed in draft.cells})
    return {task: _score({seed: draft.cells.get((task, seed)) for seed in seeds}) for task in tasks}


def _score(cells: Mapping[int, Result | None]) -> Score | None:
    metrics = {seed: cell.metrics if cell else None for seed, cell in cells.items()}
    known = next((found for found in metrics.values() if found is not None), None)
    if known is None:
        return None
    percent = {seed: found and 100 * float(found["score"]) for seed, found in metrics.items()}
    return Score(known["metric"], percent, known["n"])


def _with_delta(score: Score | None, base: Score | None) -> Score | None:
    if score is None or base is None:
        return score
    return Score(score.metric, score.seeds, score.n, score.mean - base.mean)


def _baseline(drafts: Sequence[_Draft], label: str, draft: _Draft) -> int:
    """Return the index of the baseline of a row: its own run's, else the first."""
    found = [index for index, other in enumerate(drafts) if other.label == label]
    return next((i for i in found if drafts[i].run is draft.run), found[0])


def _work(draft: _Draft) -> Json:
    return next((result.work for result in draft.cells.values() if result.work), None)


def _gaps(drafts: Sequence[_Draft], names: Sequence[str], tasks: Sequence[str]) -> list[str]:
    """Return one note for each cell without a score, with its reason."""
    notes = []
    for draft, name in zip(drafts, names, strict=True):
        seeds = sorted({seed for _, seed in draft.cells})
        for task in tasks:
            cells = {seed: draft.cells.get((task, seed)) for seed in seeds}
            if not any(cells.values()):
                notes.append(f"{name}, {task}: not in these results")
                continue
            for seed, cell in cells.items():
                if cell is None or cell.metrics is None:
                    reason = (cell and cell.error) or "not in these results"
                    notes.append(f"{name}, {task}, seed {seed}: {reason}")
    return notes


def _luck(drafts: Sequence[_Draft]) -> list[str]:
    if not any(draft.config.get("intermediate_seeds") == 1 for draft in drafts):
        return []
    return [
        "intermediate_seeds is 1: each policy was pre-trained once, so the luck of that one run is "
        "part of every difference and not of the standard deviation"
    ]


def _groups(drafts: Sequence[_Draft], tasks: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the groups of two tasks or more; tasks that are given the context are in none."""
    groups: dict[str, list[str]] = {}
    about = {cell.task: cell for draft in drafts for cell in draft.cells.values()}
    for task in tasks:
        if not about[task].config["task"].get("context"):
            groups.setdefault(about[task].group, []).append(task)
    return {name: tuple(members) for name, members in groups.items() if len(members) > 1}
