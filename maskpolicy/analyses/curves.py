"""Scores of each row over the steps of its intermediate stage, from step 0 to the last."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import eq

from maskpolicy.analyses.plots import Lines, Series
from maskpolicy.core.types import Json
from maskpolicy.experiment.definition import untuned
from maskpolicy.leaderboard.board import by_reason
from maskpolicy.leaderboard.joined_rows import Gap
from maskpolicy.leaderboard.results.cell import STEP, TOKENS, Result, Run
from maskpolicy.leaderboard.results.compatibility import tuned_keys
from maskpolicy.pipeline.store.artifacts import Store

UNITS = {
    "steps": "steps of the intermediate stage",
    "seconds": "seconds of pre-training",
    "tokens": "source and target tokens",
}


@dataclass(frozen=True)
class Point:
    """The scores of a row on a task after `steps` steps of its intermediate stage, in percent."""

    run: str
    label: str  # of the line: the policy, and its run if there are several
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
        """The sample standard deviation over seeds (n - 1); None for one seed."""
        return statistics.stdev(self.scores) if len(self.scores) > 1 else None


def points(runs: Sequence[Run]) -> tuple[list[Point], list[str]]:
    """Return the points of every row with an intermediate stage, and notes on missing ones.

    Step 0 has the scores of the run's row without an intermediate stage, if there is one.
    """
    found: list[Point] = []
    notes: list[str] = []
    for run in runs:
        if not run.early:
            notes.append(
                f"{run.name}: the run kept no checkpoints: set checkpoint_steps, e.g. "
                "checkpoint_steps: [250, 500], in the experiment and run it again"
            )
        for color, label in enumerate(run.rows):
            line_label = f"{label} ({run.name})" if len(runs) > 1 else label
            for task in run.columns:
                found += _line(run, label, task, color, line_label)
        notes += by_reason(
            (
                f"{run.name}, {one.policy}, step {one.config[STEP]}",
                Gap(one.task, one.seed, one.error or ""),
            )
            for one in run.early
            if one.metrics is None
        )
    return found, notes


def panels(found: Sequence[Point], x: str, place: Callable[[Point], float | None]) -> list[Lines]:
    """Return a panel of lines for each task.

    `place` gives the position of a point on the axis `x`; points without a position are omitted.
    """
    plots = []
    for task in dict.fromkeys(point.task for point in found):
        series = []
        for label in dict.fromkeys(point.label for point in found):
            line = [p for p in found if (p.task, p.label) == (task, label) and place(p) is not None]
            if line:
                low, high = [min(p.scores) for p in line], [max(p.scores) for p in line]
                places = [float(place(p) or 0.0) for p in line]
                means = [p.mean for p in line]
                series.append(Series(label, means, places, low, high, line[0].color))
        plots.append(Lines(task, x, "score (%)", series))
    return plots


def _line(run: Run, policy: str, task: str, color: int, label: str) -> list[Point]:
    own = [r for r in (*run.results, *run.early) if (r.policy, r.task) == (policy, task)]
    if not any("intermediate" in result.config for result in own):
        return []
    budgets = _budgets(own[0])  # rows of a sweep over them start from rows of their own
    start = [
        result
        for result in run.results
        if result.task == task and "intermediate" not in result.config
        if any(map(eq, _budgets(result), budgets))
    ]
    by_steps: dict[int, list[Result]] = {}
    for result in (*start, *own):
        if result.metrics is not None:
            by_steps.setdefault(steps_of(result), []).append(result)
    return [
        Point(
            run=run.name,
            label=label,
            policy=policy,
            task=task,
            steps=steps,
            scores=tuple(one.percent for one in results if one.percent is not None),
            results=tuple(results),
            color=color,
        )
        for steps, results in sorted(by_steps.items())
    ]


def _budgets(result: Result) -> list[Json]:
    """Return the budget of a result's fine-tuning, also without the values that tuning chose."""
    budget = {"finetune": result.config.get("finetune")}
    return [budget, untuned(budget, tuned_keys(result))]


def steps_of(result: Result) -> int:
    """Return the steps of the intermediate stage behind a result; 0 without the stage."""
    if "intermediate" not in result.config:
        return 0
    return int(result.config.get(STEP, result.config["intermediate"]["steps"]))


def cost(point: Point, found: Sequence[Point], store: Store) -> dict[str, float | None]:
    """Return seconds and tokens of the training up to a point, means over intermediate runs.

    `found` are all points. The stage's seconds are divided in proportion to tokens.
    """
    if not point.steps:
        return {"seconds": 0.0, "tokens": 0.0}
    line = [p for p in found if (p.run, p.policy, p.task) == (point.run, point.policy, point.task)]
    whole = line[-1]
    tokens, total = (_mean([_tokens(each) for each in one.results]) for one in (point, whole))
    seconds = _mean([_seconds(result, store) for result in whole.results])
    if whole.steps != point.steps and seconds is not None:
        seconds = seconds * (tokens / total) if tokens is not None and total else None
    return {"seconds": seconds, "tokens": tokens}


def _tokens(result: Result) -> float | None:
    work = result.work
    if work is None:
        return None
    return float(sum(work.get(name, 0) for name in TOKENS))


def _seconds(result: Result, store: Store) -> float | None:
    """Return the seconds of the intermediate stage and its parts, with interrupted attempts."""
    if STEP in result.config:
        return None
    keys = [key for name, key in result.stages.items() if name.startswith("intermediate")]
    known = [store.recall(key) for key in keys]  # parts are dropped after use
    if not known or None in known:
        return None
    return float(sum(each["seconds"] for each in known if each is not None))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
