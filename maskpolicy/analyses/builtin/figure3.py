"""Scores and probe accuracies over pre-training time, as means over intermediate runs."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from maskpolicy import Findings, Json, Run, Store, analysis
from maskpolicy.analyses import Point, over_runs, points
from maskpolicy.analyses.curves import UNITS, cost
from maskpolicy.analyses.plots import Lines
from maskpolicy.analyses.representations.probes import Accuracy, accuracies

COLUMNS = (
    *("run", "policy", "task", "steps", "seconds", "tokens", "score", "low", "high", "runs"),
    *("difference", "difference low", "difference high", "p (Holm)", "detectable"),
)
_Place: TypeAlias = tuple[str, str, str, int]
"""Run, row, task or probe, and steps."""
_Numbers: TypeAlias = Mapping[_Place, Mapping[int, float]]
"""At each place the score of each intermediate run, in percent."""


@analysis(
    "figure3",
    heading="Scores and probes over the steps, as Meng et al. draw them",
    place=100,
    version=2,
)
@dataclass(frozen=True)
class Figure3:
    """Score of checkpoints over pre-training time, by intermediate run (Meng et al., figure 3).

    Needs checkpoints (`checkpoint_steps`). `score` is the mean over intermediate runs, `low` and
    `high` bound Student's 95% interval. Each row is paired by run with the baseline after the same
    number of steps and tested over runs, all rows, tasks and steps as one family; the questions are
    held fixed. `efficiency` compares with the baseline's last point, over questions too.
    `probes=true` adds the accuracies of `analyze probe` in the last layer. The axis shows steps,
    or tokens or seconds as in `checkpoints`.
    """

    over: Literal["steps", "seconds", "tokens"] = "steps"
    probes: bool = False

    def analyse(self, runs: Sequence[Run], store: Store) -> Findings:
        """Average the scores of checkpoints over intermediate runs, and test differences."""
        found, notes = points(runs)
        numbers = {_place(point): _by_run(point) for point in found}
        missing: list[str] = []
        if self.probes:
            probed, missing = accuracies(runs, store)
            numbers |= _of_probes(probed, runs)
        costs = {(one.run, one.policy, one.steps): cost(one, found, store) for one in found}
        pairs = over_runs.against_baselines(
            {place: known for place, known in numbers.items() if place[-1]}, runs
        )
        tests = over_runs.tested(pairs)
        rows = [
            _row(place, known, costs.get((*place[:2], place[3]), {}), pairs.get(place))
            | over_runs.of_difference(tests.get(place, {}))
            for place, known in numbers.items()
        ]
        several = len(runs) > 1
        unknown = [row["policy"] for row in rows if row["steps"] and row.get("seconds") is None]
        return Findings(
            COLUMNS if several else COLUMNS[1:],
            tuple(rows),
            (*notes, *missing),
            tuple(_panels(rows, self.over, several)),
            partial=bool(missing or unknown),
            values=tuple(_values(numbers)),
        )


def _place(point: Point) -> _Place:
    return point.run, point.policy, point.task, point.steps


def _by_run(point: Point) -> dict[int, float]:
    """Return the mean over fine-tuning seeds of each run; the models before are one for a seed."""
    scores: dict[int, list[float]] = {}
    for result in point.results:
        if result.percent is not None:
            number = result.config.get("intermediate_seed", result.seed)
            scores.setdefault(number, []).append(result.percent)
    return {number: statistics.fmean(each) for number, each in sorted(scores.items())}


def _of_probes(found: Sequence[Accuracy], runs: Sequence[Run]) -> dict[_Place, dict[int, float]]:
    """Return the accuracies of the last layer; every row begins at a model without its stage."""
    numbers: dict[_Place, dict[int, float]] = {}
    rows = {run.name: [row for row in run.rows if _has_stage(run, row)] for run in runs}
    for each in sorted((one for one in found if one.is_last), key=lambda one: one.model.steps):
        model = each.model
        for row in [model.policy] if model.has_stage else rows[model.run.name]:
            place = (model.run.name, row, f"probe {each.probe}", model.steps)
            numbers.setdefault(place, {})[model.stage] = each.percent
    return numbers


def _has_stage(run: Run, row: str) -> bool:
    return any(one.policy == row and "intermediate" in one.config for one in run.results)


def _row(
    place: _Place,
    known: Mapping[int, float],
    costs: Mapping[str, float | None],
    pairs: Sequence[float] | None,
) -> dict[str, Json]:
    row: dict[str, Json] = dict(zip(("run", "policy", "task", "steps"), place, strict=True))
    row |= {**costs, **over_runs.mean("score", known.values()), "runs": len(known)}
    return row | ({"difference": statistics.fmean(pairs)} if pairs else {})


def _values(numbers: _Numbers) -> Iterator[dict[str, Json]]:
    for (run, policy, task, steps), known in numbers.items():
        about: dict[str, Json] = {"run": run, "policy": policy, "task": task, "steps": steps}
        yield from ({**about, "stage": stage, "value": value} for stage, value in known.items())


def _panels(rows: Sequence[Mapping[str, Json]], over: str, several: bool) -> Iterator[Lines]:
    """Yield a panel for each task and probe, with a line for each row of each run."""
    for task in dict.fromkeys(row["task"] for row in rows):
        series = []
        here = [row for row in rows if row["task"] == task and row.get(over) is not None]
        for run, policy in dict.fromkeys((row["run"], row["policy"]) for row in here):
            line = [row for row in here if (row["run"], row["policy"]) == (run, policy)]
            label = f"{policy} ({run})" if several else policy
            places = [float(row[over]) for row in line]
            series.append(over_runs.series(label, line, "score", places))
        unit = "accuracy (%)" if task.startswith("probe ") else "score (%)"
        yield Lines(task, UNITS[over], unit, series)
