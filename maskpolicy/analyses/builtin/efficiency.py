"""Scores over the steps of the intermediate stage, and over their cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from maskpolicy import Findings, Json, Result, Run, Store, analysis
from maskpolicy.analyses import Point, panels, points
from maskpolicy.analyses.curves import UNITS, cost
from maskpolicy.leaderboard import comparisons
from maskpolicy.leaderboard.baselines import baseline_of
from maskpolicy.leaderboard.comparisons import NO_ANSWERS, condition
from maskpolicy.leaderboard.results import predictions
from maskpolicy.leaderboard.results.cell import STEP

_EFFICIENCY_COLUMNS = (
    *("run", "policy", "task", "steps", "score", "std", "low", "high", "seeds"),
    *("difference", "difference low", "difference high", "p (Holm)", "detectable"),
)


@analysis("efficiency", heading="Scores over the steps of the intermediate stage", place=20)
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
            {
                "run": point.run,
                "policy": point.policy,
                "task": point.task,
                "steps": point.steps,
                "score": point.mean,
                "std": point.std,
                "low": min(point.scores),
                "high": max(point.scores),
                "seeds": len(point.scores),
                **_shown(comparison),
            }
            for point, comparison in zip(found, tests, strict=True)
        ]
        untested = [each.reason for each in tests if each is not None and each.reason]
        notes += [f"points without a test: {reason}" for reason in dict.fromkeys(untested)]
        notes += filter(None, [condition(tests)])
        columns = _EFFICIENCY_COLUMNS if len(runs) > 1 else _EFFICIENCY_COLUMNS[1:]
        lines = panels(found, "steps of the intermediate stage", lambda point: point.steps)
        partial = NO_ANSWERS in untested
        return Findings(columns, tuple(rows), tuple(notes), tuple(lines), partial=partial)


def tested(
    found: Sequence[Point], runs: Sequence[Run], store: Store
) -> list[comparisons.Comparison | None]:
    """Compare each point with the last point of its run's baseline; None for the baseline itself.

    The points of a policy come from the same intermediate runs, so they count as one row.
    """
    by_name = {run.name: run for run in runs}
    read = cache(lambda cell: predictions.read_anywhere(cell, store))
    bases = {
        (run.name, row, task): _cells(
            [r for r in run.results if (r.policy, r.task) == (row, task)], run
        )
        for run in runs
        for row in run.rows
        for task in run.columns
    }
    compared = []
    for point in found:
        run = by_name[point.run]
        is_last = all(STEP not in result.config for result in point.results)
        base = baseline_of(run, point.policy)
        is_base = point.policy == base and is_last
        names = (f"{point.policy} of {point.run}", f"{base} of {point.run}")
        cells = (_cells(point.results, run), bases.get((point.run, base, point.task), {}))
        no_test = is_base or point.steps == 0
        compared.append(None if no_test else comparisons.compare(*cells, read, names))
    return comparisons.assess_family(compared)


def _cells(results: Sequence[Result], run: Run) -> dict[int, Result | None]:
    return {result.seed: replace(result, folder=run.folder) for result in results}


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
    "run",
    "policy",
    "task",
    "steps",
    "seconds",
    "tokens",
    "score",
    "std",
    "seeds",
)


@analysis("checkpoints", heading="Scores over time or tokens", place=130)
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
        rows = [
            {
                "run": point.run,
                "policy": point.policy,
                "task": point.task,
                "steps": point.steps,
                "seconds": costs[id(point)]["seconds"],
                "tokens": costs[id(point)]["tokens"],
                "score": point.mean,
                "std": point.std,
                "seeds": len(point.scores),
            }
            for point in found
        ]
        unknown = sorted({p.label for p in found if costs[id(p)][self.over] is None})
        notes += [
            f"{label}: its intermediate stage, which records its seconds, is not in the store "
            f"{store.place}" for label in unknown
        ]  # fmt: skip
        lines = panels(found, UNITS[self.over], lambda point: costs[id(point)][self.over])
        columns = _CHECKPOINTS_COLUMNS if len(runs) > 1 else _CHECKPOINTS_COLUMNS[1:]
        return Findings(columns, tuple(rows), tuple(notes), tuple(lines), partial=bool(unknown))
