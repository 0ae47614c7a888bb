"""Scores on the slices of a task's test examples, such as BLiMP's fields and phenomena."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from maskpolicy import Findings, Json, Run, Store, analysis
from maskpolicy.analyses.over_runs import over_seeds
from maskpolicy.analyses.plots import Grid
from maskpolicy.leaderboard.results import predictions

_COLUMNS = ("run", "task", "slice", "value", "policy", "score", "std", "examples", "seeds")
_MOST = 40  # values of a slice: more of them are names rather than kinds
Scores: TypeAlias = Mapping[tuple[str, str], Mapping[str, Sequence[Sequence[float]]]]
"""By slice and value, and by row: for each seed the scores of the examples."""


@analysis("slices", heading="Scores by kind of example", place=55, version=2)
@dataclass(frozen=True)
class Slices:
    """Score of each policy on the slices of a task, such as BLiMP's fields and phenomena.

    Means over the examples of a slice and over seeds, in percent, with the standard deviation over
    seeds; differences are not tested. Tasks whose metric is not a mean over examples are left out.
    """

    def analyse(self, runs: Sequence[Run], store: Store) -> Findings:
        """Average the scores of stored predictions by slice."""
        rows: list[Json] = []
        notes: list[str] = []
        panels = []
        for run in runs:
            for task in run.columns:
                found = _scores(run, task)
                values = Counter(name for name, _ in found)
                where = f"{run.name}, {task}" if len(runs) > 1 else task
                notes += [
                    f"{where}: {name} has {count} values: a slice with over {_MOST} is left out"
                    for name, count in values.items()
                    if count > _MOST
                ]
                of_task = [
                    {"run": run.name, "task": task, "slice": name, "value": value, "policy": label}
                    | over_seeds(seeds)
                    for (name, value), by_row in sorted(found.items())
                    if values[name] <= _MOST
                    for label, seeds in by_row.items()
                ]
                rows += of_task
                title = f"{task} ({run.name})" if len(runs) > 1 else task
                for name in dict.fromkeys(row["slice"] for row in of_task):
                    panels.append(_panel(f"{title}: score (%) by {name}", name, of_task))
        if not rows and not notes:
            notes = ["no task has slices and a metric that is a mean over examples"]
        return Findings.of_runs(runs, _COLUMNS, rows, notes, panels)


def _scores(run: Run, task: str) -> Scores:
    """Return the scores of a task's examples."""
    found: dict[tuple[str, str], dict[str, list[list[float]]]] = defaultdict(dict)
    for label in run.rows:
        for cell in run.results:
            is_mean = cell.metrics is not None and cell.metrics.mean is None
            is_here = is_mean and cell.answers.is_file()
            if (cell.policy, cell.task) != (label, task) or not is_here:
                continue
            own: dict[tuple[str, str], list[float]] = defaultdict(list)
            for row in predictions.rows(cell.answers):
                for place in (row.get("slices") or {}).items():
                    own[place].append(row["score"])
            for place, scores in own.items():
                found[place].setdefault(label, []).append(scores)
    return found


def _panel(title: str, name: str, rows: Sequence[Mapping[str, Json]]) -> Grid:
    own = {(row["value"], row["policy"]): row["score"] for row in rows if row["slice"] == name}
    values, labels = (list(dict.fromkeys(each)) for each in zip(*own, strict=True))
    return Grid(title, values, labels, [[own.get((v, row)) for row in labels] for v in values])
