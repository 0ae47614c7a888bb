"""Test differences over several embedded worlds, each world counting once."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from maskpolicy import ConfigError, Findings, Json, Result, Run, Store, analysis
from maskpolicy.analyses import over_runs
from maskpolicy.analyses.plots import Grid
from maskpolicy.core import keys
from maskpolicy.experiment.definition import WORLD, untuned
from maskpolicy.leaderboard import stats
from maskpolicy.leaderboard.baselines import baseline_of
from maskpolicy.leaderboard.comparisons import FEWEST
from maskpolicy.leaderboard.results import compatibility

COLUMNS = ("policy", "task", "worlds", "difference", "low", "high", "p (Holm)", "detectable")
CONDITION = (
    "The test generalises to other worlds made with the same settings, and so to other questions, "
    "corpora and runs. It holds fixed what does not depend on the world: settings and other text."
)
_DRAWN = ("world.seed", "general.seed")  # settings in which the runs may differ


@analysis("worlds", heading="Differences over several worlds", place=40)
@dataclass(frozen=True)
class Worlds:
    """Differences to the baseline over several worlds, with worlds as a random effect.

    Takes one run of the same experiment for each world (`world.seed=1 --out runs/world-1`); a test
    needs three. Each world gives one number for a row and task, the mean difference over its seeds
    and examples. The test is Student's t over these numbers, with one degree of freedom less than
    there are worlds; p is adjusted for all rows and tasks (Holm).
    """

    def analyse(self, runs: Sequence[Run], store: Store) -> Findings:
        """Test the differences over worlds; raises ConfigError if experiments differ."""
        notes = _check(runs)
        places = [
            (label, task)
            for label in runs[0].rows
            for task in runs[0].columns
            if label != baseline_of(runs[0], label)
        ]
        found: dict[tuple[str, str], list[float]] = {}
        for place in places:
            values = [_difference(run, *place) for run in runs]
            known = [value for value in values if value is not None]
            if len(known) == len(runs):
                found[place] = known
            else:
                label, task = place
                notes.append(
                    f"{label}, {task}: has a difference in only {len(known)} of {len(runs)} worlds"
                )
        if len({_seed(run) for run in runs} - {None}) < 2:
            return Findings(COLUMNS, (), tuple(notes))
        tests = over_runs.tested(found)
        notes += _notes_on(found)
        rows = tuple(_row(place, values, tests) for place, values in found.items())
        notes += [CONDITION] if tests else []
        panels = (_panel(runs[0], rows),) if rows else ()
        return Findings(COLUMNS, rows, tuple(notes), panels)


def _check(runs: Sequence[Run]) -> list[str]:
    """Return notes on why there is no test; raises ConfigError for different experiments."""
    known: dict[int, Run] = {}
    for run in runs:
        seed = _seed(run)
        if seed is None:
            return [f"{run.name}: has no questions about the embedded world"]
        if seed in known:
            raise ConfigError(
                f"{known[seed].folder} and {run.folder} both have world.seed {seed}: give one run "
                "for each world"
            )
        known[seed] = run
        lines = _differing(runs[0], run)
        if lines:
            raise ConfigError(
                f"{runs[0].folder} and {run.folder} differ in {'; '.join(lines[:3])}: run the same "
                "experiment in each world, changing only world.seed"
            )
    if len(runs) < FEWEST:
        return [f"{len(runs)} world{'s'[: len(runs) != 1]}: a test needs {FEWEST}"]
    return []


def _seed(run: Run) -> int | None:
    """Return the seed of the world that a run's questions are about, or None."""
    worlds = [one.config.get("world") for one in run.results if _asks_world(one)]
    seeds = {world["seed"] for world in worlds if world and "seed" in world}
    return seeds.pop() if len(seeds) == 1 else None


def _differing(one: Run, other: Run) -> list[str]:
    """Return "key: value -> value" for settings that must not differ between worlds, but do."""
    before, after = _settings(one), _settings(other)
    lines = [
        line.lstrip(".")
        for name in sorted(before.keys() & after.keys())
        for line in keys.differences(before[name], after[name], name)
    ]
    return [line for line in lines if line.partition(": ")[0] not in _DRAWN]


def _settings(run: Run) -> dict[str, Json]:
    """Return the dependencies of a run's results by name, without those specific to a world.

    What tuned rows choose may differ, as each world has dev examples of its own.
    """
    found: dict[str, Json] = {}
    for result in run.results:
        tune = result.config.get("tune", {})
        for name, part in compatibility.parts(result).items():
            if not name.startswith("seed "):
                block = compatibility.without(part, name, tune).settings
                own = isinstance(block, dict) and name == result.task
                found[name] = {k: v for k, v in block.items() if k != "n"} if own else block
        found[f"policy of {result.policy}"] = untuned(result.config.get("policy", {}), tune)
    return found


def _difference(run: Run, label: str, task: str) -> float | None:
    """Return a row's mean difference to the baseline over shared seeds, in points."""
    mine, base = _scores(run, label, task), _scores(run, baseline_of(run, label), task)
    shared = [mine[seed] - base[seed] for seed in mine.keys() & base.keys()]
    return statistics.fmean(shared) if shared else None


def _scores(run: Run, label: str, task: str) -> dict[int, float]:
    """Return the scores of a row on questions about the world, by seed, in percent."""
    return {
        one.seed: 100 * one.metrics.score
        for one in run.results
        if (one.policy, one.task) == (label, task) and one.metrics is not None and _asks_world(one)
    }


def _asks_world(result: Result) -> bool:
    """Whether the questions come from the experiment's own world, not from files or the Hub."""
    return bool(result.config.get("task", {}).get("data", WORLD) == WORLD)


def _notes_on(found: dict[tuple[str, str], list[float]]) -> list[str]:
    """Return a note for each row and task whose difference is constant, so that no test is had."""
    return [
        f"{label}, {task}: the difference is the same in every world"
        for (label, task), values in found.items()
        if len(values) >= FEWEST and stats.are_equal(np.array(values))
    ]


def _row(
    place: tuple[str, str],
    values: Sequence[float],
    tests: dict[tuple[str, str], dict[str, Json]],
) -> dict[str, Json]:
    row: dict[str, Json] = {"policy": place[0], "task": place[1], "worlds": len(values)}
    return row | {"difference": statistics.fmean(values)} | tests.get(place, {})


def _panel(run: Run, rows: Sequence[dict[str, Json]]) -> Grid:
    labels = list(dict.fromkeys(row["policy"] for row in rows))
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    known = {(row["policy"], row["task"]): row["difference"] for row in rows}
    values = [[known.get((label, task)) for task in tasks] for label in labels]
    title = f"mean difference to {run.baseline} over worlds (points)"
    return Grid(title, labels, tasks, values, "task", "policy", True)
