"""Evidence of finished runs on a contrast: a difference over runs and examples, or numbers.

Differences of scores have the variance components of `leaderboard.stats`, so contrasts over several
tasks, rows or experiments have standard errors from the same model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TypeAlias

import numpy as np

from maskpolicy.analyses import Findings
from maskpolicy.analyses.cache import analyse
from maskpolicy.analyses.curves import steps_of
from maskpolicy.analyses.paper_claims.contrasts import (
    Contrast,
    Measured,
    RowDifference,
    Trend,
)
from maskpolicy.core import keys
from maskpolicy.core.errors import ConfigError, MaskpolicyError, listed
from maskpolicy.core.types import Json
from maskpolicy.leaderboard import comparisons, joined_rows, stats
from maskpolicy.leaderboard.comparisons import Cells, Comparison
from maskpolicy.leaderboard.joined_rows import Draft
from maskpolicy.leaderboard.results import predictions
from maskpolicy.leaderboard.results.cell import Result, Run
from maskpolicy.leaderboard.stats import Floats
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.plugins.discovery import instance

Points: TypeAlias = list[tuple[float, float]]
"""Places, such as steps or layers, and the numbers there."""
Moment: TypeAlias = tuple[str, float, dict[str, Cells]]
"""A step of the intermediate stage, its share of the mean, and the cells of each row there."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """Evidence on one contrast; `reason` says why nothing can be tested."""

    runs: int = 0  # intermediate runs, or seeds where rows have no intermediate stage
    reason: str | None = None
    pair: stats.Difference | None = None  # over runs and examples; scores in [0, 1]
    values: Floats | None = None  # (runs,) in the contrast's unit, where there is no `pair`
    resolution: float = 0.0  # `values` are rounded to multiples of it
    noise_from: tuple[stats.Difference, ...] = ()  # pairs of rows to estimate the noise of runs
    draws_general: bool = False  # whether each seed has a general model of its own
    is_absent: bool = False  # whether the runs lack the experiment, a row, or all of an analysis


@dataclass(eq=False)
class Evidences:
    """The evidence of some runs, and a cache of the tables of analyses."""

    runs: Sequence[Run]
    store: Store
    # settings of analyses, by their name, besides those of a contrast
    settings: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # of analyses that failed

    def __post_init__(self) -> None:
        """Read each cell's answers and make each analysis once."""
        self._rows = cache(self._joined)
        self._read = cache(lambda cell: predictions.read_anywhere(cell, self.store))
        self._tables: dict[str, Findings | None] = {}
        self._known: dict[tuple[str, ...], Comparison] = {}  # pairs of rows

    def of(self, contrast: Contrast) -> Evidence:
        """Return the evidence about a contrast."""
        if not self.of_experiment(contrast.experiment):
            return Evidence(reason=f"no run of {contrast.experiment}", is_absent=True)
        if isinstance(contrast, Measured):
            return self._measured(contrast)
        if isinstance(contrast, Trend):
            return self._weighed(contrast.weights, contrast)
        weights = {contrast.row: 1.0, contrast.other: -1.0}
        return self._weighed(weights, contrast, over_steps=contrast.over_steps)

    def of_experiment(self, name: str) -> list[Run]:
        """Return the runs of an experiment, which may be spread over several folders."""
        return [run for run in self.runs if run.experiment == name]

    def table(self, name: str, settings: Mapping[str, Json], run: Run) -> Findings | None:
        """Return the findings of an analysis of a run; if it fails, add a note and return None."""
        settings = {**self.settings.get(name, {}), **settings}
        place = keys.canonical([name, settings, str(run.folder)])
        if place not in self._tables:
            try:
                made = instance("analysis", name, settings, name)
                self._tables[place] = analyse(name, made, [run], self.store)
            except MaskpolicyError as error:
                self.notes.append(f"{run.name}, {name}: {error}")
                self._tables[place] = None
        return self._tables[place]

    def _weighed(
        self,
        weights: Mapping[str, float],
        contrast: RowDifference | Trend,
        *,
        over_steps: bool = False,
    ) -> Evidence:
        """Return the evidence about a weighted sum of rows, its mean over tasks.

        `over_steps` is for two rows.
        """
        drafts = self._rows(contrast.experiment)
        named = {label: [row for row in drafts if row.is_called(label)] for label in weights}
        rows = {label: own[0] for label, own in named.items() if own}
        runs = self.of_experiment(contrast.experiment)
        columns = list(dict.fromkeys(column for run in runs for column in run.columns))
        absent = [f"row {label}" for label in weights if label not in rows]
        absent += [f"task {task}" for task in contrast.tasks if task not in columns]
        if absent:
            return Evidence(reason=f"{contrast.experiment} has no {absent[0]}", is_absent=True)
        names = (" ".join(weights), contrast.experiment)
        found: list[Comparison] = []
        noise_from: list[stats.Difference] = []
        by_task: list[dict[int, float]] = []
        for task in contrast.tasks or columns:
            moments: list[Moment]
            moments = [("end", 1.0, {label: row.of(task) for label, row in rows.items()})]
            if over_steps and not (moments := _moments(rows, task)):
                return Evidence(reason=f"{contrast.experiment} kept no checkpoints")
            parts = [
                (weight * share, cells[label])
                for _, share, cells in moments
                for label, weight in weights.items()
            ]
            compared, root = comparisons.weigh(parts, self._read, names), np.zeros(())
            for step, share, cells in moments:
                pairs = self._pairs(cells, contrast.experiment, task, step)
                noise_from += pairs
                root = root + share * sum(np.sqrt(pair.slope) for pair in pairs)
            if over_steps and compared.pair is not None:
                # the noise of a run is common to its steps: standard errors add up
                compared = replace(compared, pair=compared.pair._replace(slope=root**2))
            found.append(compared)
            by_task.append(_sums(parts))
        return _mean(found, noise_from, by_task)

    def _pairs(self, cells: Mapping[str, Cells], *where: str) -> list[stats.Difference]:
        """Return the differences of all rows to the last one, to estimate the noise of runs.

        `where` names the experiment, the task and the step, which are the key of the comparison.
        """
        *labels, base = cells
        found = []
        for label in labels:
            place = (label, base, *where)
            if place not in self._known:
                named = (f"{label} of {where[0]}", f"{base} of {where[0]}")
                both = (cells[label], cells[base])
                self._known[place] = comparisons.compare(*both, self._read, named)
            found.append(self._known[place].pair)
        return [pair for pair in found if pair is not None]

    def _measured(self, contrast: Measured) -> Evidence:
        """Return the numbers of an analysis, one for each intermediate run of the row or rows."""
        points: dict[str, dict[int, Points]] = {}
        wanted = [(n, v if isinstance(v, tuple) else (v,)) for n, v in contrast.where.items()]
        tables = []
        for run in self.of_experiment(contrast.experiment):
            table = self.table(contrast.analysis, contrast.settings, run)
            tables.append(table)
            for label in filter(None, (contrast.row, contrast.other)):
                every = (*table.rows, *table.values) if table else ()
                rows = [row for row in every if all(row.get(n) in known for n, known in wanted)]
                points.setdefault(label, {}).update(_by_run(rows, label, contrast))
        numbers = _numbers(points, contrast)
        mine, other = numbers[contrast.row], numbers.get(contrast.other or "")
        shared = sorted(mine if other is None else mine.keys() & other.keys())
        if not shared:
            lacking = " or ".join(label for label, known in numbers.items() if not known)
            what = f"number for {lacking}" if lacking else "run with numbers of both rows"
            is_early = any(points[label] for label in numbers if not numbers[label])
            where = f" at the last {contrast.along}" if is_early else ""
            reason = f"{contrast.analysis} has no {what}{where}"
            there = {row for run in self.of_experiment(contrast.experiment) for row in run.rows}
            lacks_row = not is_early and not {*numbers} <= there
            is_empty = not any(each and each.rows for each in tables)
            return Evidence(reason=reason, is_absent=lacks_row or is_empty)
        values = np.array([mine[run] - (0.0 if other is None else other[run]) for run in shared])
        if len(values) > 1 and stats.are_equal(values) and not contrast.resolution:
            return Evidence(len(values), reason="the number is the same in every run")
        resolution = contrast.resolution * (1 if other is None else np.sqrt(2))
        return Evidence(len(values), values=values, resolution=resolution)

    def _joined(self, experiment: str) -> list[Draft]:
        """Return the rows of an experiment's runs; raises ConfigError if they cannot be joined."""
        drafts = joined_rows.join_rows(self.of_experiment(experiment))
        for pair, lines in joined_rows.unlike(drafts).items():
            raise ConfigError(
                f"{pair} differ in {listed(lines, '; ')}: give runs of one experiment "
                f"{experiment!r} only"
            )
        if len({draft.label for draft in drafts}) < len(drafts):
            raise ConfigError(f"the runs of {experiment!r} cannot be joined: give one of them")
        return drafts


def _moments(rows: Mapping[str, Draft], task: str) -> list[Moment]:
    """Return the steps that all rows have, for the mean over steps by trapezoids from step 0.

    At step 0 all rows have the same score; a row without an intermediate stage has it at all steps.
    The result is [] without checkpoints.
    """
    curves = {label: _curve(row, task) for label, row in rows.items()}
    trained = [set(curve) for curve in curves.values() if 0 not in curve]
    steps = sorted(set.intersection(*trained)) if trained else []
    if len(steps) < 2:
        return []
    gaps = np.diff([0, *steps])
    shares = np.add(gaps, [*gaps[1:], 0]) / (2 * steps[-1])
    found: list[Moment] = []
    for step, share in zip(steps, shares.tolist(), strict=True):
        cells = {label: curve.get(step, curve.get(0, {})) for label, curve in curves.items()}
        found.append((str(step), share, cells))
    return found


def _curve(row: Draft, task: str) -> dict[int, Cells]:
    """Return the cells of a row on a task at each checkpoint and at the end, by steps."""
    kept = [
        result
        for run, label in row.labels
        for result in run.early
        if (result.policy, result.task) == (label, task)
    ]
    found: dict[int, dict[int, Result | None]] = {}
    for result in (*kept, *filter(None, row.of(task).values())):
        found.setdefault(steps_of(result), {})[result.seed] = result
    return dict(found)


def _sums(parts: Sequence[tuple[float, Cells]]) -> dict[int, float]:
    """Return the weighted sum of the rows' scores in [0, 1] for each seed that all rows have."""
    weights = [weight for weight, _ in parts]
    return {
        cells[0].seed: sum(
            weight * cell.metrics.score
            for weight, cell in zip(weights, cells, strict=True)
            if cell.metrics
        )
        for cells in comparisons.matched([cells for _, cells in parts])
    }


def _mean(
    found: Sequence[Comparison],
    noise_from: Sequence[stats.Difference],
    by_task: Sequence[Mapping[int, float]],
) -> Evidence:
    """Return the evidence about the mean over tasks of one weighted sum of rows.

    If a task has no scores of single examples, there is one number for each seed.
    """
    runs = min(each.seeds for each in found)
    reasons = [each.reason for each in found if each.reason is not None]
    other = [reason for reason in reasons if reason != comparisons.WHOLE]
    if other:
        return Evidence(runs, reason=other[0])
    if reasons:
        seeds = sorted(set.intersection(*(set(task) for task in by_task)))
        values = np.array([[100 * task[seed] for seed in seeds] for task in by_task]).mean(0)
        if stats.are_equal(values):
            return Evidence(len(seeds), reason="the difference is the same for every seed")
        return Evidence(len(seeds), values=values, noise_from=tuple(noise_from))
    if len({each.paired for each in found}) > 1:
        return Evidence(runs, reason="its tasks have scores for different seeds")
    pairs = [each.pair for each in found if each.pair is not None]
    return Evidence(
        runs,
        pair=stats.average(pairs),
        noise_from=tuple(noise_from),
        draws_general=all(each.draws_general for each in found),
    )


def _by_run(
    rows: Sequence[Mapping[str, Json]], label: str, contrast: Measured
) -> dict[int, Points]:
    """Return the numbers of each intermediate run of the row `label`, with their places."""
    by_run: dict[int, Points] = {}
    for row in rows:
        run, value = _run_of(row, label), row.get(contrast.value)
        if run is not None and value is not None:
            place = float(row[contrast.along]) if contrast.along else 0.0
            by_run.setdefault(run, []).append((place, float(value)))
    return by_run


def _run_of(row: Mapping[str, Json], label: str) -> int | None:
    """Return the number of the intermediate run in a row of a table; None for another label.

    A table has "LABEL, run 3" in the column `model` or `policy`, or the number in `stage`.
    """
    name = str(row.get("model") or row.get("policy") or "")
    if name == label:
        return int(row.get("stage") or 0)
    named = re.fullmatch(rf"{re.escape(label)}, (?:run|general model) (\d+)", name)
    return int(named[1]) if named else None


def _numbers(
    points: Mapping[str, Mapping[int, Points]], contrast: Measured
) -> dict[str, dict[int, float]]:
    """Return one number for each intermediate run of each row.

    The last place is the largest one of all runs; runs without a number there are left out.
    """
    places = {place for runs in points.values() for known in runs.values() for place, _ in known}
    last = max(places, default=0.0)
    found: dict[str, dict[int, float]] = {label: {} for label in points}
    for label, runs in points.items():
        for run, known in runs.items():
            kept = [each for each in known if contrast.reduce != "last" or each[0] == last]
            if kept:
                at, values = (np.array(each) for each in zip(*sorted(kept), strict=True))
                if contrast.reduce == "slope":
                    number = np.polyfit(at, values, 1)[0]
                else:
                    number = values.mean() if contrast.reduce == "last" else values.sum()
                found[label][run] = float(number)
    return found
