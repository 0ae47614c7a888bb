"""Scores of the rows of finished runs before, on the way through and after pre-training."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from maskpolicy.plots import Lines, Series
from maskpolicy.results.cell import STEP, Result, Run


@dataclass(frozen=True)
class Point:
    """What a row scored on a task after some steps of its intermediate stage, in percent."""

    run: str
    label: str  # of the line: the policy, with its run where there are several
    policy: str
    task: str
    steps: int
    scores: tuple[float, ...]  # one for each seed
    results: tuple[Result, ...]
    color: int

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return statistics.fmean(self.scores)

    @property
    def std(self) -> float | None:
        """The standard deviation over seeds with n - 1; None for a single one."""
        return statistics.stdev(self.scores) if len(self.scores) > 1 else None


def points(runs: Sequence[Run]) -> tuple[list[Point], list[str]]:
    """Return the points of every row with an intermediate stage, and what is missing in words.

    A row begins at step 0 with the scores of its run's row without such a stage, if there is one.
    """
    found: list[Point] = []
    notes: list[str] = []
    for run in runs:
        if not run.early:
            notes.append(
                f"{run.name}: no checkpoints: set checkpoint_steps, e.g. checkpoint_steps: "
                "[250, 500], in the experiment and run it again"
            )
        for color, label in enumerate(run.rows):
            for task in run.columns:
                found += _line(
                    run, label, task, color, f"{label} ({run.name})" if len(runs) > 1 else label
                )
        for result in run.early:
            if result.metrics is None:
                where = f"{result.policy}, {result.task}, seed {result.seed}"
                notes.append(f"{run.name}, {where}, step {result.config[STEP]}: {result.error}")
    return found, notes


def panels(found: Sequence[Point], x: str, place: Callable[[Point], float | None]) -> list[Lines]:
    """Return a panel of lines for each task; points whose place is not known are left out."""
    made = []
    for task in dict.fromkeys(point.task for point in found):
        series = []
        for label in dict.fromkeys(point.label for point in found):
            line = [p for p in found if (p.task, p.label) == (task, label) and place(p) is not None]
            if line:
                low, high = [min(p.scores) for p in line], [max(p.scores) for p in line]
                places = [float(place(p) or 0.0) for p in line]
                means = [p.mean for p in line]
                series.append(Series(label, means, places, low, high, line[0].color))
        made.append(Lines(task, x, "score (%)", series))
    return made


def _line(run: Run, policy: str, task: str, color: int, label: str) -> list[Point]:
    own = [r for r in (*run.results, *run.early) if (r.policy, r.task) == (policy, task)]
    if not any("intermediate" in result.config for result in own):
        return []
    start = [r for r in run.results if r.task == task and "intermediate" not in r.config]
    by_steps: dict[int, list[Result]] = {}
    for result in (*_scored(start), *_scored(own)):
        by_steps.setdefault(_steps(result), []).append(result)
    return [
        Point(
            run.name,
            label,
            policy,
            task,
            steps,
            tuple(one.percent for one in results if one.percent is not None),
            tuple(results),
            color,
        )
        for steps, results in sorted(by_steps.items())
    ]


def _scored(results: Iterable[Result]) -> list[Result]:
    return [result for result in results if result.metrics is not None]


def _steps(result: Result) -> int:
    if "intermediate" not in result.config:
        return 0
    return int(result.config.get(STEP, result.config["intermediate"]["steps"]))
