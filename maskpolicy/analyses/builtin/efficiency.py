"""Scores and probes over the steps of the intermediate stage, and over their cost."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal, TypeAlias

from maskpolicy import Findings, Json, Result, Run, Store, analysis
from maskpolicy.analyses import Point, over_runs, panels, points
from maskpolicy.analyses.cache import lacking
from maskpolicy.analyses.curves import UNITS, cost
from maskpolicy.analyses.representations import model_number
from maskpolicy.analyses.representations.probes import Accuracy, accuracies
from maskpolicy.leaderboard import comparisons
from maskpolicy.leaderboard.comparisons import NO_ANSWERS, baseline_of, condition
from maskpolicy.leaderboard.results import predictions
from maskpolicy.leaderboard.results.cell import STEP

_EFFICIENCY_COLUMNS = (
    *("run", "policy", "task", "steps", "score", "std", "low", "high", "seeds"),
    *("difference", "difference low", "difference high", "p (Holm)", "detectable"),
)


@analysis(
    "efficiency", heading="Scores over the steps of the intermediate stage", place=20, version=2
)
@dataclass(frozen=True)
class Efficiency:
    """Score over steps of the intermediate stage, with the range over fine-tuning seeds.

    Needs checkpoints: `checkpoint_steps: [250, 500]` in the experiment. Step 0 is the row `none`.
    Lines are means over seeds, bands range from the lowest seed to the highest. Each point is
    tested against the run's baseline like a cell of a leaderboard, all as one family; the
    predictions of checkpoints are read from the store.
    """

    def analyse(self, runs: Sequence[Run], store: Store) -> Findings:
        """Return the scores before, during and after the intermediate stage, with tests."""
        found, notes = points(runs)
        tests = tested(found, runs, store)
        rows = [
            _about(point)
            | {"low": min(point.scores), "high": max(point.scores)}
            | _shown(comparison)
            for point, comparison in zip(found, tests, strict=True)
        ]
        untested = [each.reason for each in tests if each is not None and each.reason]
        notes += [f"points without a test: {reason}" for reason in dict.fromkeys(untested)]
        notes += filter(None, [condition(tests)])
        lines = panels(found, "steps of the intermediate stage", lambda point: point.steps)
        partial = NO_ANSWERS in untested
        return Findings.of_runs(runs, _EFFICIENCY_COLUMNS, rows, notes, lines, partial=partial)


def _about(point: Point) -> dict[str, Json]:
    where: dict[str, Json] = {"run": point.run, "policy": point.policy, "task": point.task}
    scores = {"score": point.mean, "std": point.std, "seeds": len(point.scores)}
    return {**where, "steps": point.steps, **scores}


def tested(
    found: Sequence[Point], runs: Sequence[Run], store: Store
) -> list[comparisons.Comparison | None]:
    """Compare each point with the last point of its run's baseline; None for the baseline itself.

    The points of a policy come from the same intermediate runs, so they count as one row.
    """
    by_name = {run.name: run for run in runs}
    read = cache(lambda cell: predictions.read_anywhere(cell, store))
    compared: list[comparisons.Comparison | None] = []
    for point in found:
        run = by_name[point.run]
        is_last = all(STEP not in result.config for result in point.results)
        base = baseline_of(run, point.policy)
        if point.steps == 0 or (point.policy == base and is_last):
            compared.append(None)
            continue
        ends = [r for r in run.results if (r.policy, r.task) == (base, point.task)]
        names = (f"{point.policy} of {point.run}", f"{base} of {point.run}")
        cells = (_cells(point.results), _cells(ends))
        compared.append(comparisons.compare(*cells, read, names))
    return comparisons.assess_family(compared)


def _cells(results: Sequence[Result]) -> dict[int, Result | None]:
    return {result.seed: result for result in results}


def _shown(comparison: comparisons.Comparison | None) -> dict[str, Json]:
    if comparison is None or comparison.estimate is None:
        return {}
    return {
        "difference": comparison.estimate.difference,
        "difference low": comparison.estimate.low,
        "difference high": comparison.estimate.high,
        "p (Holm)": comparison.p_holm,
        "detectable": None if comparison.is_significant else comparison.estimate.detectable,
    }


_CHECKPOINTS_COLUMNS = (
    *("run", "policy", "task", "steps", "seconds", "tokens", "score", "std", "seeds"),
)


@analysis("checkpoints", heading="Scores over time or tokens", place=130, version=3)
@dataclass(frozen=True)
class CheckpointScores:
    """Score of fine-tuned checkpoints over pre-training time (Meng et al. 2024).

    Like `efficiency`, with the same checkpoints (`checkpoint_steps`), but over the cost of the
    steps, which differs between policies. `tokens` counts source and target tokens, also those that
    a policy reads to annotate passages again. `seconds` is the stage's time on the machine that
    trained it, divided in proportion to tokens.
    """

    over: Literal["seconds", "tokens"] = "seconds"

    def analyse(self, runs: Sequence[Run], store: Store) -> Findings:
        """Combine the score and the cost of every checkpoint."""
        found, notes = points(runs)
        costs = {id(point): cost(point, found, store) for point in found}
        rows = [_about(point) | costs[id(point)] for point in found]
        unknown = sorted({p.label for p in found if costs[id(p)][self.over] is None})
        why = lacking(store, f"its intermediate stage, which records its {self.over},")
        notes += [f"{label}: {why}" for label in unknown]
        lines = panels(found, UNITS[self.over], lambda point: costs[id(point)][self.over])
        partial = any(None in each.values() for each in costs.values())
        return Findings.of_runs(runs, _CHECKPOINTS_COLUMNS, rows, notes, lines, partial=partial)


_FIGURE3_COLUMNS = (
    *("run", "policy", "task", "steps", "seconds", "tokens", "score", "low", "high", "runs"),
    *("difference", "difference low", "difference high", "p (Holm)", "detectable"),
)
_Place: TypeAlias = tuple[str, str, str, int]
"""Run, row, task or probe, and steps."""


@analysis(
    "figure3",
    heading="Scores and probes over the steps, as Meng et al. draw them",
    place=100,
    version=4,
)
@dataclass(frozen=True)
class Figure3:
    """Score of checkpoints over pre-training time, by intermediate run (Meng et al., figure 3).

    Needs checkpoints (`checkpoint_steps`). `score` is the mean over intermediate runs, `low` and
    `high` bound Student's 95% interval. Each row is paired by run with the baseline after the same
    number of steps and tested over runs, all rows, tasks and steps as one family, for these
    questions alone. `efficiency` compares with the baseline's last point, over questions too.
    `probes=true` adds the accuracies of `analyze probe` in the last layer. The axis shows steps,
    or tokens or seconds as in `checkpoints`.
    """

    over: Literal["steps", "seconds", "tokens"] = "steps"
    probes: bool = False

    def analyse(self, runs: Sequence[Run], store: Store) -> Findings:
        """Average the scores of checkpoints over intermediate runs, and test differences."""
        found, notes = points(runs)
        numbers = {(one.run, one.policy, one.task, one.steps): _by_run(one) for one in found}
        missing: list[str] = []
        if self.probes:
            probed, missing = accuracies(runs, store)
            numbers |= _of_probes(probed, runs)
        costs: dict[tuple[str, str, int], dict[str, float | None]] = {}
        for one in found:  # a task whose last cells failed does not know them
            own = cost(one, found, store)
            known: dict[str, float | None] = {k: v for k, v in own.items() if v is not None}
            place = (one.run, one.policy, one.steps)
            costs[place] = {"seconds": None, "tokens": None} | costs.get(place, {}) | known
        differences = over_runs.differences(
            {place: known for place, known in numbers.items() if place[-1]}, runs
        )
        rows = [
            dict(zip(_FIGURE3_COLUMNS, place, strict=False))
            | costs.get((*place[:2], place[3]), {})
            | over_runs.mean("score", known.values())
            | {"runs": len(known)}
            | differences.get(place, {})
            for place, known in numbers.items()
        ]
        lacking = (row for row in rows if row["steps"] and row.get("seconds") is None)
        unknown = [str(row["policy"]) for row in lacking]
        axis = UNITS[self.over]
        drawn = over_runs.panels(rows, "task", self.over, axis, "score", len(runs) > 1)
        panels = (
            replace(panel, y="accuracy (%)") if panel.title.startswith("probe ") else panel
            for panel in drawn
        )
        values = (
            dict(zip(_FIGURE3_COLUMNS, place, strict=False)) | {"stage": stage, "value": value}
            for place, known in numbers.items()
            for stage, value in known.items()
        )
        notes += missing + over_runs.without_baseline(runs)
        partial = bool(missing or unknown)
        if self.over == "seconds" and unknown:
            rest = ", ".join(dict.fromkeys(unknown))
            notes.append(
                f"{rest}: the seconds of a training are not in the store, so it is left out"
            )
        return Findings.of_runs(
            runs, _FIGURE3_COLUMNS, rows, notes, panels, values=values, partial=partial
        )


def _by_run(point: Point) -> dict[int, float]:
    """Return the mean over fine-tuning seeds of each run; at step 0, of each general model."""
    scores: dict[int, list[float]] = {}
    for result in point.results:
        if result.percent is not None:
            scores.setdefault(model_number(result)[1], []).append(result.percent)
    return {number: statistics.fmean(each) for number, each in sorted(scores.items())}


def _of_probes(found: Sequence[Accuracy], runs: Sequence[Run]) -> dict[_Place, dict[int, float]]:
    """Return the accuracies of the last layer; at step 0 those of the model without a stage."""
    numbers: dict[_Place, dict[int, float]] = {}
    staged = over_runs.staged(runs)
    rows = {run.name: [row for row in run.rows if (run.name, row) in staged] for run in runs}
    for each in sorted((one for one in found if one.is_last), key=lambda one: one.model.steps):
        model = each.model
        for row in [model.policy] if model.has_stage else rows[model.run.name]:
            place = (model.run.name, row, f"probe {each.probe}", model.steps)
            numbers.setdefault(place, {})[model.stage] = each.percent
    return numbers
